//! From pairs of rows to groups, and the row that each group keeps.
//!
//! Rows are numbered by rank: their place in the order of [`Keep`]. A pair is the later rank in the high half of an
//! integer and the earlier one in the low half, so sorted pairs come in the order in which rows are decided.

use crate::kernel::Compute;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Write};

use super::cells::Cells;
use super::identical::Distinct;
use crate::error::{Error, Result};
use crate::matrix::make_room;
use crate::names::names;
use crate::parallel::Executor;
use crate::persist::state::StateReader;

/// Which row of a group of duplicates is kept: the first in this order. Rows of weight 0 come last in any order.
///
/// ```
/// use shoal::curation::Keep;
/// assert_eq!("nearest-to-center".parse::<Keep>().ok(), Some(Keep::NearestToCenter));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Keep {
    /// The default: the order of the rows.
    #[default]
    First,
    /// The distance to the center of the row's cell, ascending: typical rows are kept.
    NearestToCenter,
    /// The distance to the center of the row's cell, descending: unusual rows are kept, as in `SemDeDup`.
    FarthestFromCenter,
}

names! {
    Keep("keep") {
        First = "first",
        NearestToCenter = "nearest-to-center",
        FarthestFromCenter = "farthest-from-center",
    }
}

/// How pairs become groups of duplicates.
///
/// ```
/// use shoal::curation::{Deduplication, Linkage};
/// // A chain: neighbors are within 1, the ends are not.
/// let rows = [[0.0f64], [0.9], [1.8]];
/// let kept = |linkage| Deduplication::within(1.0).linkage(linkage).find(&rows).unwrap().kept();
/// assert_eq!(kept(Linkage::Leader), [0, 2]);
/// assert_eq!(kept(Linkage::Components), [0]);
/// assert_eq!(kept(Linkage::SemDeDup), [0]);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Linkage {
    /// The default: in order, a row is kept unless it is within the distance of a kept row. Kept rows are farther
    /// than the distance from each other, and every removed row is within it of its representative.
    #[default]
    Leader,
    /// Connected components of the graph of pairs: keeps one row of each. Chains of near rows are one group.
    Components,
    /// The rule of `SemDeDup`: in order, a row is removed if it is within the distance of any earlier row, kept or
    /// removed.
    SemDeDup,
}

names! {
    Linkage("linkage") {
        Leader = "leader",
        Components = "components",
        SemDeDup = "semdedup",
    }
}

/// The order of the distinct rows: the first row of every group is kept.
#[derive(Debug)]
pub(super) struct Ranks {
    /// The rank per row, and the row per rank. Empty if they are equal.
    of_rows: Vec<u32>,
    rows: Vec<u32>,
    /// The row that stands for the distinct row at a place: the first of its copies that has weight, if any has. Empty
    /// without weights.
    best: Vec<u32>,
}

impl Ranks {
    pub(super) fn new<T: Compute>(
        distinct: &Distinct,
        cells: &Cells<T>,
        keep: Keep,
        weights: Option<&[f64]>,
    ) -> Self {
        let m = cells.labels.len();
        let best: Vec<u32> = weights.map_or_else(Vec::new, |weights| {
            let mut best: Vec<u32> = distinct.rows.iter().map(|&row| row as u32).collect();
            for (row, &weight) in weights.iter().enumerate().rev() {
                let row = row as u32;
                if let Some(place) = distinct.place(row).filter(|_| weight > 0.0) {
                    best[place as usize] = row;
                }
            }
            best
        });
        if keep == Keep::First && weights.is_none() {
            return Self { of_rows: Vec::new(), rows: Vec::new(), best };
        }
        let mut rows: Vec<u32> = (0..m as u32).collect();
        let number = |place: u32| best.get(place as usize).copied().unwrap_or(place);
        let weightless = |place: u32| weights.is_some_and(|weights| weights[number(place) as usize] <= 0.0);
        let key = |place: u32| match keep {
            Keep::First => 0.0,
            Keep::NearestToCenter => cells.sq_dists[place as usize],
            Keep::FarthestFromCenter => -cells.sq_dists[place as usize],
        };
        rows.sort_unstable_by(|&a, &b| {
            let by_weight = weightless(a).cmp(&weightless(b));
            by_weight.then(key(a).total_cmp(&key(b))).then(number(a).cmp(&number(b)))
        });
        let mut of_rows = vec![0; m];
        (0..).zip(&rows).for_each(|(rank, &row)| of_rows[row as usize] = rank);
        Self { of_rows, rows, best }
    }

    /// The pair of two rows.
    pub(super) fn pair(&self, a: u32, b: u32) -> u64 {
        let rank = |row: u32| self.of_rows.get(row as usize).copied().unwrap_or(row);
        let (a, b) = (rank(a), rank(b));
        u64::from(a.max(b)) << 32 | u64::from(a.min(b))
    }

    /// The kept row for each of `n` rows, from the rank of the kept row for every rank.
    pub(super) fn representatives(&self, n: u64, distinct: &Distinct, leaders: &[u32]) -> Vec<u32> {
        let kept = |place: u32| {
            let rank = self.of_rows.get(place as usize).copied().unwrap_or(place);
            let leader = leaders[rank as usize];
            let place = self.rows.get(leader as usize).copied().unwrap_or(leader) as usize;
            self.best.get(place).copied().unwrap_or(distinct.rows[place] as u32)
        };
        (0..n as u32).map(|row| distinct.place(row).map_or(row, kept)).collect()
    }
}

/// What has become of the pairs so far.
#[derive(Debug)]
pub(super) enum Links {
    /// All pairs.
    Leader(Pairs),
    /// A forest of ranks: the parent of a root is itself, and no parent has a higher rank.
    Components(Vec<u32>),
    /// The lowest rank within reach of every rank, itself included.
    SemDeDup(Vec<u32>),
}

impl Links {
    pub(super) fn new(linkage: Linkage, n: usize, memory: u64) -> Result<Self> {
        let mut of_itself = Vec::new();
        make_room(&mut of_itself, "groups of rows", n as u64, 1)?;
        of_itself.extend(0..n as u32);
        Ok(match linkage {
            Linkage::Leader => Self::Leader(Pairs::new(of_itself, memory)),
            Linkage::Components => Self::Components(of_itself),
            Linkage::SemDeDup => Self::SemDeDup(of_itself),
        })
    }

    /// Takes pairs of ranks.
    pub(super) fn take(&mut self, pairs: &mut Vec<u64>) -> Result<()> {
        let parts = |&pair: &u64| ((pair >> 32) as usize, pair as u32);
        match self {
            Self::Leader(all) => all.add(pairs)?,
            Self::Components(parents) => {
                for (later, earlier) in pairs.iter().map(parts) {
                    let (a, b) = (root(parents, later as u32), root(parents, earlier));
                    parents[a.max(b) as usize] = a.min(b);
                }
            }
            Self::SemDeDup(lowest) => {
                pairs
                    .iter()
                    .map(parts)
                    .for_each(|(later, earlier)| lowest[later] = lowest[later].min(earlier));
            }
        }
        pairs.clear();
        Ok(())
    }

    /// Takes what a checkpoint holds. The error says what is wrong.
    pub(super) fn restore(&mut self, from: &StateReader<'_>) -> Result<(), String> {
        match self {
            Self::Leader(pairs) => {
                let known: Vec<u64> = from.get("pairs")?;
                let n = pairs.leaders.len() as u64;
                let is_pair = |&pair: &u64| pair >> 32 < n && (pair & u64::from(u32::MAX)) < pair >> 32;
                if !known.iter().all(is_pair) {
                    return Err("its \"pairs\" are not pairs of rows".into());
                }
                let mut parts = known.chunks(pairs.most);
                parts.try_for_each(|part| pairs.add(&mut part.to_vec())).map_err(|e| e.to_string())
            }
            Self::Components(ranks) | Self::SemDeDup(ranks) => {
                let known: Vec<u32> = from.get("ranks")?;
                // No row leads to a later one.
                if known.len() != ranks.len() || !(0..).zip(&known).all(|(rank, &to)| to <= rank) {
                    return Err("its \"ranks\" do not match the rows".into());
                }
                *ranks = known;
                Ok(())
            }
        }
    }

    /// The rank of the kept row for every rank.
    pub(super) fn into_leaders(self, cx: &Executor) -> Result<Vec<u32>> {
        match self {
            Self::Leader(pairs) => pairs.into_leaders(cx),
            Self::Components(mut parents) => {
                (0..parents.len() as u32).for_each(|rank| parents[rank as usize] = root(&mut parents, rank));
                Ok(parents)
            }
            Self::SemDeDup(mut lowest) => {
                // A removed row leads to an earlier one, and that to a kept one.
                (0..lowest.len()).for_each(|rank| lowest[rank] = lowest[lowest[rank] as usize]);
                Ok(lowest)
            }
        }
    }
}

/// The root above a rank; halves the path to it.
fn root(parents: &mut [u32], mut rank: u32) -> u32 {
    while parents[rank as usize] != rank {
        let above = parents[parents[rank as usize] as usize];
        parents[rank as usize] = above;
        rank = above;
    }
    rank
}

/// Pairs of ranks, in memory and in sorted parts of a temporary file.
#[derive(Debug)]
pub(super) struct Pairs {
    leaders: Vec<u32>,
    waiting: Vec<u64>,
    /// Most pairs in memory.
    most: usize,
    spilled: Option<Spilled>,
}

/// Fewest pairs in memory: parts of the file are not shorter, so that there are not too many of them.
const LEAST_PAIRS: u64 = 1 << 16;

/// Bytes that are read at a time from all parts of the file.
const READ_BYTES: usize = 1 << 24;

/// Pairs between two checks for an interrupt.
const CHECKED_PAIRS: u64 = 1 << 20;

/// Sorted parts in a temporary file without a name: it goes with the process.
#[derive(Debug)]
struct Spilled {
    file: File,
    /// The first byte after each part.
    ends: Vec<u64>,
}

impl Pairs {
    fn new(leaders: Vec<u32>, memory: u64) -> Self {
        let most = (memory / 2 / size_of::<u64>() as u64).max(LEAST_PAIRS) as usize;
        Self { leaders, waiting: Vec::new(), most, spilled: None }
    }

    /// Number of parts in the file.
    #[cfg(test)]
    pub(super) fn n_parts(&self) -> usize {
        self.spilled.as_ref().map_or(0, |spilled| spilled.ends.len())
    }

    fn add(&mut self, pairs: &mut Vec<u64>) -> Result<()> {
        if self.waiting.len() + pairs.len() > self.most && !self.waiting.is_empty() {
            self.spill().map_err(of_file)?;
        }
        self.waiting.append(pairs);
        Ok(())
    }

    /// All pairs.
    pub(super) fn all(&self, cx: &Executor) -> Result<Vec<u64>> {
        let mut all = self.waiting.clone();
        if let Some(spilled) = &self.spilled {
            spilled.merge(&[], |pair| all.push(pair), cx)?;
        }
        Ok(all)
    }

    /// Moves the waiting pairs to the file.
    fn spill(&mut self) -> io::Result<()> {
        self.waiting.sort_unstable();
        if self.spilled.is_none() {
            self.spilled = Some(Spilled { file: tempfile::tempfile()?, ends: Vec::new() });
        }
        let Some(Spilled { file, ends }) = &mut self.spilled else { return Ok(()) };
        // Readers move the position of the file.
        file.seek(SeekFrom::Start(ends.last().copied().unwrap_or(0)))?;
        let mut out = BufWriter::with_capacity(1 << 20, &*file);
        for pair in &self.waiting {
            out.write_all(&pair.to_le_bytes())?;
        }
        out.flush()?;
        drop(out);
        ends.push(ends.last().copied().unwrap_or(0) + (self.waiting.len() * size_of::<u64>()) as u64);
        self.waiting.clear();
        Ok(())
    }

    /// Decides the rows in order: a row is kept unless it is in a pair with an earlier row that is kept.
    fn into_leaders(mut self, cx: &Executor) -> Result<Vec<u32>> {
        self.waiting.sort_unstable();
        let leaders = &mut self.leaders;
        let mut decide = |pair: u64| {
            let (later, earlier) = ((pair >> 32) as usize, pair as u32);
            let is_kept = leaders[earlier as usize] == earlier;
            if is_kept && leaders[later] as usize == later {
                leaders[later] = earlier;
            }
        };
        match &self.spilled {
            None => self.waiting.iter().for_each(|&pair| decide(pair)),
            Some(spilled) => spilled.merge(&self.waiting, decide, cx)?,
        }
        Ok(self.leaders)
    }
}

impl Spilled {
    /// Calls `f` with all pairs, those of the file and those in memory, in ascending order.
    fn merge(&self, waiting: &[u64], mut f: impl FnMut(u64), cx: &Executor) -> Result<()> {
        let buffer = (READ_BYTES / self.ends.len()).clamp(1 << 12, 1 << 18);
        let mut parts: Vec<Box<dyn Iterator<Item = io::Result<u64>> + '_>> =
            vec![Box::new(waiting.iter().map(|&pair| Ok(pair)))];
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        for (start, &end) in starts.zip(&self.ends) {
            let part = Part { file: &self.file, next: start, end };
            let mut part = BufReader::with_capacity(buffer, part);
            let mut bytes = [0; size_of::<u64>()];
            let count = (end - start) / size_of::<u64>() as u64;
            parts.push(Box::new((0..count).map(move |_| {
                part.read_exact(&mut bytes)?;
                Ok(u64::from_le_bytes(bytes))
            })));
        }
        let mut heads = BinaryHeap::new();
        for (at, part) in parts.iter_mut().enumerate() {
            if let Some(pair) = part.next().transpose().map_err(of_file)? {
                heads.push(Reverse((pair, at)));
            }
        }
        let mut count = 0u64;
        while let Some(Reverse((pair, at))) = heads.pop() {
            count += 1;
            if count.is_multiple_of(CHECKED_PAIRS) {
                cx.check()?;
            }
            f(pair);
            if let Some(pair) = parts[at].next().transpose().map_err(of_file)? {
                heads.push(Reverse((pair, at)));
            }
        }
        Ok(())
    }
}

/// The error of the temporary file.
fn of_file(source: io::Error) -> Error {
    Error::Io { path: std::env::temp_dir(), source }
}

/// A part of a file that several readers share.
struct Part<'a> {
    file: &'a File,
    next: u64,
    end: u64,
}

impl Read for Part<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let most = out.len().min((self.end - self.next) as usize);
        let mut file = self.file;
        file.seek(SeekFrom::Start(self.next))?;
        let n = file.read(&mut out[..most])?;
        self.next += n as u64;
        Ok(n)
    }
}
