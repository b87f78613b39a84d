//! Descriptors of several files, of which only some are open at a time.

use std::collections::VecDeque;
use std::fs::{self, File, Metadata};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::direct::OpenFile;
use crate::error::{Error, Result};

/// The largest and the smallest number of files of one source that stay open, and the number where the limit of the
/// process is not known. A check of an open file costs a tenth of opening it again. Each has two descriptors once its
/// rows are read past the cache.
const MOST_FILES: usize = 128;
const LEAST_FILES: usize = 8;
const SOME_FILES: usize = 32;

/// The number of files of one source that stay open: their descriptors are at most a quarter of those of the process.
fn kept_files() -> usize {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next());
    match soft {
        Some("unlimited") => MOST_FILES,
        Some(limit) => limit.parse().map_or(SOME_FILES, |n: usize| (n / 8).clamp(LEAST_FILES, MOST_FILES)),
        None => SOME_FILES,
    }
}

/// Metadata that identify an opened file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length: u64,
    /// `None` where the file system has no such time.
    modified: Option<SystemTime>,
    /// Device and number of the file, where the system has them.
    id: (u64, u64),
}

impl Stamp {
    fn of(found: &Metadata) -> Self {
        #[cfg(unix)]
        let id = {
            use std::os::unix::fs::MetadataExt;
            (found.dev(), found.ino())
        };
        #[cfg(not(unix))]
        let id = (0, 0);
        Self { length: found.len(), modified: found.modified().ok(), id }
    }
}

/// A file that was opened before, with the metadata that identify it.
#[derive(Debug)]
pub(super) struct KnownFile {
    /// The path in messages.
    pub(super) path: PathBuf,
    /// The same path from any working folder.
    absolute: PathBuf,
    stamp: Stamp,
    /// The length that the rows need.
    pub(super) needed: u64,
}

impl KnownFile {
    /// Remembers an open file by its metadata.
    ///
    /// # Errors
    /// [`Error::Io`] when the working folder cannot be looked up.
    pub(super) fn new(path: &Path, found: &Metadata, needed: u64) -> Result<Self> {
        let absolute = std::path::absolute(path).map_err(|e| Error::io(path, e))?;
        Ok(Self { path: path.to_owned(), absolute, stamp: Stamp::of(found), needed })
    }

    /// Returns an error if the file is no longer the one that was opened.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Io`] when the file is gone.
    pub(super) fn check(&self) -> Result<()> {
        self.compare(&fs::metadata(&self.absolute).map_err(|e| Error::io(&self.path, e))?)
    }

    fn compare(&self, found: &Metadata) -> Result<()> {
        if Stamp::of(found) == self.stamp {
            return Ok(());
        }
        let problem = if found.len() < self.needed {
            format!(
                "was cut while it was open: its rows need {} bytes, {} are left",
                self.needed,
                found.len()
            )
        } else {
            "was changed or replaced while it was open: open it again".into()
        };
        Err(Error::format(&self.path, problem))
    }

    pub(super) fn open(&self) -> Result<File> {
        let file = File::open(&self.absolute).map_err(|e| Error::io(&self.path, e))?;
        self.compare(&file.metadata().map_err(|e| Error::io(&self.path, e))?)?;
        Ok(file)
    }
}

/// The descriptors of several files, of which those opened last are open.
#[derive(Debug)]
pub(in crate::data) struct OpenFiles {
    /// One for each file.
    slots: Vec<Mutex<Option<Arc<OpenFile>>>>,
    /// The open files, in the order in which they were opened.
    order: Mutex<VecDeque<usize>>,
    most: usize,
}

impl OpenFiles {
    /// Descriptors of `files` files, none of which is open.
    pub(in crate::data) fn new(files: usize) -> Self {
        let slots = std::iter::repeat_with(Mutex::default).take(files).collect();
        Self { slots, order: Mutex::default(), most: kept_files() }
    }

    fn slot(&self, number: usize) -> MutexGuard<'_, Option<Arc<OpenFile>>> {
        self.slots[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The file `number`, if it is open.
    fn find(&self, number: usize) -> Option<Arc<OpenFile>> {
        self.slot(number).clone()
    }

    pub(super) fn keep(&self, number: usize, file: Arc<OpenFile>) {
        if self.slot(number).replace(file).is_some() {
            // Another thread has opened it in the meantime: it is in the order.
            return;
        }
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        order.push_back(number);
        if order.len() > self.most
            && let Some(oldest) = order.pop_front()
        {
            *self.slot(oldest) = None;
        }
    }

    /// Number of open files.
    #[cfg(test)]
    pub(in crate::data) fn count(&self) -> usize {
        (0..self.slots.len()).filter(|&number| self.find(number).is_some()).count()
    }
}

/// The descriptor of one of several files, which is opened when it is needed.
#[derive(Debug)]
pub(super) struct Descriptor {
    pub(super) files: Arc<OpenFiles>,
    pub(super) known: Arc<KnownFile>,
    pub(super) number: usize,
}

impl Descriptor {
    /// The open file.
    pub(super) fn file(&self) -> Result<Arc<OpenFile>> {
        if let Some(file) = self.files.find(self.number) {
            return Ok(file);
        }
        // Opened without the lock, so that other threads can continue.
        let file = Arc::new(OpenFile::new(self.known.open()?));
        self.files.keep(self.number, file.clone());
        Ok(file)
    }

    /// The file, if it is open.
    pub(super) fn open_file(&self) -> Option<Arc<OpenFile>> {
        self.files.find(self.number)
    }

    /// Returns an error if the file is no longer the one that was opened.
    pub(super) fn check(&self) -> Result<()> {
        self.known.check()
    }

    pub(super) fn metadata(&self) -> Result<Metadata> {
        self.file()?.file.metadata().map_err(|e| Error::io(&self.known.path, e))
    }
}
