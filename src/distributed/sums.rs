//! What passes add up, for all kinds of passes.

use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

use super::errors::of_others;
use crate::error::Result;
use crate::persist::Contents;

/// What a pass adds up over the rows of a partition, or of several.
pub(super) trait Sums: Clone + Debug + Send + Sync + 'static {
    /// The name of the kind, in files.
    const KIND: &'static str;

    /// Adds the sums of other rows. What is read at the end is bit-identical for any order of addition.
    ///
    /// # Errors
    /// If the two do not have the same shape, which only damaged partial results do.
    fn add(&mut self, next: Self) -> Result<()>;

    fn put(&self, contents: &mut Contents);

    /// Reads what [`Sums::put`] wrote, of rows of `dim` values (0 if no partition has rows).
    fn of_file(contents: &Contents, dim: usize) -> Result<Self, String>;

    /// Whether these may be the sums of `rows` rows of `dim` values (0 if no partition has rows).
    fn fits(&self, _rows: u64, _dim: usize) -> bool {
        true
    }
}

/// [`Sums`] whose kind is not known when the crate is compiled.
trait DynSums: Any + Debug + Send + Sync {
    fn kind(&self) -> &'static str;
    fn put(&self, contents: &mut Contents);
    fn plus(self: Arc<Self>, next: AnySums) -> Result<AnySums>;
}

impl<S: Sums> DynSums for S {
    fn kind(&self) -> &'static str {
        S::KIND
    }

    fn put(&self, contents: &mut Contents) {
        Sums::put(self, contents);
    }

    fn plus(mut self: Arc<Self>, next: AnySums) -> Result<AnySums> {
        Arc::make_mut(&mut self).add(next.into_kind()?)?;
        Ok(AnySums(self))
    }
}

/// Sums of any kind. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AnySums(Arc<dyn DynSums>);

impl AnySums {
    pub(super) fn new(sums: impl Sums) -> Self {
        Self(Arc::new(sums))
    }

    /// The sums of these rows and of others.
    ///
    /// # Errors
    /// If the two do not have the same kind and shape, which only damaged partial results do.
    pub(super) fn plus(self, next: Self) -> Result<Self> {
        self.0.plus(next)
    }

    /// The sums, if they are of this kind.
    pub(super) fn get<S: Sums>(&self) -> Option<&S> {
        let sums: &dyn Any = &*self.0;
        sums.downcast_ref()
    }

    /// The sums.
    ///
    /// # Errors
    /// If they are of another kind, which only those of damaged partial results are.
    pub(super) fn into_kind<S: Sums>(self) -> Result<S> {
        let sums: Arc<dyn Any + Send + Sync> = self.0;
        Ok(Arc::unwrap_or_clone(sums.downcast::<S>().map_err(|_| of_others())?))
    }

    /// The name of the kind, in files.
    pub(super) fn kind(&self) -> &'static str {
        self.0.kind()
    }

    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new("");
        self.0.put(&mut contents);
        contents
    }
}
