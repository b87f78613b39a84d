//! This module knows how rows fail that are read by workers: a tile reader has to give rows, so it is the pass that ends in the error.

use std::sync::{Mutex, PoisonError};

use super::{DataSource, copy_to};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::rows::RowBuf;

/// The first error that was met while tiles were read.
#[derive(Debug, Default)]
pub(super) struct Failure(Mutex<Option<Error>>);

impl Clone for Failure {
    /// Another reader of the same rows has met nothing yet.
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Failure {
    /// Remembers an error, if it is the first.
    pub(super) fn note(&self, error: Error) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Appends sparse rows of a source; where they cannot be read, empty ones stand in their place.
    pub(super) fn copy_or_empty<T: Float, S: DataSource<T> + ?Sized>(
        &self,
        source: &S,
        rows: &[u64],
        out: &mut RowBuf<T>,
    ) {
        let before = out.len();
        if let Err(error) = copy_to(source, rows, out) {
            self.note(error);
            out.truncate(before);
            for _ in rows {
                out.end_row();
            }
        }
    }

    /// How a pass ended: in what its tiles met, for whatever else it came to was made of rows that are none.
    pub(super) fn or(&self, outcome: Result<()>) -> Result<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => outcome,
        }
    }
}
