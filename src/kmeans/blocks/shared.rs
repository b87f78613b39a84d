//! One tree for all starts of a fit.

use std::sync::{Arc, Mutex, PoisonError};

use super::Blocks;
use super::tree::Tree;
use crate::data::DataSource;
use crate::error::Result;
use crate::kernel::Compute;
use crate::parallel::Executor;

/// The tree that the starts of a fit share.
#[derive(Clone, Debug)]
pub(in crate::kmeans) struct Shared<T> {
    slot: Arc<Mutex<Slot<T>>>,
    /// No further start needs the tree.
    is_last: bool,
}

#[derive(Debug)]
enum Slot<T> {
    Empty,
    Built(Arc<Tree<T>>),
    /// An earlier start found that blocks do not pay.
    Declined,
}

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self { slot: Arc::new(Mutex::new(Slot::Empty)), is_last: true }
    }
}

impl<T: Compute> Shared<T> {
    /// The same tree, for another start.
    pub(in crate::kmeans) fn for_start(&self, is_last: bool) -> Self {
        Self { slot: Arc::clone(&self.slot), is_last }
    }

    /// The blocks of `n` rows, unless an earlier start declined them.
    ///
    /// # Errors
    /// Those of the source.
    pub(in crate::kmeans) fn blocks(
        &self,
        n: usize,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Option<Blocks<T>>> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Slot::Empty = *slot {
            *slot = Slot::Built(Arc::new(Tree::build(n, data, cx)?));
        }
        let Slot::Built(tree) = &*slot else { return Ok(None) };
        let blocks = Blocks::of(Arc::clone(tree));
        if self.is_last {
            *slot = Slot::Empty;
        }
        Ok(Some(blocks))
    }

    /// Notes that blocks do not pay for these rows.
    pub(in crate::kmeans) fn decline(&self) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Slot::Declined;
    }
}
