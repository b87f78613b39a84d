//! What a pass over mapped files reads ahead, and what it leaves in the system's cache of files.

use std::ops::Range;
use std::path::Path;
use std::{env, fs};

use crate::error::{InvalidParam, Result};
use crate::parallel::available_threads;

/// A pass requests this many bytes of a mapped file ahead of the rows that it reads. A fast disk (4 GB/s)
/// reads them in about 8 ms, which is longer than any single request takes.
const READ_AHEAD: usize = 32 << 20;
/// The read-ahead advances in steps of this size, which makes the cost of its system calls negligible.
pub(super) const READ_AHEAD_STEP: usize = 16 << 20;
/// Linux cuts each request to the limit of the device (at least 128 KiB, commonly 1.25 MiB), so larger
/// requests are made in parts.
#[cfg(all(unix, not(miri)))]
pub(super) const READ_AHEAD_PART: usize = 1 << 20;
/// Smaller sources always stay in the cache.
const ALWAYS_KEPT: usize = 1 << 30;
/// The variable of the environment that sets the bytes of a source that stay in the cache.
const KEPT: &str = "SHOAL_FILE_CACHE";

/// The bytes to request when `bytes` are read: the whole read-ahead at the first ones, then one more step at
/// each step.
pub(in crate::data) fn due(bytes: Range<usize>, first: bool) -> Option<Range<usize>> {
    // Earlier reads requested all bytes up to here.
    let ahead = |at: usize| at / READ_AHEAD_STEP * READ_AHEAD_STEP + READ_AHEAD;
    let start = if first { bytes.start } else { ahead(bytes.start) };
    (start < ahead(bytes.end)).then(|| start..ahead(bytes.end))
}

/// Which bytes of a source a pass leaves in the cache.
///
/// A source that memory cannot hold would evict its own first rows, and other files, before the next pass
/// reads them. So the first bytes stay, as many as memory holds, and a pass drops the others once they are
/// read: the next pass finds the first ones in memory, and reading takes no memory from other processes.
#[derive(Clone, Copy, Debug)]
pub(in crate::data) struct Leave {
    kept: usize,
    /// Bytes behind the first reader of a step that other threads may still read.
    lag: usize,
}

impl Leave {
    /// For a pass over `all` bytes in tiles of `tile` bytes.
    ///
    /// # Errors
    /// [`Error::InvalidParam`](crate::Error::InvalidParam) if `SHOAL_FILE_CACHE` is not a number of bytes.
    pub(in crate::data) fn new(all: usize, tile: usize) -> Result<Self> {
        let kept = match env::var_os(KEPT) {
            Some(text) => bytes_in(&text.to_string_lossy())?,
            None if all <= ALWAYS_KEPT => None,
            None => available().map(|bytes| bytes / 4 * 3),
        };
        // Counting the cores takes longer than a pass over few rows.
        let lag = kept.map_or(0, |_| tile.saturating_mul(2 * available_threads()));
        Ok(Self { kept: kept.unwrap_or(usize::MAX), lag })
    }

    /// What is left of a file that begins after so many bytes of the source.
    pub(in crate::data) fn after(self, bytes: usize) -> Self {
        Self { kept: self.kept.saturating_sub(bytes), ..self }
    }

    /// A pass that leaves the first `kept` bytes.
    #[cfg(test)]
    pub(in crate::data) fn of(kept: usize) -> Self {
        Self { kept, lag: 0 }
    }

    /// Whether these bytes stay in the cache after they were read.
    pub(super) fn keeps(&self, bytes: &Range<usize>) -> bool {
        bytes.end <= self.kept
    }

    /// The bytes to drop when a pass requests `due`.
    pub(in crate::data) fn behind(&self, due: &Range<usize>) -> Range<usize> {
        let back = READ_AHEAD.saturating_add(READ_AHEAD_STEP).saturating_add(self.lag);
        let at = |ahead: usize| ahead.saturating_sub(back).max(self.kept);
        at(due.start)..at(due.end)
    }
}

/// The bytes of memory that are available, if a source of `all` bytes is larger, or would not stay in the cache.
pub(in crate::data) fn scarce(all: usize) -> Option<u64> {
    let most = match env::var_os(KEPT).map(|text| bytes_in(&text.to_string_lossy())) {
        Some(Ok(kept)) => kept.unwrap_or(usize::MAX),
        // A pass reports the error.
        Some(Err(_)) => usize::MAX,
        None if all <= ALWAYS_KEPT => usize::MAX,
        None => available().unwrap_or(usize::MAX),
    };
    (most < all).then(|| available().map_or(u64::MAX, |bytes| bytes as u64))
}

/// A number of bytes in the environment; `None` if the variable is empty.
fn bytes_in(text: &str) -> Result<Option<usize>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    text.trim().parse().map(Some).map_err(|_| {
        InvalidParam::new(KEPT, "a number of bytes", format!("{text:?}"))
            .with_remedy("change or unset this environment variable")
            .into()
    })
}

/// Bytes of memory that this process may still take, if the system reports them. The cache of files counts as
/// free.
fn available() -> Option<usize> {
    let found = fs::read_to_string("/proc/meminfo").ok()?;
    let line = found.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let free = line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.saturating_mul(1024);
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Some(left_in_groups(Path::new("/sys/fs/cgroup"), &groups).fold(free, usize::min))
}

/// The memory that the limits of control groups leave, for example in a container. `groups` lists the groups
/// of this process.
fn left_in_groups<'a>(root: &'a Path, groups: &'a str) -> impl Iterator<Item = usize> + use<'a> {
    // In a container the path may be one of the host: then only the root exists.
    groups.lines().flat_map(move |line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (root, limit, taken) = match controllers {
            "" => (root.to_owned(), "memory.max", "anon "),
            _ => (root.join("memory"), "memory.limit_in_bytes", "total_rss "),
        };
        let used = controllers.is_empty() || controllers.split(',').any(|name| name == "memory");
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter(move |_| used).filter_map(move |group| {
            let read = |name| fs::read_to_string(root.join(group).join(name)).ok();
            let limit = read(limit)?.trim().parse::<usize>().ok()?;
            // The cache of files counts towards the limit, but the system takes it back.
            let taken = read("memory.stat")
                .and_then(|stat| stat.lines().find_map(|line| line.strip_prefix(taken)?.trim().parse().ok()));
            Some(limit.saturating_sub(taken.unwrap_or(0)))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_drops_every_byte_but_the_kept_ones_once() {
        let all = 700 << 20;
        for (kept, lag, tile) in [(0, 0, 1 << 20), (100 << 20, 96 << 20, 48 << 20), (usize::MAX, 0, 1 << 20)]
        {
            let leave = Leave { kept, lag };
            let mut end = kept.min(all);
            for start in (0..all).step_by(tile) {
                let bytes = start..all.min(start + tile);
                let Some(due) = due(bytes.clone(), start == 0) else { continue };
                let behind = leave.behind(&due);
                if behind.is_empty() {
                    continue;
                }
                assert_eq!(behind.start, end);
                assert!(
                    behind.end <= start && behind.end + lag <= bytes.end,
                    "{behind:?} is read at {start}"
                );
                end = behind.end;
            }
            assert!(end >= kept.min(all).max(all - (48 << 20) - lag), "{end} of {all}");
        }
    }

    #[test]
    fn the_environment_holds_a_number_of_bytes() {
        assert_eq!(bytes_in(" 1000 ").unwrap(), Some(1000));
        assert_eq!(bytes_in(" ").unwrap(), None);
        let refused = bytes_in("1GB").unwrap_err().to_string();
        assert!(refused.contains("SHOAL_FILE_CACHE must be a number of bytes, got \"1GB\""), "{refused}");
        assert!(available().is_none_or(|bytes| bytes > 1 << 20));
    }

    #[test]
    fn limits_of_all_groups_count_less_the_memory_taken() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let left = |groups: &str| left_in_groups(folder.path(), groups).min();
        assert_eq!(left("0::/job/step\n"), None);
        write("job/step/memory.max", "max\n");
        assert_eq!(left("0::/job/step\n"), None);
        write("job/memory.max", "1000\n");
        assert_eq!(left("0::/job/step\n"), Some(1000));
        write("job/memory.stat", "file 700\nanon_thp 5\nanon 300\n");
        assert_eq!(left("0::/job/step\n"), Some(700));
        assert_eq!(left("0::/\n"), None);
        write("memory.max", "60\n");
        assert_eq!(left("0::/of/the/host\n"), Some(60));
        write("memory/memory.limit_in_bytes", "50\n");
        write("memory/memory.stat", "rss 1\ntotal_rss 20\n");
        assert_eq!(left("5:cpu:/x\n4:cpuset,memory:/x\n"), Some(30));
        assert_eq!(left("5:cpu:/x\n"), None);
    }
}
