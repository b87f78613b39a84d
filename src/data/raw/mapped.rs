//! Rows in a memory-mapped file, which passes read ahead.
#![allow(unsafe_code)]

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use memmap2::Mmap;

use super::layout::Layout;
use super::rows::{RawRows, one_block};
use crate::data::{Access, DataSource, Dtype, TileReader, Visit};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::tuning::LENGTH_STEP;

/// A pass keeps this much of a mapped file requested ahead of the rows it reads: a fast disk (4 GB/s) needs
/// some 8 ms to bring it, longer than any single request takes.
const READ_AHEAD: usize = 32 << 20;
/// The read-ahead moves on in steps of this size, so that its calls cost nothing against the reading.
pub(super) const READ_AHEAD_STEP: usize = 16 << 20;
/// Linux cuts each request to the largest one of the device (at least 128 KiB, commonly 1.25 MiB): larger
/// ones are asked for in parts.
const READ_AHEAD_PART: usize = 1 << 20;

/// Rows in a memory-mapped file; a source for both compute types, cheap to clone.
///
/// Nothing is read before it is used, and a pass reads ahead of itself. The file should stay as it is while
/// it is used:
///
/// * When another process *changes* it, rows read before and after the change differ. Labels computed from
///   such a file are undefined, but in range.
/// * When it is made *shorter*, the next look at its length finds it, and the pass or [`DataSource::gather`] ends in
///   [`Error::Format`]. A pass looks every 256 KiB. Rows that are read before that look, from a part that was cut
///   off a moment ago, make the operating system stop this process (with `SIGBUS` on Unix): memory cannot be
///   corrupted by it, but nothing can be saved either. Write a new file and rename it over the old one instead: an
///   open source keeps the file that it opened.
///
/// Each open file keeps one file descriptor, for these looks: a process that opens thousands of files may have to raise its limit
/// (`ulimit -n`).
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::data::{DataSource, Dtype, raw};
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("rows.u8");
/// std::fs::write(&path, [1, 2, 3, 4, 5, 6]).unwrap();
/// let rows = raw::open(&path, Dtype::U8, 2, 3, 0)?;
/// let mut last = Vec::<f32>::new();
/// rows.gather(&[1], &mut last)?;
/// assert_eq!(last, [4.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Mapped {
    file: Arc<MappedFile>,
    offset: usize,
    layout: Layout,
    /// Whether the four bytes before each row are its number of columns, which has to be checked as rows are read.
    led: bool,
}

#[derive(Debug)]
struct MappedFile {
    map: Mmap,
    /// What is mapped, to look at its length.
    file: File,
    path: PathBuf,
    /// The length that the rows need.
    needed: u64,
    /// The length that was found where it is too short by now.
    shrunk: AtomicU64,
    /// The first error of a look at the length: the file cannot be trusted from then on.
    unreadable: OnceLock<io::Error>,
    /// The access pattern that the system was last told of.
    advised: AtomicU8,
}

#[derive(Clone, Copy)]
enum Pattern {
    Sequential = 1,
    Random = 2,
}

/// Opens a file of row-major rows, the first of them at byte `offset`.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened, [`Error::Format`] when it is not a regular file or too
/// short.
///
/// ```
/// use shoal::data::{Dtype, raw};
/// let refused = raw::open("no/such/file", Dtype::F32, 10, 3, 0).unwrap_err();
/// assert!(refused.to_string().starts_with("no/such/file: "));
/// ```
pub fn open(path: impl AsRef<Path>, dtype: Dtype, rows: usize, cols: usize, offset: u64) -> Result<Mapped> {
    Mapped::open(path, Layout::row_major(dtype, rows, cols), offset)
}

impl Mapped {
    /// Opens a file of rows in any layout, the first value at byte `offset`.
    ///
    /// # Errors
    /// As those of [`open`].
    ///
    /// ```
    /// use shoal::data::{Dtype, raw::{Layout, Mapped}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.fvecs");
    /// # std::fs::write(&path, [0; 24]).unwrap();
    /// // Two rows of two floats, four bytes before each.
    /// let layout = Layout { row_stride: 12, ..Layout::row_major(Dtype::F32, 2, 2) };
    /// let rows = Mapped::open(&path, layout, 4).unwrap();
    /// assert_eq!(rows.layout(), layout);
    /// ```
    pub fn open(path: impl AsRef<Path>, layout: Layout, offset: u64) -> Result<Self> {
        let path = path.as_ref();
        let found = file_length(path)?;
        let Layout { dtype, rows, cols, .. } = layout;
        if rows == 0 || cols == 0 {
            return Err(Error::format(path, format!("{rows} rows of {cols} columns are nothing to work on")));
        }
        let too_large =
            || Error::format(path, format!("{rows} rows of {cols} {dtype} are larger than any file"));
        let (low, high) = layout.extent().ok_or_else(too_large)?;
        let expected = offset.checked_add_signed(high as i64).ok_or_else(too_large)?;
        if low < 0 && offset < low.unsigned_abs() as u64 {
            return Err(Error::format(
                path,
                format!("its rows would begin before its first byte ({offset}{low})"),
            ));
        }
        if expected > found {
            return Err(Error::format(
                path,
                format!("{rows} rows of {cols} {dtype} need a file of {expected} bytes, found {found}"),
            ));
        }
        let file = File::open(path).map_err(|e| Error::io(path, e))?;
        // SAFETY: the map is only read, its values are plain numbers that take any bits, and no decision
        // about memory is derived from them. What happens when somebody else writes to the file is documented
        // with `Mapped`.
        let map = unsafe { Mmap::map(&file) }.map_err(|e| Error::io(path, e))?;
        if (map.len() as u64) < expected {
            let found = map.len();
            return Err(Error::format(
                path,
                format!("it shrank from {expected} to {found} bytes while it was opened"),
            ));
        }
        let file = MappedFile {
            map,
            file,
            path: path.to_owned(),
            needed: expected,
            shrunk: AtomicU64::new(u64::MAX),
            unreadable: OnceLock::new(),
            advised: AtomicU8::new(0),
        };
        Ok(Self { file: Arc::new(file), offset: offset as usize, layout, led: false })
    }

    /// Refuses a file that is shorter than it was.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Io`] where its length cannot be looked up.
    pub(crate) fn check_length(&self) -> Result<()> {
        // Nothing else moves this place; a seek costs half of what the system takes to describe a file.
        self.note_length((&self.file.file).seek(SeekFrom::End(0)))
    }

    /// Remembers what a look at the length came to.
    pub(super) fn note_length(&self, found: io::Result<u64>) -> Result<()> {
        match found {
            Ok(found) if found < self.file.needed => self.file.shrunk.store(found, Ordering::Relaxed),
            Ok(_) => (),
            Err(error) => drop(self.file.unreadable.set(error)),
        }
        self.length_found()
    }

    /// What the looks at the length came to so far.
    fn length_found(&self) -> Result<()> {
        let MappedFile { path, needed, .. } = &*self.file;
        if let Some(error) = self.file.unreadable.get() {
            let copied = error.raw_os_error().map(io::Error::from_raw_os_error);
            return Err(Error::io(path, copied.unwrap_or_else(|| error.kind().into())));
        }
        match self.file.shrunk.load(Ordering::Relaxed) {
            u64::MAX => Ok(()),
            found => {
                let problem =
                    format!("was cut while it was open: its rows need {needed} bytes, {found} are left");
                Err(Error::format(path, problem))
            }
        }
    }

    /// Refuses rows of a file that is shorter than it was. Looks at the length where the rows cross a step.
    fn check_at_step(&self, rows: &Range<usize>) -> Result<()> {
        let Layout { row_stride, cols, dtype, .. } = self.layout;
        let step = |row: usize| row * row_stride.unsigned_abs() / LENGTH_STEP;
        let scattered = row_stride.unsigned_abs() < cols * dtype.size();
        if scattered || step(rows.start) != step(rows.end) {
            self.check_length()
        } else {
            self.length_found()
        }
    }

    /// Checks rows that are about to be read, and reads ahead of them.
    fn prepare(&self, rows: &Range<usize>) -> Result<()> {
        self.check_at_step(rows)?;
        self.read_ahead(rows);
        self.check_leads(rows.clone())
    }

    /// The same rows, each led by an `i32` that must be their number of columns; there must be room for one before the first.
    pub(in crate::data) fn led_by_lengths(self) -> Self {
        debug_assert!(self.offset >= 4 && self.layout.row_stride >= 4);
        Self { led: true, ..self }
    }

    /// The refusal of a row that is led by `found` in place of `expected`.
    pub(in crate::data) fn other_length(path: &Path, row: u64, found: i32, expected: i32) -> Error {
        let problem = format!("row {row} has {found} columns, the first one has {expected}");
        Error::format(path, format!("has rows of different lengths: {problem}"))
    }

    /// What leads a row.
    fn lead(&self, row: usize) -> i32 {
        let at = self.offset + row * self.layout.row_stride as usize - 4;
        let map = &self.file.map;
        i32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]])
    }

    /// Refuses rows that are led by another number of columns.
    pub(crate) fn check_leads(&self, mut rows: impl Iterator<Item = usize>) -> Result<()> {
        match rows.find(|&row| self.led && self.lead(row) != self.layout.cols as i32) {
            Some(row) => Err(self.misfit(row)),
            None => Ok(()),
        }
    }

    fn misfit(&self, row: usize) -> Error {
        Self::other_length(&self.file.path, row as u64, self.lead(row), self.layout.cols as i32)
    }

    /// Where the values lie, relative to the first one.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// println!("{} rows of {}", rows.layout().rows, rows.layout().dtype);
    /// ```
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The file.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// assert_eq!(rows.path().file_name().unwrap(), "rows.npy");
    /// ```
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The rows in memory.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// assert_eq!(rows.view().layout(), rows.layout());
    /// ```
    pub fn view(&self) -> RawRows<'_> {
        // SAFETY: `open` checked that all values lie within the map, and the map stays as long as `self` is
        // borrowed.
        unsafe { RawRows::vouched(self.file.map.as_ptr().add(self.offset), self.layout) }
    }

    /// Tells the system how rows will be read, where that differs from the last time.
    fn advise(&self, pattern: Pattern) {
        if self.file.advised.swap(pattern as u8, Ordering::Relaxed) == pattern as u8 {
            return;
        }
        #[cfg(unix)]
        {
            let advice = match pattern {
                Pattern::Sequential => memmap2::Advice::Sequential,
                Pattern::Random => memmap2::Advice::Random,
            };
            // Advice only: a system that refuses it reads all the same.
            let _ = self.file.map.advise(advice);
        }
    }

    /// Asks for bytes of the file to be read soon.
    #[cfg(unix)]
    fn request(&self, bytes: Range<usize>) {
        let end = bytes.end.min(self.file.map.len());
        for at in (bytes.start..end).step_by(READ_AHEAD_PART) {
            let _ = self.file.map.advise_range(memmap2::Advice::WillNeed, at, READ_AHEAD_PART.min(end - at));
        }
    }

    #[cfg(not(unix))]
    fn request(&self, _bytes: Range<usize>) {}

    /// Moves the read-ahead on whenever the rows read pass the end of a step. Each such end lies in exactly
    /// one tile of a pass.
    fn read_ahead(&self, rows: &Range<usize>) {
        if let Some(due) = self.due(rows) {
            self.request(due);
        }
    }

    /// The bytes to request when these rows are read: all of the read-ahead at the first row, then a step
    /// more at each step.
    pub(super) fn due(&self, rows: &Range<usize>) -> Option<Range<usize>> {
        let Layout { row_stride, cols, dtype, .. } = self.layout;
        // Rows of a column-major file lie everywhere in it.
        let stride = usize::try_from(row_stride).ok().filter(|&s| s >= cols * dtype.size())?;
        let (from, to) = (self.offset + rows.start * stride, self.offset + rows.end * stride);
        // Everything up to here was requested when the rows before these were read.
        let ahead = |at: usize| at / READ_AHEAD_STEP * READ_AHEAD_STEP + READ_AHEAD;
        let start = if rows.start == 0 { from } else { ahead(from) };
        (start < ahead(to)).then(|| start..ahead(to))
    }
}

/// Length of a regular file. Looked up before the file is opened: opening a pipe would wait for its other
/// end.
pub(in crate::data) fn file_length(path: &Path) -> Result<u64> {
    let found = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if found.is_dir() {
        return Err(Error::io(
            path,
            io::Error::new(io::ErrorKind::IsADirectory, "is a directory, not a file of rows"),
        ));
    }
    if !found.is_file() {
        return Err(Error::format(path, "is not a regular file and cannot be mapped"));
    }
    if found.len() == 0 {
        return Err(Error::format(path, "is empty"));
    }
    Ok(found.len())
}

impl<T: Float> TileReader<T> for Mapped {
    fn tile<'s>(&'s self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<MatRef<'s, T>> {
        self.prepare(&rows)?;
        Ok(self.view().read(rows, scratch))
    }
    fn copy_tile<'s>(&self, rows: Range<usize>, scratch: &'s mut Vec<T>) -> Result<&'s mut [T]> {
        self.prepare(&rows)?;
        Ok(self.view().read_copy(rows, scratch))
    }
    fn tile_of<'s>(
        &'s self,
        rows: Range<usize>,
        picked: &[u32],
        scratch: &'s mut Vec<T>,
    ) -> Result<MatRef<'s, T>> {
        if !picked.is_empty() {
            self.check_at_step(&rows)?;
        }
        if 8 * picked.len() > rows.len() {
            self.read_ahead(&rows);
        }
        self.check_leads(picked.iter().map(|&r| rows.start + r as usize))?;
        Ok(self.view().read_some(rows, picked, scratch))
    }
}

impl<T: Float> DataSource<T> for Mapped {
    fn dim(&self) -> usize {
        self.layout.cols
    }
    fn rows(&self) -> Option<u64> {
        Some(self.layout.rows as u64)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn always_finite(&self) -> bool {
        !self.layout.dtype.is_float()
    }
    fn for_each_block(&self, _tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.advise(Pattern::Sequential);
        self.check_length()?;
        one_block(self, self.layout.rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        // Sequential advice would read some hundred kilobytes for every single row.
        self.advise(Pattern::Random);
        self.check_length()?;
        if self.led {
            let all = self.layout.rows;
            self.check_leads(rows.iter().map(|&row| row as usize).filter(|&row| row < all))?;
        }
        self.view().append(rows, out)
    }
}
