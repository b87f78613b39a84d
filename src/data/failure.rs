//! This module knows how rows fail that are read by workers: a tile reader has to give rows, so it is the pass that ends in the error.

use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};

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

    /// How a pass ended: in what its tiles met, for whatever else it came to was made of rows that are none.
    pub(super) fn or(&self, outcome: Result<()>) -> Result<()> {
        match self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => outcome,
        }
    }
}
