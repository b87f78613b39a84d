//! Files that are mapped again, without reading their headers.

use std::path::Path;
use std::sync::Arc;

use super::descriptor::{Descriptor, KnownFile, OpenFiles};
use super::direct::OpenFile;
use super::layout::Layout;
use super::mapped::{Handle, Mapped, map};
use crate::error::Result;

/// Where rows lie in a file that was opened before: enough to map it without reading its header again.
#[derive(Debug)]
pub(in crate::data) struct Place {
    file: Arc<KnownFile>,
    layout: Layout,
    offset: u64,
    led: bool,
}

impl Place {
    /// The place of the rows of an open file.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the metadata or the working folder cannot be looked up.
    pub(in crate::data) fn of(rows: &Mapped) -> Result<Self> {
        let file = Arc::new(KnownFile::new(rows.path(), &rows.metadata()?, rows.needed())?);
        let (offset, led) = rows.start();
        Ok(Self { file, layout: rows.layout(), offset, led })
    }

    pub(in crate::data) fn path(&self) -> &Path {
        &self.file.path
    }

    pub(in crate::data) fn layout(&self) -> Layout {
        self.layout
    }

    /// As [`KnownFile::check`].
    pub(in crate::data) fn check(&self) -> Result<()> {
        self.file.check()
    }

    /// Maps the file. `files` checks its length from then on, and knows it by `number`.
    ///
    /// # Errors
    /// As [`Place::check`], and [`Error::Io`](crate::Error::Io) when the file cannot be opened.
    pub(in crate::data) fn map(&self, files: &Arc<OpenFiles>, number: usize) -> Result<Mapped> {
        let known = &self.file;
        let file = known.open()?;
        let map = map(&file, &known.path, known.needed)?;
        files.keep(number, Arc::new(OpenFile::new(file)));
        let handle = Handle::Shared(Descriptor { files: files.clone(), known: known.clone(), number });
        Ok(Mapped::of_map(map, handle, &known.path, known.needed, (self.layout, self.offset, self.led)))
    }
}
