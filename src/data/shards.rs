//! Many mapped files as one source.

use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::any::stored;
use super::raw::{Leave, OpenFiles, Pattern, Place, due, reads_ahead, scarce, suffix_of};
use super::{
    Access, AnySource, Block, DataSource, Dtype, Mapped, Origin, Source, Tile, TileReader, Visit, Wanted,
    bin, check_rows, npy, vecs,
};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::make_room;
use crate::rows::RowBuf;

/// The rows of many files in the order given, as one source with random access.
///
/// Results are bit-identical to those of one file with the same rows. Files need not have the same number of
/// rows, and may have none. All must have the same number of columns and the same stored type.
///
/// Opening reads the header of every file. A file is mapped when a row of it is first read, and stays mapped. The
/// number of open file descriptors is bounded for any number of files: 256, but at most a quarter of the limit of the
/// process (64 where that limit is not known). The operating system limits the number of mapped files (Linux: about
/// 65,000 per process).
///
/// Every pass compares the files that it reads with the files that were opened: their length, their time of
/// modification, and on Unix their identity. A file that was changed, replaced or removed is an error that names the
/// file. [`DataSource::gather`] checks the length of a file that is open, and compares any other file as a pass does.
/// What [`Mapped`] says of files that change during a pass applies too.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::KMeans;
/// use shoal::data::{Dtype, DataSource, Shards, npy};
/// # let folder = tempfile::tempdir().unwrap();
/// let paths = ["part-0.npy", "part-1.npy"].map(|name| folder.path().join(name));
/// for (path, rows) in paths.iter().zip([&[1.0f32, 2.0][..], &[3.0, 4.0, 5.0]]) {
///     let mut writer = npy::Writer::create(path, Dtype::F32, 1)?;
///     writer.append_values(rows)?;
///     writer.finish()?;
/// }
/// let rows = Shards::open(&paths)?;
/// assert_eq!(DataSource::<f32>::rows(&rows), Some(5));
/// assert_eq!(KMeans::params(1).fit(&rows)?.centers::<f32>(), [3.0]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Shards {
    files: Arc<Files>,
    /// The rows of this source among those of all files.
    rows: Range<u64>,
    /// What the last pass that began leaves in the cache.
    leave: Arc<Mutex<Option<Leave>>>,
}

#[derive(Debug)]
struct Files {
    shards: Vec<Shard>,
    /// The first row of every file, and the row after the last one.
    starts: Vec<u64>,
    dtype: Dtype,
    cols: usize,
    open: Arc<OpenFiles>,
}

#[derive(Debug)]
struct Shard {
    place: Place,
    mapped: OnceLock<Mapped>,
}

/// Files that become one source, one at a time.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    shards: Vec<Shard>,
    starts: Vec<u64>,
    end: u64,
}

impl Gathered {
    /// Adds a file.
    ///
    /// # Errors
    /// [`Error::Format`], which names both files, if its type or number of columns differs from the first file's.
    pub(crate) fn push(&mut self, rows: &Mapped) -> Result<()> {
        let place = Place::of(rows)?;
        let layout = place.layout();
        if let Some(first) = self.shards.first() {
            let known = first.place.layout();
            if (known.cols, known.dtype) != (layout.cols, layout.dtype) {
                let problem = format!(
                    "has {} columns of {}, unlike {}, which has {} columns of {}",
                    layout.cols,
                    layout.dtype,
                    first.place.path().display(),
                    known.cols,
                    known.dtype
                );
                return Err(Error::format(place.path(), problem));
            }
        }
        self.starts.push(self.end);
        self.end = self
            .end
            .checked_add(layout.rows as u64)
            .filter(|&rows| isize::try_from(rows).is_ok())
            .ok_or_else(|| Error::format(place.path(), "has more rows than this machine can count"))?;
        self.shards.push(Shard { place, mapped: OnceLock::new() });
        Ok(())
    }

    /// The source.
    ///
    /// # Errors
    /// [`Error::Empty`] without a file, or without a row in all files.
    pub(crate) fn finish(mut self) -> Result<Shards> {
        let Some(first) = self.shards.first() else {
            return Err(Error::Empty("a source of many files needs at least 1 file, got 0".into()));
        };
        let layout = first.place.layout();
        if self.end == 0 {
            return Err(Error::Empty(format!(
                "`rows` must have at least 1 row, got {} files without rows",
                self.shards.len()
            )));
        }
        self.starts.push(self.end);
        let files = Files {
            open: Arc::new(OpenFiles::new(self.shards.len())),
            shards: self.shards,
            starts: self.starts,
            dtype: layout.dtype,
            cols: layout.cols,
        };
        Ok(Shards { files: Arc::new(files), rows: 0..self.end, leave: Arc::default() })
    }
}

impl Shards {
    /// Opens files by the suffix of their names: `.npy`, `.fvecs`, `.bvecs`, `.ivecs`, `.fbin`, `.u8bin`, `.i8bin`,
    /// `.ibin`.
    ///
    /// # Errors
    /// Those of [`npy::open`], [`vecs::open`] and [`bin::open`]; [`Error::Format`], which names the file, for another
    /// suffix, number of columns or type; [`Error::Empty`] without files or without rows.
    ///
    /// ```
    /// use shoal::data::Shards;
    /// assert!(Shards::open(["rows.txt"]).unwrap_err().to_string().starts_with("rows.txt: "));
    /// ```
    pub fn open<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<Self> {
        Self::of(paths.into_iter().map(|path| open_shard(path.as_ref())))
    }

    /// Makes one source of open files. Each is closed before the next one is taken from `files`, and mapped again
    /// when it is read.
    ///
    /// # Errors
    /// Those of `files`, and as [`Shards::open`].
    ///
    /// ```
    /// # fn main() -> shoal::Result<()> {
    /// use shoal::data::{DataSource, Dtype, Shards, raw};
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("rows.u8");
    /// std::fs::write(&path, [1, 2, 3, 4, 5, 6]).unwrap();
    /// let twice = [0, 1].map(|_| raw::open(&path, Dtype::U8, 2, 3, 0));
    /// let mut found = Vec::<f32>::new();
    /// Shards::of(twice)?.gather(&[3], &mut found)?;
    /// assert_eq!(found, [4.0, 5.0, 6.0]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn of(files: impl IntoIterator<Item = Result<Mapped>>) -> Result<Self> {
        let mut gathered = Gathered::default();
        for file in files {
            gathered.push(&file?)?;
        }
        gathered.finish()
    }

    /// The type of the stored values.
    ///
    /// ```no_run
    /// let rows = shoal::data::Shards::open(["a.npy", "b.npy"]).unwrap();
    /// assert_eq!(rows.dtype(), shoal::data::Dtype::F32);
    /// ```
    pub fn dtype(&self) -> Dtype {
        self.files.dtype
    }

    /// The paths of the files, in order.
    ///
    /// ```no_run
    /// let rows = shoal::data::Shards::open(["a.npy", "b.npy"]).unwrap();
    /// assert_eq!(rows.paths().count(), 2);
    /// ```
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.shards.iter().map(|shard| shard.place.path())
    }

    /// Consecutive rows as a source, numbered from 0. Unlike [`RowRange`](super::RowRange), a pass over them does not
    /// open the files before.
    ///
    /// # Errors
    /// [`Error::Shape`] for a range that does not lie within the rows.
    ///
    /// ```no_run
    /// use shoal::data::{DataSource, Shards};
    /// let rows = Shards::open(["a.npy", "b.npy"]).unwrap();
    /// assert_eq!(DataSource::<f32>::rows(&rows.slice(10..15).unwrap()), Some(5));
    /// ```
    pub fn slice(&self, rows: Range<u64>) -> Result<Self> {
        let all = self.len();
        if rows.start > rows.end || rows.end > all {
            return Err(Error::Shape(format!("rows {rows:?} do not lie within 0..{all}")));
        }
        let first = self.rows.start;
        let rows = first + rows.start..first + rows.end;
        Ok(Self { files: self.files.clone(), rows, leave: Arc::default() })
    }

    fn len(&self) -> u64 {
        self.rows.end - self.rows.start
    }

    /// Bytes of all stored rows.
    fn bytes(&self) -> usize {
        (self.len() as usize).saturating_mul(self.files.row_bytes())
    }

    /// What the last pass leaves in the cache; before the first one, what it would leave.
    fn left(&self) -> Result<Leave> {
        let mut leave = self.leave.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(match *leave {
            Some(leave) => leave,
            None => *leave.insert(Leave::new(self.bytes(), 0)?),
        })
    }

    /// A pass from row `first` on, in tiles of `tile_rows`.
    fn pass(&self, first: u64, tile_rows: usize) -> Result<ShardBlock<'_>> {
        let leave = Leave::new(self.bytes(), tile_rows.saturating_mul(self.files.row_bytes()))?;
        *self.leave.lock().unwrap_or_else(PoisonError::into_inner) = Some(leave);
        let seen = std::iter::repeat_with(AtomicBool::default).take(self.files.shards.len()).collect();
        Ok(ShardBlock { files: &self.files, first: self.rows.start + first, end: self.rows.end, seen, leave })
    }

    /// The stored bytes of the rows `rows`, row by row.
    ///
    /// # Errors
    /// Those of reading.
    #[cfg(feature = "python")]
    pub(crate) fn copy_bytes(&self, rows: Range<usize>) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        make_room(&mut out, "copied rows", rows.len() as u64, self.files.row_bytes())?;
        let from = self.rows.start;
        for part in self.files.parts(from + rows.start as u64..from + rows.end as u64) {
            let mapped = self.files.checked(part.shard)?;
            mapped.check_leads(part.rows.clone())?;
            out.extend_from_slice(&mapped.view().copy_bytes(part.rows)?);
        }
        Ok(out)
    }
}

/// Opens a file, which may have no rows, by its suffix.
pub(crate) fn open_shard(path: &Path) -> Result<Mapped> {
    match &*suffix_of(path) {
        "npy" => npy::open_shard(path),
        "fvecs" | "bvecs" | "ivecs" => vecs::open(path),
        "fbin" | "u8bin" | "i8bin" | "ibin" => bin::open_shard(path),
        _ => Err(Error::format(
            path,
            "must end in .npy, .fvecs, .bvecs, .ivecs, .fbin, .u8bin, .i8bin or .ibin",
        )),
    }
}

/// Consecutive rows of one file.
struct ShardRows {
    shard: usize,
    rows: Range<usize>,
}

impl Files {
    /// The file of a row, which must exist.
    fn shard_of(&self, row: u64) -> usize {
        // Files without rows begin at the same row as the next one.
        self.starts.partition_point(|&start| start <= row) - 1
    }

    /// Bytes of a stored row.
    fn row_bytes(&self) -> usize {
        self.cols * self.dtype.size()
    }

    /// What is left of a file, of rows from `first` on.
    fn left_of(&self, shard: usize, first: u64, leave: Leave) -> Leave {
        leave.after((self.starts[shard].saturating_sub(first) as usize).saturating_mul(self.row_bytes()))
    }

    /// Cuts rows at the ends of the files.
    fn parts(&self, rows: Range<u64>) -> impl Iterator<Item = ShardRows> {
        let mut at = rows.start;
        std::iter::from_fn(move || {
            if at >= rows.end {
                return None;
            }
            let shard = self.shard_of(at);
            let (start, end) = (self.starts[shard], self.starts[shard + 1].min(rows.end));
            let part = ShardRows { shard, rows: (at - start) as usize..(end - start) as usize };
            at = end;
            Some(part)
        })
    }

    /// A file, which is mapped if it has not been.
    fn mapped(&self, shard: usize) -> Result<&Mapped> {
        let Shard { place, mapped } = &self.shards[shard];
        if let Some(mapped) = mapped.get() {
            return Ok(mapped);
        }
        let opened = place.map(&self.open, shard)?;
        // Another thread may have mapped it in the meantime.
        Ok(mapped.get_or_init(|| opened))
    }

    /// As [`Files::mapped`], after a check that the file is still the one that was opened.
    fn checked(&self, shard: usize) -> Result<&Mapped> {
        let mapped = self.mapped(shard)?;
        self.shards[shard].place.check()?;
        Ok(mapped)
    }
}

/// The rows of one pass: a single block.
struct ShardBlock<'a> {
    files: &'a Files,
    /// The first row of the block, and the row after the last, among those of all files.
    first: u64,
    end: u64,
    /// Which files the pass has read.
    seen: Vec<AtomicBool>,
    leave: Leave,
}

impl ShardBlock<'_> {
    /// The rows `rows` of the block among those of all files.
    fn of_all(&self, rows: &Range<usize>) -> Range<u64> {
        let found = self.first + rows.start as u64..self.first + rows.end as u64;
        assert!(rows.start <= rows.end && found.end <= self.end, "rows {rows:?} are not in the block");
        found
    }

    /// A file; the first time in the pass, after a check that it is still the one that was opened.
    fn file(&self, shard: usize) -> Result<&Mapped> {
        if self.seen[shard].swap(true, Ordering::Relaxed) {
            return self.files.mapped(shard);
        }
        let mapped = self.files.checked(shard)?;
        mapped.advise(Pattern::Sequential);
        Ok(mapped)
    }

    /// Requests rows that will be read soon, also of the next files.
    fn read_ahead(&self, rows: &Range<usize>) {
        let stride = self.files.row_bytes();
        let Some(due) = due(rows.start * stride..rows.end * stride, rows.start == 0) else { return };
        let row = |byte: usize| self.end.min(self.first + (byte / stride) as u64);
        let behind = Some(self.leave.behind(&due)).filter(|behind| !behind.is_empty());
        for part in behind.into_iter().flat_map(|b| self.files.parts(row(b.start)..row(b.end))) {
            if let Ok(mapped) = self.files.mapped(part.shard) {
                mapped.drop_rows(part.rows);
            }
        }
        for part in self.files.parts(row(due.start)..row(due.end + stride - 1)) {
            // An error belongs to the tile that reads the file.
            if let Ok(mapped) = self.files.mapped(part.shard) {
                mapped.request_rows(part.rows);
            }
        }
    }

    /// The only part of some rows, if they lie in one file.
    fn only_part(&self, rows: &Range<usize>) -> Option<ShardRows> {
        let mut parts = self.files.parts(self.of_all(rows));
        parts.next().filter(|part| part.rows.len() == rows.len())
    }

    /// Copies rows of any number of files.
    fn collect<T: Float>(&self, rows: &Range<usize>, buffer: &mut RowBuf<T>) -> Result<()> {
        let mut rest = buffer.room(rows.len(), self.files.cols);
        for part in self.files.parts(self.of_all(rows)) {
            let (these, others) = rest.split_at_mut(part.rows.len() * self.files.cols);
            self.file(part.shard)?.read_into(&part.rows, these)?;
            rest = others;
        }
        Ok(())
    }
}

impl<T: Float> TileReader<T> for ShardBlock<'_> {
    fn read(&self, wanted: Wanted<'_>, buffer: &mut RowBuf<T>) -> Result<Option<Tile<'_, T>>> {
        let (reads_ahead, all) = (reads_ahead(&wanted), wanted.rows.clone());
        let Some(ShardRows { shard, rows }) = self.only_part(&all) else {
            if reads_ahead {
                self.read_ahead(&all);
            }
            self.collect(&all, buffer)?;
            return Ok(Some(Tile::Copied));
        };
        let (file, wanted) = (self.file(shard)?, Wanted { rows, ..wanted });
        if !file.read_few(&wanted, buffer, Some(self.files.left_of(shard, self.first, self.leave)))? {
            if reads_ahead {
                self.read_ahead(&all);
            }
            return file.read(&wanted, buffer).map(Some);
        }
        Ok(Some(Tile::Copied))
    }
}

impl<T: Float> DataSource<T> for Shards {
    fn dim(&self) -> usize {
        self.files.cols
    }
    fn rows(&self) -> Option<u64> {
        Some(self.len())
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn always_finite(&self) -> bool {
        !self.files.dtype.is_float()
    }
    fn scarce_memory(&self) -> Option<u64> {
        scarce(self.bytes())
    }
    fn origin(&self, row: u64, _column: usize) -> Origin {
        let mut parts = self.files.parts(self.rows.start + row..self.rows.end);
        let named = |part: ShardRows| {
            let path = self.files.shards[part.shard].place.path();
            (path.to_owned(), part.rows.start as u64)
        };
        Origin { file: parts.next().map(named), stored: None }
    }
    fn for_each_block(&self, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        self.for_each_block_from(0, tile_rows, f)
    }
    fn for_each_block_from(&self, row: u64, tile_rows: usize, f: &mut Visit<'_, T>) -> Result<()> {
        let len = self.len().saturating_sub(row) as usize;
        if len > 0 {
            // No block follows: it does not matter whether `f` ends the pass.
            let _ = f(Block { first_row: row, len, rows: &self.pass(row, tile_rows)?, weights: None })?;
        }
        Ok(())
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let (n, cols) = (self.len(), self.files.cols);
        check_rows(rows, n)?;
        let before = out.len();
        make_room(out, "copied rows", rows.len() as u64, cols)?;
        let found = if rows.is_sorted() { self.append(rows, out) } else { self.scatter(rows, out) };
        if found.is_err() {
            out.truncate(before);
        }
        found
    }
}

impl Shards {
    /// Appends rows in ascending order, file by file.
    fn append<T: Float>(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let leave = self.left()?;
        let mut rest = rows;
        while let Some(&row) = rest.first() {
            let shard = self.files.shard_of(self.rows.start + row);
            let (start, end) = (self.files.starts[shard], self.files.starts[shard + 1]);
            let (these, others) = rest.split_at(rest.partition_point(|&row| self.rows.start + row < end));
            let these: Vec<u64> = these.iter().map(|&row| self.rows.start + row - start).collect();
            let mapped = self.files.mapped(shard)?;
            mapped.check_cheaply()?;
            if !mapped.gather_directly(
                &these,
                out,
                Some(self.files.left_of(shard, self.rows.start, leave)),
            )? {
                mapped.append(&these, out)?;
            }
            rest = others;
        }
        Ok(())
    }

    /// Appends rows in any order; each file is looked at once.
    fn scatter<T: Float>(&self, rows: &[u64], out: &mut Vec<T>) -> Result<()> {
        let cols = self.files.cols;
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by_key(|&i| rows[i]);
        let before = out.len();
        out.resize(before + rows.len() * cols, T::ZERO);
        let (mut wanted, mut copied) = (Vec::new(), Vec::new());
        for some in order.chunks((SCATTERED / cols).max(1)) {
            wanted.clear();
            copied.clear();
            wanted.extend(some.iter().map(|&i| rows[i]));
            self.append(&wanted, &mut copied)?;
            for (&i, row) in some.iter().zip(copied.chunks_exact(cols)) {
                out[before + i * cols..][..cols].copy_from_slice(row);
            }
        }
        Ok(())
    }
}

/// Values that are copied at a time before each row gets its place.
const SCATTERED: usize = 1 << 16;

impl Source for Shards {
    fn any(&self) -> AnySource<'_> {
        stored(self, self.files.dtype)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::super::{Dense, npy::Writer};
    use super::*;

    /// Files of rows of two columns that count up, with the given numbers of rows.
    fn files(folder: &Path, lengths: &[usize]) -> Vec<std::path::PathBuf> {
        let mut next = 0.0f32;
        let mut write = |(i, &rows): (usize, &usize)| {
            let path = folder.join(format!("{i:03}.npy"));
            let mut writer = Writer::create(&path, Dtype::F32, 2).unwrap();
            let values: Vec<f32> = (0..2 * rows).map(|i| next + i as f32).collect();
            next += values.len() as f32;
            writer.append_values(&values).unwrap();
            writer.finish().unwrap();
            path
        };
        lengths.iter().enumerate().map(&mut write).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn rows_are_those_of_one_file(
            lengths in prop::collection::vec(prop_oneof![0usize..3, 0usize..40], 1..9), from in 0.0..1.0, to in 0.0..1.0,
            tile in 1usize..30, picks in prop::collection::vec(0.0..1.0, 0..30), ascending in any::<bool>(),
        ) {
            let all: usize = lengths.iter().sum();
            prop_assume!(all > 0);
            let folder = tempfile::tempdir().unwrap();
            let opened = Shards::open(files(folder.path(), &lengths)).unwrap();
            let at = |share: f64| (share * all as f64) as u64;
            let (from, to) = (at(f64::min(from, to)), at(f64::max(from, to)) + 1);
            let n = (to - from) as usize;
            let part = opened.slice(from..to).unwrap();
            let values: Vec<f32> = (0..2 * all).map(|i| i as f32).collect();
            let expected = &values[2 * from as usize..2 * to as usize];
            for start in [0, n / 2, n] {
                let mut rows = start;
                let mut read = |block: Block<'_, f32>| {
                    assert_eq!((block.first_row as usize, block.len), (start, n - start));
                    for first in (0..block.len).step_by(tile) {
                        let rows = first..block.len.min(first + tile);
                        let expected = &expected[2 * (start + rows.start)..2 * (start + rows.end)];
                        let found = block.rows.tile(rows.clone(), &mut Vec::new())?.iter().flatten().copied().collect::<Vec<_>>();
                        assert_eq!(found, expected);
                        assert_eq!(block.rows.copy_tile(rows.clone(), &mut Vec::new())?, expected);
                        let last = rows.len() as u32 - 1;
                        assert_eq!(block.rows.tile_of(rows, &[last], &mut Vec::new())?.row(last as usize), &expected[expected.len() - 2..]);
                    }
                    rows += block.len;
                    Ok(ControlFlow::Continue(()))
                };
                part.for_each_block_from(start as u64, tile, &mut read).unwrap();
                prop_assert_eq!(rows, n);
            }
            let mut picks: Vec<u64> = picks.iter().map(|share| (share * n as f64) as u64).collect();
            if ascending {
                picks.sort_unstable();
            }
            let (mut found, mut same) = (vec![7.0], vec![7.0]);
            part.gather(&picks, &mut found).unwrap();
            Dense::new(expected, 2).unwrap().gather(&picks, &mut same).unwrap();
            prop_assert_eq!(found, same);
            prop_assert!(DataSource::<f32>::gather(&part, &[n as u64], &mut Vec::new()).is_err());
            prop_assert!(part.slice(0..n as u64 + 1).is_err());
        }
    }

    #[test]
    fn single_rows_of_files_that_do_not_stay_in_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let all = Shards::open(files(folder.path(), &[5000, 10, 9000, 5000])).unwrap();
        let (first, n) = (1000, 15_000);
        // Nothing stays, half of the first file, or the first two and a half files.
        for kept in [0, 8 * 2000, 8 * 8000] {
            let part = all.slice(first..first + n).unwrap();
            *part.leave.lock().unwrap() = Some(Leave::of(kept));
            for step in [1, 2, 7, 300] {
                let mut rows: Vec<u64> = (0..n).step_by(step).collect();
                for _ in 0..2 {
                    let mut found: Vec<f32> = vec![7.0];
                    part.gather(&rows, &mut found).unwrap();
                    let first_values: Vec<f32> = rows.iter().map(|&row| 2.0 * (first + row) as f32).collect();
                    assert!(found[1..].iter().step_by(2).eq(&first_values), "{kept} {step}");
                    rows.reverse();
                }
                let pass = part.slice(0..n).unwrap();
                let pass = ShardBlock { leave: Leave::of(kept), ..pass.pass(0, 2048).unwrap() };
                for start in (0..n as usize).step_by(2048) {
                    let tile = start..(start + 2048).min(n as usize);
                    let picked: Vec<u32> = (0..tile.len() as u32).step_by(step).collect();
                    let mut scratch = Vec::<f32>::new();
                    let found = pass.tile_of(tile.clone(), &picked, &mut scratch).unwrap();
                    let value = |r: u32| 2.0 * (first as usize + start + r as usize) as f32;
                    assert!(picked.iter().all(|&r| found.row(r as usize) == [value(r), value(r) + 1.0]));
                }
            }
        }
    }

    #[test]
    fn few_descriptors_serve_many_files() {
        let folder = tempfile::tempdir().unwrap();
        // Large enough for a check of the length in the middle.
        let paths = files(folder.path(), &[40_000; 8]);
        let opened = Shards::open(paths.iter().cycle().take(600)).unwrap();
        let threads: Vec<u64> = (0..4).collect();
        std::thread::scope(|scope| {
            for &thread in &threads {
                let opened = &opened;
                scope.spawn(move || {
                    let pass = opened.pass(0, 1).unwrap();
                    for file in 0..600 {
                        let start = 40_000 * ((file + 150 * thread as usize) % 600);
                        let rows = start + 39_000..start + 41_000.min(40_000 * 600 - start);
                        let first = ((start + 39_000) % 320_000) as f32 * 2.0;
                        assert_eq!(
                            TileReader::<f32>::tile(&pass, rows, &mut Vec::new()).unwrap().row(0)[0],
                            first
                        );
                    }
                });
            }
        });
        assert!(opened.files.open.count() <= 128);
    }

    #[test]
    fn a_value_that_is_not_finite_names_its_file() {
        use crate::data::{Normalized, RowRange, check_finite};
        use crate::parallel::Executor;

        let folder = tempfile::tempdir().unwrap();
        let paths = files(folder.path(), &[5, 0, 7, 4]);
        let mut bytes = fs::read(&paths[2]).unwrap();
        let at = bytes.len() - 4 * (7 * 2) + 4 * (2 * 3 + 1);
        bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
        fs::write(&paths[2], bytes).unwrap();
        let rows = Shards::open(&paths).unwrap();
        let cx = Executor::new(Some(1)).unwrap();
        let text = |source: &dyn DataSource<f32>| check_finite(source, &cx).unwrap_err().to_string();
        let place = |row: u64| {
            let name = paths[2].display();
            format!("rows must be finite, got NaN at row {row}, column 1 (row 3 of {name})")
        };
        assert_eq!(text(&rows), place(8));
        assert_eq!(text(&rows.slice(6..12).unwrap()), place(2));
        assert_eq!(text(&RowRange::new::<f32>(&rows, 7..9).unwrap()), place(1));
        assert!(
            text(&Normalized::new::<f32>(&rows)).ends_with(&format!("(row 3 of {})", paths[2].display()))
        );
    }

    #[test]
    fn files_that_do_not_belong_together_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let [one, other, empty] =
            ["one.npy", "other.npy", "empty.fvecs"].map(|name| folder.path().join(name));
        for (path, columns) in [(&one, 2), (&other, 3)] {
            let mut writer = Writer::create(path, Dtype::U8, columns).unwrap();
            writer.append_values(&vec![1u8; columns]).unwrap();
            writer.finish().unwrap();
        }
        fs::write(&empty, []).unwrap();
        let text = |paths: &[&Path]| Shards::open(paths).unwrap_err().to_string();
        assert_eq!(
            text(&[&one, &one, &other]),
            format!(
                "{}: has 3 columns of uint8, unlike {}, which has 2 columns of uint8",
                other.display(),
                one.display()
            )
        );
        assert!(text(&[&one, &empty]).ends_with("empty.fvecs: is empty"));
        assert_eq!(text(&[]), "a source of many files needs at least 1 file, got 0");
    }
}
