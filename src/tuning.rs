//! Sizes and limits that several folders share, with their reasons and the benchmarks that set them. All others stand
//! beside the code that uses them.

/// Rows that one worker labels between two merges of sums, for `k` centers.
///
/// A merge takes `k d` additions and a row takes `d`: with four rows per center, merging takes at most a
/// quarter of the time of summing, which is a small share of labeling at large `k`. The lower limit keeps
/// scheduling cheap at small `k d`, the upper limit leaves enough tiles for many threads. A change alters
/// the shape of every sum, and so the last bits of every result.
pub(crate) const fn tile_rows(k: usize) -> usize {
    let rows = (4 * k).next_multiple_of(1024);
    if rows < 2048 {
        2048
    } else if rows > 16_384 {
        16_384
    } else {
        rows
    }
}

/// Rows of a table of `dim` columns that a thread takes at a time in work that several threads share: some ten
/// microseconds of work.
pub(crate) fn shared_rows(dim: usize) -> usize {
    ((1 << 14) / dim.max(1)).max(1)
}

/// Rows that the kernel labels at a time: a multiple of the height of every micro tile. Their copy and a
/// panel must fit into the second-level cache (bench `kernels`, group `strip`).
pub(crate) const STRIP_ROWS: usize = 192;

/// Upper limit of the bytes of the copied rows of a strip; large `d` shortens the strip.
pub(crate) const STRIP_BYTES: usize = 384 * 1024;

/// Upper limit of the number of columns for kernels with rows in the lanes.
pub(crate) const ROWS_IN_LANES_DIM: usize = 16;

/// Number of centers whose median is the reference point of a packed set. More centers change the median little,
/// at a cost of `k d log k`.
pub(crate) const SHIFT_SAMPLE: usize = 63;

/// Rows that are labeled and then summed while they are in the second-level cache of a core.
pub(crate) const fn chunk_rows(dim: usize) -> usize {
    let strips = STRIP_BYTES / (STRIP_ROWS * 4 * dim);
    if strips == 0 {
        STRIP_ROWS / 2
    } else if strips > 8 {
        8 * STRIP_ROWS
    } else {
        strips * STRIP_ROWS
    }
}

/// The most rows that a partial result of a distributed sweep keeps for empty clusters, and so the most clusters that
/// move in one sweep. More rows would make partial results larger than their sums when `k` is small. Clusters
/// that remain empty move in the next sweep.
pub(crate) const FARTHEST_ROWS: usize = 16;

/// Most rows per tile of squared distances in k-means++: a draw scans one tile, and a pass schedules `n` divided
/// by this number of tiles.
pub(crate) const SEEDING_TILE_ROWS: usize = 4096;

/// Rows per tile of squared distances of `n` rows: few rows have enough tiles for many threads.
pub(crate) fn seeding_tile_rows(n: usize) -> usize {
    (n / 64).clamp(512, SEEDING_TILE_ROWS)
}

/// Upper limit of the squared move of all centers in a step: the sum of squared distances of 2^50 rows to
/// such centers is still finite.
pub(crate) const MOST_SQ_MOVE: f64 = f64::MAX * f64::EPSILON * f64::EPSILON;

/// Rows whose neighbors one worker searches between two merges: a few strips, so that a small part has work
/// for several threads.
pub(crate) const GRAPH_TILE_ROWS: usize = 2 * STRIP_ROWS;

/// Upper limit of the rows of `dim` columns that a thread packs at a time.
pub(crate) fn packed_rows<T>(dim: usize) -> usize {
    // At most 64 MB: a packed value takes three times its size.
    ((64 << 20) / (3 * size_of::<T>() * dim)).clamp(16, 2048)
}

/// Number of cells of a coarse partition of `n` rows. More cells have fewer rows each, but every row is
/// compared with all their centers.
pub(crate) fn n_cells(n: u64) -> usize {
    ((2.0 * (n as f64).sqrt()) as usize).clamp(1, n as usize)
}

/// Rows per cell from which a coarse partition is computed, in [`CELL_SWEEPS`] sweeps. The exact position of
/// its centers does not matter (MNIST, five of 529 cells: 97.1% of neighbors are found after 5 sweeps over 32
/// rows per cell, 97.0% after 3 over 16, in a third of the time).
pub(crate) const CELL_SAMPLE_ROWS: usize = 16;

/// See [`CELL_SAMPLE_ROWS`].
pub(crate) const CELL_SWEEPS: u64 = 3;

/// Rows of groups that a worker compares or sums together: enough to hide the cost of scheduling them.
pub(crate) const GROUPED_ROWS: usize = 2048;

/// Default of all memory budgets, in bytes. It also bounds the rows that a node of the tree of `Seeding::Hierarchical`
/// is fitted to.
pub(crate) const DEFAULT_MEMORY: u64 = 1_000_000_000;
