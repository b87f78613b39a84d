//! External shuffle: puts more rows than memory holds into a random order.
//!
//! Each row draws a key, and the rows are sorted by their keys, in buckets on disk. Keys are independent and
//! uniform, so every order of the rows is equally likely, and the order depends on the seed alone, not on the
//! number of buckets (Rao 1961, Sandelius 1962). Rows with equal keys of 64 bits keep their order: one pair
//! in 2^64.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::Dtype;
use super::npy::Writer;
use crate::error::{Error, Result};
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::whole_file::TemporaryFolder;
use crate::whole_file::calls::Out;

/// Bytes of a key, which is stored before its row.
const KEY: usize = 8;
/// Bytes per row that sorting takes: its key and its position.
const SORTED: u64 = 16;
/// Upper limit of the buckets that are filled at a time: each is written in pieces of at least a 256th of a
/// quarter of the memory.
const MOST_PARTS: u64 = 256;
/// Buckets when the number of rows is unknown; a bucket that grows too large is split.
const BLIND_PARTS: u64 = 64;
/// Rows that are written between two checks for an interrupt.
const WRITTEN_ROWS: usize = 4096;

/// Rows whose keys are in one range, in the order in which they were added.
#[derive(Debug)]
struct Bucket {
    low: u64,
    /// Number of keys in the range.
    width: u128,
    rows: u64,
    /// The rows on disk, if any.
    file: Option<PathBuf>,
    /// The rows in memory.
    buffer: Vec<u8>,
}

/// Cuts the range of `width` keys from `low` on into `parts` of nearly equal width.
fn cut(low: u64, width: u128, parts: u64) -> Vec<Bucket> {
    let parts = u128::from(parts);
    let start = |i: u128| (i * width).div_ceil(parts);
    let bucket = |i| Bucket {
        low: low + start(i) as u64,
        width: start(i + 1) - start(i),
        rows: 0,
        file: None,
        buffer: Vec::new(),
    };
    (0..parts).map(bucket).collect()
}

/// Writes any number of rows to an `.npy` file in a uniformly random order, in bounded memory.
///
/// The file is created atomically by [`Shuffler::finish`]. Rows that do not fit into memory are kept in a
/// temporary folder beside it, which is removed at the end. If a process is killed, the next writer of the
/// same file removes its leftovers. The order depends only on the seed and the number of rows, not on the
/// memory.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::Executor;
/// use shoal::data::{DataSource, Dtype, Shuffler, npy};
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("shuffled.npy");
/// let mut rows = Shuffler::create(&path, Dtype::U8, 2, Some(3), 7, 1 << 20)?;
/// rows.push(&[1, 1, 2, 2])?;
/// rows.push(&[3, 3])?;
/// assert_eq!(rows.finish(&Executor::new(None)?)?, 3);
///
/// let mut found = Vec::<f32>::new();
/// npy::open(&path)?.gather(&[0, 1, 2], &mut found)?;
/// found.sort_by(f32::total_cmp);
/// assert_eq!(found, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Shuffler {
    writer: Writer,
    path: PathBuf,
    /// Bytes of a row.
    row: usize,
    memory: u64,
    keys: Rng,
    /// Buckets that are being filled.
    open: Vec<Bucket>,
    /// Buckets to be written, the next one last; empty while rows are added.
    closed: Vec<Bucket>,
    writing: bool,
    /// Bytes in the buffers of all buckets.
    buffered: u64,
    folder: Option<TemporaryFolder>,
    n_files: u64,
    sorted: Sorted,
}

/// Buffers for the rows of a bucket and their order, which all buckets share.
#[derive(Debug, Default)]
struct Sorted {
    records: Vec<u8>,
    order: Vec<(u64, usize)>,
}

impl Shuffler {
    /// A shuffler of rows of `cols` values that uses about `memory` bytes. `rows` is the number of rows, if known.
    ///
    /// # Errors
    /// As [`Writer::create`].
    ///
    /// ```
    /// use shoal::data::{Dtype, Shuffler};
    /// assert!(Shuffler::create("no/such/folder/rows.npy", Dtype::F32, 3, None, 0, 1 << 20).is_err());
    /// ```
    pub fn create(
        path: impl AsRef<Path>,
        dtype: Dtype,
        cols: usize,
        rows: Option<u64>,
        seed: u64,
        memory: u64,
    ) -> Result<Self> {
        let path = path.as_ref();
        let writer = Writer::create(path, dtype, cols)?;
        let row = cols.saturating_mul(dtype.size());
        let memory = memory.max(4);
        // Aim at a quarter of the memory per bucket and allow a half: the lengths are random.
        let parts = rows.map_or(BLIND_PARTS, |rows| {
            u128::from(rows)
                .saturating_mul(u128::from(held(row)))
                .div_ceil(u128::from(memory / 4))
                .min(MOST_PARTS.into()) as u64
        });
        Ok(Self {
            writer,
            path: path.to_owned(),
            row,
            memory,
            keys: Rng::keyed(seed, Purpose::Shuffle, 0),
            open: cut(0, 1 << 64, parts.max(1)),
            closed: Vec::new(),
            writing: false,
            buffered: 0,
            folder: None,
            n_files: 0,
            sorted: Sorted::default(),
        })
    }

    /// Adds rows as bytes: little-endian values, row after row.
    ///
    /// # Errors
    /// [`Error::Shape`] when `bytes` is not a whole number of rows, and after the first
    /// [`Shuffler::write_some`]; [`Error::Io`] when the disk is full.
    ///
    /// ```
    /// # use shoal::data::{Dtype, Shuffler};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// let mut rows = Shuffler::create(&path, Dtype::U16, 2, None, 0, 1 << 20).unwrap();
    /// rows.push(&[1, 0, 2, 0]).unwrap();
    /// assert!(rows.push(&[1]).is_err());
    /// ```
    pub fn push(&mut self, bytes: &[u8]) -> Result<()> {
        if !bytes.len().is_multiple_of(self.row) {
            return Err(Error::Shape(format!(
                "{} bytes do not divide into rows of {} bytes",
                bytes.len(),
                self.row
            )));
        }
        if self.writing {
            return Err(Error::Shape("all rows must be added before the shuffled rows are written".into()));
        }
        let parts = self.open.len() as u128;
        for row in bytes.chunks_exact(self.row) {
            let key = self.keys.bits();
            let part = (u128::from(key) * parts) >> 64;
            self.deal(part as usize, &key.to_le_bytes(), row)?;
        }
        Ok(())
    }

    /// Adds a row to a bucket, and writes all buckets to disk when they are too large.
    fn deal(&mut self, part: usize, key: &[u8], row: &[u8]) -> Result<()> {
        let bucket = &mut self.open[part];
        bucket.buffer.extend_from_slice(key);
        bucket.buffer.extend_from_slice(row);
        bucket.rows += 1;
        self.buffered += (KEY + row.len()) as u64;
        if self.buffered > self.memory / 4 { self.spill() } else { Ok(()) }
    }

    /// Writes the rows in memory of all buckets to disk.
    fn spill(&mut self) -> Result<()> {
        let io = |e| Error::io(&self.path, e);
        let folder = if let Some(folder) = &self.folder {
            folder
        } else {
            self.folder.insert(TemporaryFolder::beside(&self.path).map_err(io)?)
        };
        for bucket in self.open.iter_mut().chain(&mut self.closed).filter(|bucket| !bucket.buffer.is_empty())
        {
            let file = bucket.file.get_or_insert_with(|| {
                self.n_files += 1;
                folder.path().join(self.n_files.to_string())
            });
            let mut to = OpenOptions::new().create(true).append(true).open(file).map_err(io)?;
            Out(&mut to).write_all(&bucket.buffer).map_err(io)?;
            pages::drop_written(&to);
            if self.writing {
                bucket.buffer = Vec::new();
            } else {
                bucket.buffer.clear();
            }
        }
        self.buffered = 0;
        Ok(())
    }

    /// Writes the next bucket and returns its number of rows; `None` when all are written.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Memory`], [`Error::Interrupted`]; the shuffler cannot be used after an error.
    ///
    /// ```
    /// # use shoal::{Executor, data::{Dtype, Shuffler}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// let mut rows = Shuffler::create(&path, Dtype::U8, 1, Some(2), 0, 1 << 20).unwrap();
    /// rows.push(&[1, 2]).unwrap();
    /// let cx = Executor::new(None).unwrap();
    /// assert_eq!((rows.write_some(&cx).unwrap(), rows.write_some(&cx).unwrap()), (Some(2), None));
    /// ```
    pub fn write_some(&mut self, cx: &Executor) -> Result<Option<u64>> {
        if !self.writing {
            self.writing = true;
            // If not all rows fit, the memory is needed for sorting.
            if self.folder.is_some() {
                self.spill()?;
                self.open.iter_mut().for_each(|bucket| bucket.buffer = Vec::new());
            }
            self.closed = std::mem::take(&mut self.open);
            self.closed.reverse();
            self.request_next();
        }
        cx.check()?;
        let Some(mut bucket) = self.closed.pop() else { return Ok(None) };
        self.buffered -= bucket.buffer.len() as u64;
        let rows = bucket.rows;
        if bucket.width > 1 && rows.saturating_mul(held(self.row)) > self.memory / 2 {
            self.deal_again(bucket, cx)?;
            return Ok(Some(0));
        }
        self.request_next();
        let (path, size) = (&self.path, KEY + self.row);
        let Sorted { records: all, order } = &mut self.sorted;
        all.clear();
        order.clear();
        let no_room = |_| Error::Memory(format!("shuffling {rows} rows"));
        all.try_reserve_exact(rows as usize * size).map_err(no_room)?;
        order.try_reserve_exact(rows as usize).map_err(no_room)?;
        if let Some(file) = bucket.file.take() {
            File::open(&file).and_then(|mut file| file.read_to_end(all)).map_err(|e| Error::io(path, e))?;
            fs::remove_file(&file).map_err(|e| Error::io(path, e))?;
        }
        all.append(&mut bucket.buffer);
        order.extend(all.chunks_exact(size).enumerate().map(|(i, record)| (key_of(record), i)));
        order.sort_unstable();
        for some in order.chunks(WRITTEN_ROWS) {
            cx.check()?;
            for &(_, i) in some {
                self.writer.append(&all[i * size + KEY..(i + 1) * size])?;
            }
        }
        Ok(Some(rows))
    }

    /// Requests the file of the next bucket, which is read while this one is sorted and written.
    fn request_next(&self) {
        if let Some(file) = self.closed.last().and_then(|bucket| bucket.file.as_deref()) {
            pages::request(file);
        }
    }

    /// Splits a bucket that is too large into smaller buckets.
    fn deal_again(&mut self, mut bucket: Bucket, cx: &Executor) -> Result<()> {
        // The smaller buckets take the memory of the sorted rows.
        self.sorted = Sorted::default();
        let io = |e| Error::io(&self.path, e);
        let size = KEY + self.row;
        let parts = (bucket.rows.saturating_mul(held(self.row))).div_ceil(self.memory / 4).min(MOST_PARTS);
        let parts = parts.clamp(2, MOST_PARTS).min(u64::try_from(bucket.width).unwrap_or(u64::MAX));
        let file = bucket.file.take();
        let mut from: Box<dyn Read> = match &file {
            Some(file) => Box::new(BufReader::with_capacity(1 << 18, File::open(file).map_err(io)?)),
            None => Box::new(io::empty()),
        };
        let buffer = std::mem::take(&mut bucket.buffer);
        self.open = cut(bucket.low, bucket.width, parts);
        let part_of = |key: u64| (u128::from(key - bucket.low) * u128::from(parts) / bucket.width) as usize;
        let on_disk = bucket.rows - (buffer.len() / size) as u64;
        let mut record = vec![0; size];
        for i in 0..on_disk {
            if i.is_multiple_of(WRITTEN_ROWS as u64) {
                cx.check()?;
            }
            from.read_exact(&mut record).map_err(|e| Error::io(&self.path, e))?;
            self.deal(part_of(key_of(&record)), &record[..KEY], &record[KEY..])?;
        }
        for record in buffer.chunks_exact(size) {
            self.deal(part_of(key_of(record)), &record[..KEY], &record[KEY..])?;
        }
        drop(from);
        if let Some(file) = file {
            fs::remove_file(&file).map_err(|e| Error::io(&self.path, e))?;
        }
        self.closed.extend(std::mem::take(&mut self.open).into_iter().rev());
        Ok(())
    }

    /// Writes the remaining rows, renames the file, and returns the number of rows.
    ///
    /// # Errors
    /// Those of [`Shuffler::write_some`] and [`Writer::finish`]; no file is left then.
    ///
    /// ```
    /// # use shoal::{Executor, data::{Dtype, Shuffler}};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// let rows = Shuffler::create(&path, Dtype::U8, 1, None, 0, 1 << 20).unwrap();
    /// assert_eq!(rows.finish(&Executor::new(None).unwrap()).unwrap(), 0);
    /// ```
    pub fn finish(mut self, cx: &Executor) -> Result<u64> {
        while self.write_some(cx)?.is_some() {}
        self.writer.finish()
    }
}

/// Advice to the system on its cache of files; everything works without it.
#[cfg(all(target_os = "linux", not(miri)))]
mod pages {
    use std::fs::File;
    use std::num::NonZeroU64;
    use std::path::Path;

    use rustix::fs::{Advice, fadvise};

    /// Bytes per request, which Linux cuts to the limit of the device.
    const PART: u64 = 1 << 20;

    /// Begins to write what is in the cache, and drops what is on disk: the memory goes to the next rows.
    pub(super) fn drop_written(file: &File) {
        let _ = fadvise(file, 0, None, Advice::DontNeed);
    }

    /// Begins to read a file.
    pub(super) fn request(path: &Path) {
        let Ok(file) = File::open(path) else { return };
        let length = file.metadata().map_or(0, |found| found.len());
        for at in (0..length).step_by(PART as usize) {
            let _ = fadvise(&file, at, NonZeroU64::new(PART), Advice::WillNeed);
        }
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod pages {
    use std::fs::File;
    use std::path::Path;

    pub(super) fn drop_written(_file: &File) {}
    pub(super) fn request(_path: &Path) {}
}

/// Bytes of memory that a row of `row` bytes takes while its bucket is sorted.
fn held(row: usize) -> u64 {
    (row as u64).saturating_add(KEY as u64 + SORTED)
}

fn key_of(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[..KEY].try_into().expect("a key is eight bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{DataSource, npy};
    use super::*;

    /// The rows `0..n` of one `u16` each, shuffled.
    fn shuffled(n: u16, seed: u64, memory: u64, told: bool, piece: usize) -> Vec<u16> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let mut rows =
            Shuffler::create(&path, Dtype::U16, 1, told.then_some(u64::from(n)), seed, memory).unwrap();
        let bytes: Vec<u8> = (0..n).flat_map(u16::to_le_bytes).collect();
        bytes.chunks(2 * piece).for_each(|piece| rows.push(piece).unwrap());
        let cx = Executor::new(Some(1)).unwrap();
        assert_eq!(rows.finish(&cx).unwrap(), u64::from(n));
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["x.npy"], "nothing else is left");
        let mut found = Vec::<f32>::new();
        if n > 0 {
            npy::open(&path).unwrap().gather(&(0..u64::from(n)).collect::<Vec<_>>(), &mut found).unwrap();
        }
        found.into_iter().map(|x| x as u16).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn the_order_is_one_of_all_rows_and_depends_on_the_seed_alone(
            n in 0u16..400, seed in any::<u64>(), memory in 1u64..9000, told in any::<bool>(), piece in 1usize..50,
        ) {
            let order = shuffled(n, seed, memory, told, piece);
            prop_assert_eq!(&order, &shuffled(n, seed, 1 << 30, true, 1000));
            let mut sorted = order;
            sorted.sort_unstable();
            prop_assert!(sorted.into_iter().eq(0..n));
        }
    }

    #[test]
    fn every_order_is_equally_likely() {
        // Several buckets of one or two rows each.
        let seeds = 24 * 30u64;
        let mut seen = std::collections::BTreeMap::new();
        for seed in 0..seeds {
            *seen.entry(shuffled(4, seed, 200, true, 3)).or_insert(0.0f64) += 1.0;
        }
        assert_eq!(seen.len(), 24);
        let chi_squared: f64 = seen.values().map(|c| (c - 30.0).powi(2) / 30.0).sum();
        // Six standard deviations above the mean of 23 degrees of freedom.
        assert!(chi_squared < 64.0, "{seen:?}");
    }

    #[test]
    fn nothing_is_left_of_what_was_not_finished() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let mut rows = Shuffler::create(&path, Dtype::U8, 100, None, 0, 1000).unwrap();
        rows.push(&[1; 5000]).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "a folder and a file");
        let cx = Executor::new(Some(1)).unwrap();
        rows.write_some(&cx).unwrap();
        assert!(rows.push(&[1; 100]).is_err());
        cx.interrupt().set();
        assert!(matches!(rows.finish(&cx), Err(Error::Interrupted)));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn every_fault_leaves_the_old_file() {
        crate::whole_file::faults::check_every_fault(|path| {
            let mut rows = Shuffler::create(path, Dtype::U8, 100, None, 0, 1000)?;
            rows.push(&[1; 5000])?;
            rows.finish(&Executor::new(Some(1)).unwrap()).map(drop)
        });
    }
}
