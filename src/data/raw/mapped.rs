//! Rows in a memory-mapped file, which passes read ahead.
#![allow(unsafe_code)]

mod single;

use std::fs::{self, File};
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

#[cfg(not(miri))]
use memmap2::Mmap;
// Miri maps no files: memory holds a copy.
#[cfg(miri)]
use memmap2::MmapMut as Mmap;

#[cfg(all(unix, not(miri)))]
use super::ahead::READ_AHEAD_PART;
use super::ahead::{Leave, due, scarce};
use super::descriptor::Descriptor;
use super::direct::OpenFile;
use super::layout::Layout;
use super::rows::{RawRows, one_block};
use crate::data::source::forward;
use crate::data::{Access, DataSource, Dtype, Tile, TileReader, Visit, Wanted};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// Bytes of a mapped file between two checks of its length: a check takes 0.1 to 0.2 µs, reading so many
/// bytes at least 20 µs.
const LENGTH_STEP: usize = 256 << 10;

/// Rows in a memory-mapped file; a source for both compute types, cheap to clone.
///
/// Opening reads no rows; a pass reads ahead. The file should not change while it is used:
///
/// * If another process *changes* it, rows read before and after the change differ. Labels computed from such
///   a file are undefined, but in range.
/// * If it is made *shorter*, the next check of its length ends the pass or [`DataSource::gather`] with
///   [`Error::Format`]. A pass checks every 256 KiB. If rows that were cut off are read before the next
///   check, the operating system stops this process (with `SIGBUS` on Unix): memory is not corrupted, but
///   unsaved work is lost. Write a new file and rename it over the old one instead: an open source keeps the
///   file that it opened.
///
/// Each open file keeps one file descriptor for these checks, and one more once single rows are read. A process that
/// opens thousands of files may have to raise its limit (`ulimit -n`).
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
    /// Whether the four bytes before each row are its number of columns, which is checked when the row is read.
    led: bool,
}

#[derive(Debug)]
struct MappedFile {
    map: Mmap,
    /// Looks up the length of the mapped file.
    handle: Handle,
    path: PathBuf,
    /// The length that the rows need.
    needed: u64,
    /// The length of the file once it was found too short.
    shrunk: AtomicU64,
    /// The first error of a check of the length, after which no rows are read.
    unreadable: OnceLock<io::Error>,
    /// The access pattern of the last advice to the system.
    advised: AtomicU8,
    /// What the last pass that began leaves in the cache.
    leave: Mutex<Option<Leave>>,
}

/// The descriptor by which the length of a mapped file is looked up.
#[derive(Debug)]
pub(super) enum Handle {
    /// Open as long as the file is mapped.
    Own(OpenFile),
    /// One of many files, of which only some are open at a time.
    Shared(Descriptor),
}

/// How rows will be read, for the system.
#[derive(Clone, Copy)]
pub(in crate::data) enum Pattern {
    Sequential = 1,
    Random = 2,
}

/// Opens a file of row-major rows, with the first row at byte `offset`.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened, [`Error::Format`] when it is not a regular file or is too short.
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
    /// Opens a file of rows in any layout, with the first value at byte `offset`.
    ///
    /// # Errors
    /// As [`open`].
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
        let opened = Self::open_shard(&path, layout, offset)?;
        if layout.rows == 0 {
            return Err(no_rows(path.as_ref(), layout));
        }
        Ok(opened)
    }

    /// As [`Mapped::open`], but the file may have no rows.
    pub(crate) fn open_shard(path: impl AsRef<Path>, layout: Layout, offset: u64) -> Result<Self> {
        let path = path.as_ref();
        let found = file_length(path)?;
        let Layout { dtype, rows, cols, .. } = layout;
        if cols == 0 {
            return Err(no_rows(path, layout));
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
        let map = map(&file, path, expected)?;
        Ok(Self::of_map(map, Handle::Own(OpenFile::new(file)), path, expected, (layout, offset, false)))
    }

    /// Rows in a file that is mapped already: `needed` bytes of it, with the first value at byte `offset`. If `led`,
    /// the number of columns precedes each row.
    pub(super) fn of_map(
        map: Mmap,
        handle: Handle,
        path: &Path,
        needed: u64,
        (layout, offset, led): (Layout, u64, bool),
    ) -> Self {
        let file = MappedFile {
            map,
            handle,
            path: path.to_owned(),
            needed,
            shrunk: AtomicU64::new(u64::MAX),
            unreadable: OnceLock::new(),
            advised: AtomicU8::new(0),
            leave: Mutex::default(),
        };
        Self { file: Arc::new(file), offset: offset as usize, layout, led }
    }

    /// The position of the first value, and whether the number of columns precedes each row.
    pub(super) fn start(&self) -> (u64, bool) {
        (self.offset as u64, self.led)
    }

    /// The length of the file that the rows need.
    pub(super) fn needed(&self) -> u64 {
        self.file.needed
    }

    /// The metadata of the open file.
    pub(super) fn metadata(&self) -> Result<fs::Metadata> {
        match &self.file.handle {
            Handle::Own(open) => open.file.metadata().map_err(|e| Error::io(self.path(), e)),
            Handle::Shared(descriptor) => descriptor.metadata(),
        }
    }

    /// Returns an error if the file has become shorter.
    ///
    /// # Errors
    /// [`Error::Format`]; [`Error::Io`] where its length cannot be looked up.
    pub(crate) fn check_length(&self) -> Result<()> {
        // No other code uses the file position; a seek takes half the time of a `stat`.
        match &self.file.handle {
            Handle::Own(open) => self.note_length((&open.file).seek(SeekFrom::End(0))),
            Handle::Shared(descriptor) => self.note_length((&descriptor.file()?.file).seek(SeekFrom::End(0))),
        }
    }

    /// As [`Mapped::check_length`]; opens no descriptor for it, and looks the file up by its path instead.
    pub(in crate::data) fn check_cheaply(&self) -> Result<()> {
        match &self.file.handle {
            Handle::Shared(descriptor) => match descriptor.open_file() {
                Some(open) => self.note_length((&open.file).seek(SeekFrom::End(0))),
                None => descriptor.check(),
            },
            Handle::Own(_) => self.check_length(),
        }
    }

    /// Stores the outcome of a check of the length.
    pub(in crate::data) fn note_length(&self, found: io::Result<u64>) -> Result<()> {
        match found {
            Ok(found) if found < self.file.needed => self.file.shrunk.store(found, Ordering::Relaxed),
            Ok(_) => (),
            Err(error) => drop(self.file.unreadable.set(error)),
        }
        self.length_found()
    }

    /// The outcome of all checks of the length so far.
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

    /// Returns an error if the file has become shorter. Checks the length only where the rows cross a step.
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

    /// Checks rows that are about to be read.
    fn check(&self, rows: &Range<usize>) -> Result<()> {
        self.check_at_step(rows)?;
        self.check_leads(rows.clone())
    }

    /// As [`TileReader::read`], without reading ahead.
    pub(in crate::data) fn read<T: Float>(
        &self,
        wanted: &Wanted<'_>,
        buffer: &mut RowBuf<T>,
    ) -> Result<Tile<'_, T>> {
        let rows = &wanted.rows;
        match wanted.picked {
            None => self.check(rows)?,
            Some(picked) => {
                if !picked.is_empty() {
                    self.check_at_step(rows)?;
                }
                self.check_leads(picked.iter().map(|&r| rows.start + r as usize))?;
            }
        }
        Ok(self.view().read(wanted, buffer))
    }

    /// Converts rows into `out`, without reading ahead.
    pub(in crate::data) fn read_into<T: Float>(&self, rows: &Range<usize>, out: &mut [T]) -> Result<()> {
        self.check(rows)?;
        self.view().read_into(rows, out);
        Ok(())
    }

    /// Appends single rows to `out`, without a check of the length of the file.
    pub(in crate::data) fn append<T: Float>(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let all = self.layout.rows as u64;
        let run = rows.len() >= RUN && rows.windows(2).all(|two| two[0] < all && two[1] == two[0] + 1);
        let last = rows.last().filter(|&&last| run && last < all);
        let run = last.map(|&last| last as usize + 1 - rows.len()..last as usize + 1);
        if let Some(run) = run.clone() {
            self.request_rows(run);
        } else {
            // With sequential advice the system would read some hundred kilobytes per row.
            self.advise(Pattern::Random);
        }
        if self.led {
            let all = self.layout.rows;
            self.check_leads(rows.iter().map(|&row| row as usize).filter(|&row| row < all))?;
        }
        self.view().append(rows, out)?;
        if let Some(run) = run.filter(|run| !self.keeps(run, None)) {
            self.drop_rows(run);
        }
        Ok(())
    }

    /// The same rows, each preceded by an `i32` that must be its number of columns; there must be 4 bytes
    /// before the first row.
    pub(in crate::data) fn led_by_lengths(self) -> Self {
        debug_assert!(self.offset >= 4 && self.layout.row_stride >= 4);
        Self { led: true, ..self }
    }

    /// The error for a row that is preceded by `found` instead of `expected`.
    pub(in crate::data) fn other_length(path: &Path, row: u64, found: i32, expected: i32) -> Error {
        let problem = format!("row {row} has {found} columns, the first one has {expected}");
        Error::format(path, format!("has rows of different lengths: {problem}"))
    }

    /// The number before a row.
    fn lead(&self, row: usize) -> i32 {
        let at = self.offset + row * self.layout.row_stride as usize - 4;
        let map = &self.file.map;
        i32::from_le_bytes([map[at], map[at + 1], map[at + 2], map[at + 3]])
    }

    /// Checks the number of columns before each of some rows.
    pub(crate) fn check_leads(&self, mut rows: impl Iterator<Item = usize>) -> Result<()> {
        match rows.find(|&row| self.led && self.lead(row) != self.layout.cols as i32) {
            Some(row) => Err(self.misfit(row)),
            None => Ok(()),
        }
    }

    fn misfit(&self, row: usize) -> Error {
        Self::other_length(&self.file.path, row as u64, self.lead(row), self.layout.cols as i32)
    }

    /// The positions of the values, relative to the first value.
    ///
    /// ```no_run
    /// let rows = shoal::data::npy::open("rows.npy").unwrap();
    /// println!("{} rows of {}", rows.layout().rows, rows.layout().dtype);
    /// ```
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The path of the file.
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
        // SAFETY: `open` checked that all values are within the map, which lives as long as `self`.
        unsafe { RawRows::vouched(self.file.map.as_ptr().add(self.offset), self.layout) }
    }

    /// Tells the system how rows will be read, if the pattern has changed.
    pub(in crate::data) fn advise(&self, pattern: Pattern) {
        if self.file.advised.swap(pattern as u8, Ordering::Relaxed) == pattern as u8 {
            return;
        }
        #[cfg(all(unix, not(miri)))]
        {
            let advice = match pattern {
                Pattern::Sequential => memmap2::Advice::Sequential,
                Pattern::Random => memmap2::Advice::Random,
            };
            // Reading works without the advice.
            let _ = self.file.map.advise(advice);
        }
    }

    /// Requests bytes of the file that will be read soon.
    #[cfg(all(unix, not(miri)))]
    fn request(&self, bytes: Range<usize>) {
        let end = bytes.end.min(self.file.map.len());
        for at in (bytes.start..end).step_by(READ_AHEAD_PART) {
            let _ = self.file.map.advise_range(memmap2::Advice::WillNeed, at, READ_AHEAD_PART.min(end - at));
        }
    }

    #[cfg(not(all(unix, not(miri))))]
    fn request(&self, _bytes: Range<usize>) {}

    /// Tells the system that bytes of the file need not stay in its cache.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn drop_cached(&self, bytes: Range<usize>) {
        let MappedFile { map, handle, .. } = &*self.file;
        let bytes = bytes.start..bytes.end.min(map.len());
        let Some(length) = std::num::NonZeroU64::new(bytes.len() as u64) else { return };
        let advice = memmap2::UncheckedAdvice::DontNeed;
        // SAFETY: the map is shared and only read: dropped pages are read from the file again.
        let _ = unsafe { map.unchecked_advise_range(advice, bytes.start, bytes.len()) };
        let drop = |file: &File| {
            let _ = rustix::fs::fadvise(file, bytes.start as u64, Some(length), rustix::fs::Advice::DontNeed);
        };
        match handle {
            Handle::Own(open) => drop(&open.file),
            // A closed file is not opened for this.
            Handle::Shared(descriptor) => {
                if let Some(open) = descriptor.open_file() {
                    drop(&open.file);
                }
            }
        }
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn drop_cached(&self, _bytes: Range<usize>) {}

    /// Drops rows from the system's cache, if they are in the order of the file.
    pub(in crate::data) fn drop_rows(&self, rows: Range<usize>) {
        if let Some(bytes) = self.bytes_of(&rows) {
            self.drop_cached(bytes);
        }
    }

    /// Requests rows that will be read soon. Rows of a column-major file are spread over the whole file.
    pub(crate) fn request_rows(&self, rows: Range<usize>) {
        if let Some(bytes) = self.bytes_of(&rows) {
            self.request(bytes);
        }
    }

    /// What the pass leaves in the cache.
    pub(super) fn leave(&self) -> MutexGuard<'_, Option<Leave>> {
        self.file.leave.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether these rows stay in the cache after they were read: after the last pass, if `leave` is `None`.
    fn keeps(&self, rows: &Range<usize>, leave: Option<Leave>) -> bool {
        let Some(bytes) = self.bytes_of(rows) else { return true };
        if let Some(leave) = leave {
            return leave.keeps(&bytes);
        }
        let mut leave = self.leave();
        if leave.is_none() {
            // Before the first pass, for example of a resumed fit. A pass reports the error.
            *leave = Leave::new(self.file.map.len(), 0).ok();
        }
        leave.is_none_or(|leave| leave.keeps(&bytes))
    }

    /// The bytes of some rows; `None` if the rows are spread over the whole file, as in a column-major file.
    fn bytes_of(&self, rows: &Range<usize>) -> Option<Range<usize>> {
        let Layout { row_stride, cols, dtype, .. } = self.layout;
        let stride = usize::try_from(row_stride).ok().filter(|&s| s >= cols * dtype.size())?;
        Some(self.offset + rows.start * stride..self.offset + rows.end * stride)
    }

    /// Advances the read-ahead when the rows cross the end of a step, which happens in exactly one tile of a pass.
    fn read_ahead(&self, rows: &Range<usize>) {
        self.drop_behind(rows);
        if let Some(due) = self.due(rows) {
            self.request(due);
        }
    }

    /// Drops what does not stay in the cache, before these rows are read.
    fn drop_behind(&self, rows: &Range<usize>) {
        let leave = *self.leave();
        if let (Some(due), Some(leave)) = (self.due(rows), leave) {
            self.drop_cached(leave.behind(&due));
        }
    }

    /// The bytes to request when these rows are read: the whole read-ahead at the first row, then one more
    /// step at each step.
    pub(super) fn due(&self, rows: &Range<usize>) -> Option<Range<usize>> {
        due(self.bytes_of(rows)?, rows.start == 0)
    }
}

/// Consecutive rows from which on a file is read ahead for them.
const RUN: usize = 64;

/// Maps a file of which `needed` bytes will be read.
pub(super) fn map(file: &File, path: &Path, needed: u64) -> Result<Mmap> {
    #[cfg(not(miri))]
    // SAFETY: the map is only read, its values are plain numbers that allow any bits, and no memory access
    // depends on them.
    // `Mapped` documents what happens when another process writes to the file.
    let map = unsafe { Mmap::map(file) }.map_err(|e| Error::io(path, e))?;
    #[cfg(miri)]
    let map = copied(file).map_err(|e| Error::io(path, e))?;
    if (map.len() as u64) < needed {
        let found = map.len();
        return Err(Error::format(
            path,
            format!("it shrank from {needed} to {found} bytes while it was opened"),
        ));
    }
    Ok(map)
}

/// A copy of a file in memory.
#[cfg(miri)]
fn copied(mut file: &File) -> io::Result<Mmap> {
    let mut map = Mmap::map_anon(file.metadata()?.len() as usize)?;
    io::Read::read_exact(&mut file, &mut map)?;
    Ok(map)
}

/// The error for a file without rows or columns.
fn no_rows(path: &Path, layout: Layout) -> Error {
    let Layout { rows, cols, .. } = layout;
    Error::format(path, format!("must have at least 1 row and 1 column, got {rows} x {cols}"))
}

/// The extension of a file name in lower case, or an empty string.
pub(in crate::data) fn suffix_of(path: &Path) -> String {
    path.extension().map(|suffix| suffix.to_string_lossy().to_ascii_lowercase()).unwrap_or_default()
}

/// Length of a regular file, looked up before it is opened: opening a pipe would block.
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
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        if self.read_few(&wanted, buffer, None)? {
            self.drop_behind(&wanted.rows);
            return Ok(Some(Tile::Copied));
        }
        if reads_ahead(&wanted) {
            self.read_ahead(&wanted.rows);
        }
        Mapped::read(self, &wanted, buffer).map(Some)
    }
    fn bytes(&self, rows: Range<usize>) -> Result<Option<MatRef<'_, u8>>> {
        if self.layout.dtype != Dtype::U8 {
            return Ok(None);
        }
        self.read_ahead(&rows);
        self.check(&rows)?;
        Ok(self.view().read_bytes(rows))
    }
}

/// Whether so many rows of a tile are read that the following tiles are worth reading ahead.
pub(in crate::data) fn reads_ahead(wanted: &Wanted<'_>) -> bool {
    wanted.picked.is_none_or(|picked| 8 * picked.len() > wanted.rows.len())
}

impl<T: Float> DataSource<T> for Mapped {
    forward!(|this| this.view() => dim rows access always_finite);

    fn scarce_memory(&self) -> Option<u64> {
        scarce(self.file.map.len())
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.advise(Pattern::Sequential);
        let row = self.layout.row_stride.unsigned_abs();
        let leave = Leave::new(self.file.map.len(), tile_rows.saturating_mul(row))?;
        *self.leave() = Some(leave);
        self.check_length()?;
        one_block(self, self.layout.rows, f)
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        self.check_length()?;
        if self.gather_directly(rows, out, None)? {
            return Ok(());
        }
        self.append(rows, out)
    }
}
