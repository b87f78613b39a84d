//! This module knows every size threshold of the crate: what it trades, and the bench that set it.

/// Rows that one worker labels between two merges of sums, as a function of the number of centers `k`.
///
/// A merge costs `k d` additions and a row costs `d`: with four rows a center, merging is at most a quarter of the summing, which itself
/// is a small share of the labelling at large `k`. The lower limit keeps scheduling below a percent at small `k d`, the upper one keeps
/// enough tiles for many threads. Changing this changes the shape of every sum, and so the last bits of every result.
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

/// Centers from which it pays to look for columns that are zero in all rows of a micro tile: a look costs about what three centers cost
/// (`peers.py` on MNIST, of which half the columns are zero in a micro tile: a sweep takes half the time).
pub(crate) const SKIPPING_CENTERS: usize = 64;

/// Share of columns that may be listed for the list to be used: a listed column costs a little more than one of a run.
pub(crate) const SKIPPING_SHARE: f64 = 7.0 / 8.0;

/// Strips that are not searched for zeros after one in which there were too few.
pub(crate) const SKIPPING_PAUSE: u32 = 31;

/// Sweeps for which Lloyd carries the sums of clusters along before it makes them afresh: the energy gathers a rounding for every changed row.
pub(crate) const CARRIED_SWEEPS: u32 = 32;

/// Share of labels that may have changed in a sweep for the next one to carry its sums: a changed row costs what three rows cost afresh
/// (`peers.py`: at the second sweep about three tenths change).
pub(crate) const CARRIED_CHANGES: f64 = 1.0 / 3.0;

/// Share of the energy when sums were made afresh below which they are made again, so that a carried energy has 12 digits.
pub(crate) const CARRIED_ENERGY: f64 = 1e-3;

/// Rows that the kernel labels at a time: a multiple of every micro tile's height. Their copy has to stay in the second-level cache beside
/// a panel (bench `kernels`, group `strip`).
pub(crate) const STRIP_ROWS: usize = 192;

/// Bytes that the copied rows of a strip may take; large `d` shortens the strip.
pub(crate) const STRIP_BYTES: usize = 384 * 1024;

/// The most columns with which rows may lie in the lanes.
pub(crate) const ROWS_IN_LANES_DIM: usize = 16;

/// Whether rows lie in the lanes and centers are broadcast, or the other way round (bench `kernels`, group `low-d`).
///
/// With few columns the folding of running minima costs more than the distances, and it is cheapest with rows in the lanes. That needs a
/// register for each column; with 16 registers it pays beyond 4 columns only for few centers, which would leave lanes empty.
pub(crate) const fn rows_in_lanes(dim: usize, k: usize, registers: usize) -> bool {
    dim <= ROWS_IN_LANES_DIM && (registers >= 32 || dim <= 4 || k <= 64)
}

/// Vectors of centers that a sparse row meets at a time: their sums fit into 16 registers beside a value and a load, and the more of a column
/// lies together, the fewer lines are waited for (`sparse.py`).
pub(crate) const SPARSE_VECTORS: usize = 8;

/// Centers from which the reference point of a packed set is taken: a median over more of them moves little and costs `k d log k`.
pub(crate) const SHIFT_SAMPLE: usize = 63;

/// Rows that are labelled and then summed while they are still in a core's second-level cache.
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

/// Columns from which a bound for every center pays with any number of centers: it is read and written for every doubtful row, and lets two thirds as
/// many panels through as one for each panel does (`auto.py`: level at 100 and 128 columns).
pub(crate) const FINE_DIM: usize = 160;

/// Centers up to which it pays with fewer columns too.
pub(crate) const FINE_CENTERS: usize = 64;

/// Values of all centers from which rows of few columns have bounds by panel instead of one: from 512 centers on in 16 columns, 1024 in 8.
pub(crate) const GROUPED_VALUES: usize = 8192;

/// Centers from which one bound a row pays in few columns: fewer are met as fast as a bound is tested.
pub(crate) const SINGLE_CENTERS: usize = 24;

/// What a bounded sweep may be expected to cost for bounds to begin, relative to a plain one, and what it may cost for them to stay: with one bound
/// a row.
pub(crate) const SINGLE_AT_FIRST: f64 = 1.15;

/// See [`SINGLE_AT_FIRST`].
pub(crate) const SINGLE_LATER: f64 = 1.3;

/// The same with bounds by panel or center. They save more with every sweep, and are worth a loss at first (`auto.py`).
pub(crate) const BOUNDED_AT_FIRST: f64 = 2.0;

/// See [`BOUNDED_AT_FIRST`].
pub(crate) const BOUNDED_LATER: f64 = 2.0;

/// Total loss, in plain sweeps, at which bounds are dropped.
pub(crate) const BOUNDED_LOSS: f64 = 3.0;

/// What a bounded sweep may be expected to cost for bounds to begin again after they were dropped.
pub(crate) const BOUNDED_AGAIN: f64 = 0.9;

/// Sweeps without bounds after they are dropped: half the sweeps so far, at least this many.
pub(crate) const BOUNDED_PAUSE: u64 = 3;

/// Cost of a plain sweep with at most [`ROWS_IN_LANES_DIM`] columns, in nanoseconds per row: constant, per column, per center, and per center
/// and column. All sweep costs are those of one core with AVX-512 (`bounded.py --by-sweep`); only their ratios are used.
pub(crate) const PLAIN_COST_FEW_COLUMNS: [f64; 4] = [5.0, 0.5, 0.06, 0.013];

/// Cost of a plain sweep with more columns; see [`PLAIN_COST_FEW_COLUMNS`].
pub(crate) const PLAIN_COST: [f64; 4] = [10.0, 0.45, 0.2, 0.0122];

/// Cost of a sweep with one bound per row that settles all labels.
pub(crate) const SINGLE_SETTLED: f64 = 5.0;

/// Cost of all distances in a sweep with one bound per row: constant, per column, and as a multiple of a plain sweep.
pub(crate) const SINGLE_DISTANCES: [f64; 3] = [12.0, 1.0, 1.35];

/// Cost of a sweep with a bound per center that settles all labels: constant, and as a share of a plain sweep.
pub(crate) const FINE_SETTLED: [f64; 2] = [10.0, 0.1];

/// Cost of one distance in such a sweep: constant, and per column.
pub(crate) const FINE_DISTANCE: [f64; 2] = [4.0, 0.0183];

/// [`FINE_SETTLED`] for a bound per group.
pub(crate) const GROUPED_SETTLED: [f64; 2] = [10.0, 0.05];

/// [`FINE_DISTANCE`] for a bound per group, which costs less bookkeeping.
pub(crate) const GROUPED_DISTANCE: [f64; 2] = [1.9, 0.0175];

/// Share of the distances outside a row's own panel that a sweep with a bound per center is expected to compute at most.
pub(crate) const FINE_SHARE: f64 = 0.25;

/// Panels per row whose distances a sweep with a bound per group is expected to compute at most. Their share of all distances is limited to
/// [`GROUPED_SHARE`].
pub(crate) const GROUPED_PANELS: f64 = 2.5;

/// See [`GROUPED_PANELS`].
pub(crate) const GROUPED_SHARE: (f64, f64) = (0.2, 1.3);

/// With one bound per row: expected share of doubtful rows per square root of the share of labels that changed.
pub(crate) const SINGLE_DOUBTFUL: f64 = 2.2;

/// With more bounds per row: expected share of doubtful rows per share of labels that changed.
pub(crate) const BOUNDED_DOUBTFUL: f64 = 20.0;

/// Whether rows of few columns should meet only the centers near their own one, as exponion does. Each label of a tile needs a list of those centers, which
/// costs some hundred distances, and each sweep needs the distances between all centers. Both have to be shared by enough rows: by fewer of them where rows
/// of one label stand together, `in_runs`. Measured with `auto.py`, rows in random order, 256 centers, 330 to 570 rows per center: 0.94 to 1.44 times as
/// fast as one bound per row on nine sets of 2 to 10 columns, 1.15 in the mean; with 60 rows per center and fewer, mostly slower.
pub(crate) fn balls_pay(n: usize, k: usize, in_runs: impl FnOnce() -> bool) -> bool {
    k >= BALLS_FROM && (k <= n / BALLS_ROWS || k <= n / BALLS_ROWS_IN_RUNS && in_runs())
}

/// Centers from which [`balls_pay`].
const BALLS_FROM: usize = 192;

/// Rows per center from which [`balls_pay`] in any order, and in runs of one label.
const BALLS_ROWS: usize = 256;
const BALLS_ROWS_IN_RUNS: usize = 64;

/// Rows of one label that stand together for such lists to pay.
pub(crate) const BALL_RUN: usize = 4;

/// Share of the distances of a plain sweep above which one with balls is no gain: distances that are measured one by one cost the more in comparison the fewer
/// columns there are. Sweep by sweep (bench `bounded.py --by-sweep`) both take the same time at 4% with 2 columns, 3% with 3, 11% with 10, and 15% with 16.
pub(crate) fn ball_share(dim: usize) -> f64 {
    0.02 + 0.007 * dim as f64
}

/// Rows whose bounds are tested together by a bounded sweep: enough that those which survive fill micro tiles, few enough to stay in the
/// second-level cache (example of the bench `bounded`).
pub(crate) const fn bounded_chunk_rows(dim: usize) -> usize {
    let fit = 256 * 1024 / (4 * dim) / 64 * 64;
    if fit < 128 {
        128
    } else if fit > 1024 {
        1024
    } else {
        fit
    }
}

/// Centers from which rows with one bound look for the ones about their own center: fewer are met as fast as they are found.
pub(crate) const BALL_CENTERS: usize = 24;

/// Rows of a batch that one worker labels between two merges of sums: about 2 million multiplications, some 30 microseconds, which hide what
/// it costs to hand a tile out, and which a batch of a thousand rows has enough of for several threads.
pub(crate) fn batch_tile_rows(k: usize, dim: usize) -> usize {
    let rows = (1usize << 21) / (k * dim).max(1);
    (rows / STRIP_ROWS * STRIP_ROWS).clamp(STRIP_ROWS, tile_rows(k))
}

/// Rows of `row_bytes` each that mini-batch k-means seeds from, for `k` centers and batches of `batch` rows, however many rows there are: what
/// some dozens of batches cost (MNIST, k = 50: a fit makes 110 to 160). At least 16 rows a center; beyond that, as for
/// `auto_seeding_sample`, 32 MB at most.
pub(crate) fn batch_seeding_sample(batch: u64, k: usize, row_bytes: usize) -> u64 {
    let fitting = ((32 << 20) / row_bytes.max(1) as u64).max(16 * k as u64);
    (3 * batch).max(16 * k as u64).min(fitting)
}

/// What a batch leaves of the number of rows that stochastic backward Euler remembers of each cluster: it remembers some 100 batches.
pub(crate) const RECENT_STAYS: f64 = 0.99;

/// The share of the mean cluster's rows below which a cluster starves: steps of a useful length hardly move its center then. On real sets
/// (`defaults.py`) clusters of exact k-means have 3% and more, but for a few rows far from all others, which steps do not reach either.
pub(crate) const STARVED: f64 = 0.01;

/// Minimum mean rows per cluster before starvation is reported: of 200, a cluster with a twentieth of them gets fewer than 2 once in 2,000 times.
pub(crate) const RECENT_ROWS: f64 = 200.0;

/// Threads that an executor has at most for each core: more take turns, and cost memory for each. Some more than one, since a thread may wait for
/// a disk or a stream.
pub(crate) const THREADS_A_CORE: usize = 4;

/// Threads that are started whatever the machine: tests ask for a few to see that their number does not matter.
pub(crate) const THREADS_ANYWHERE: usize = 16;

/// Rows of a batch that the variance of the data is estimated from at most: to a percent, which is more than a tolerance needs.
pub(crate) const VARIANCE_ROWS: u64 = 16_384;

/// Rows whose squared distances are summed together by k-means++: a draw scans one tile, a pass schedules `n` over this many.
pub(crate) const SEEDING_TILE_ROWS: usize = 4096;

/// Rows that `Seeding::Auto` runs greedy k-means++ on, of `n` of `row_bytes` each, for `k` centers.
///
/// Greedy k-means++ measures up to `k (2 + ln k)` distances a row, at about half the kernel's rate: on this sample that is what three
/// sweeps over all rows cost. Fewer than 32 rows a center seed badly, and 16,384 rows cost next to nothing. The sample is copied: where it
/// would take more than 32 MB, 16 rows a center have to do.
pub(crate) fn auto_seeding_sample(n: u64, k: usize, row_bytes: usize) -> u64 {
    let affordable = 1.5 * n as f64 / (3.0 + (k as f64).ln());
    let wanted = (affordable as u64).max(32 * k as u64).max(16_384);
    let fitting = ((32 << 20) / row_bytes as u64).max(16 * k as u64);
    // All rows need no copy.
    if wanted >= n { n } else { wanted.min(fitting) }
}

/// Chains of `chain` candidates that AFK-MC2 begins together, when there are `centers`: their candidates meet these by the kernels, and those that
/// come meanwhile by difference, at an eighth of the rate, which are a 64th of all. Copies of the candidates take 32 MB at most, if those of one
/// chain do.
pub(crate) fn chains_together(centers: usize, chain: usize, row_bytes: usize) -> usize {
    let fitting = (32 << 20) / chain.saturating_mul(row_bytes).max(1);
    (centers / 32).clamp(8, fitting.max(8))
}

/// Rows between two merges of what a coreset's pass has found: a merge costs some operations a column.
pub(crate) const CORESET_TILE_ROWS: usize = 8192;

/// Bytes of rows in one step of a coreset's pass: a tenth of a second or so, in which nobody looks for signs of life.
pub(crate) const CORESET_STEP_BYTES: usize = 256 << 20;

/// Share of the rows of a file from which they are read in a pass that reads ahead: below it, most of what such a pass reads would be for
/// nothing (pages of 4 KiB hold 4 to 40 rows of usual length).
pub(crate) const SUBSET_SHARE: f64 = 1.0 / 8.0;

/// Share of labels that may have changed in a round of nested batches for bounds to begin: until then most bounds fail, and cost more than they save.
pub(crate) const NESTED_BOUNDS_CHANGES: f64 = 0.15;

/// Columns from which bounds of nested batches save more than they cost, however few the centers: with 50 and 256 of them, rounds take 0.7 to
/// 1.1 times as long without bounds at 3 and 8 columns, 1.1 to 1.7 at 12, 1.2 to 2.8 at 16, 2.8 to 3.1 at 24.
pub(crate) const NESTED_BOUNDS_DIM: usize = 16;

/// Rows that a worker labels together for steps of variance-reduced k-means: enough to fill micro tiles.
pub(crate) const STEPS_TOGETHER: usize = 64;

/// Steps that are drawn together at least: a little more than fill one micro tile.
pub(crate) const STEPS_LEAST: usize = 16;

/// The most steps that are drawn together: what is found out about their rows ages with every center that moves.
pub(crate) const STEPS_AHEAD: usize = 1024;

/// Values of centers and rows that steps look at or move, one after the other, before they see whether they shall end: a few milliseconds.
pub(crate) const STEPS_CHECKED: u64 = 1 << 22;

/// The longest squared move of all centers in a step: squared distances of 2^50 rows to such centers still have a finite sum.
pub(crate) const MOST_SQ_MOVE: f64 = f64::MAX * f64::EPSILON * f64::EPSILON;

/// How many times the scale of the rows the mean squared distance of a batch to its centers may become before a step of backward Euler has
/// diverged: on Iris the longest step that is of use (2 per cluster) comes to 100 times, one that ends anywhere (2.7) to 1300, and what has
/// passed a million grows without end.
pub(crate) const DIVERGED: f64 = 1e6;

/// Bytes of their rows, which are copied.
pub(crate) const STEPS_AHEAD_BYTES: usize = 16 << 20;

/// Centers, of `k` in panels of so many, that may move far before rows are looked at anew. Whatever row is in doubt meets all of them.
pub(crate) fn few_centers(k: usize, panel: usize) -> usize {
    if k < 2 * panel { 0 } else { panel * (k / (4 * panel)).clamp(1, 4) }
}

/// Rows of a stretch, of `row_bytes` each, that variance-reduced k-means draws steps from where rows come in passes: 32 MB at most, so that
/// memory does not grow with their number, and enough that they are nearly as good as all rows.
pub(crate) fn stretch_rows(row_bytes: usize) -> usize {
    ((32 << 20) / row_bytes.max(1)).clamp(256, 16_384)
}

/// Rows of `n` that one worker shares out among `k` components between two merges: an eighth of all, so that there is work for several threads, as far
/// as a merge of sums of all components stays small against it; 32,768 at most, among which components of thousands have some rows each.
pub(crate) fn mixture_tile_rows(n: usize, k: usize) -> usize {
    (n / 8).max(k).next_multiple_of(1024).min(32_768)
}

/// Cells of means that a row looks into in its first search. In two of them 99% of rows find their nearest mean in 2 columns and among scaled
/// connections, 88% in 40 columns, and 55 to 76% in 128 and 3072, where what they find is 4 to 8% farther in the mean of squares; later searches
/// find the rest. A third costs a quarter more distances.
pub(crate) const PROBED_CELLS: usize = 2;

/// Rows of `row_bytes` each that a worker shares out among the components of a mixture together, each of which looks at up to `looks` components. In
/// the order of their components the rows of one find its center, its neighbours and its sums in the cache: the more of them the better, as far
/// as 16 MB of rows, if they are converted, and a million looks at components go.
pub(crate) fn mixture_chunk_rows(row_bytes: usize, looks: usize) -> usize {
    ((16 << 20) / row_bytes.max(1)).min((1 << 20) / looks.max(1)).max(STRIP_ROWS)
}

/// Rows that one worker looks for neighbours of between two merges: a few strips, so that a small part still has work for several threads.
pub(crate) const GRAPH_TILE_ROWS: usize = 2 * STRIP_ROWS;

/// Rows of `dim` columns that are packed at a time to find the neighbours of `n` rows: those before them meet them once for both sides, so the
/// more parts the less is measured twice; but a row is read and loaded for every part, which costs what a few dozen distances do.
pub(crate) fn graph_block_rows<T>(n: usize, dim: usize) -> usize {
    (n / 16).max(512).min(packed_rows::<T>(dim)).next_multiple_of(32)
}

/// Rows of `dim` columns that a thread packs at a time at most: 2048, and 64 MB, of which a packed value takes three times its size.
pub(crate) fn packed_rows<T>(dim: usize) -> usize {
    ((64 << 20) / (3 * size_of::<T>() * dim)).clamp(16, 2048)
}

/// Rows that look into a part of a cell together: as many as make its packing, of `dim` columns, cheap, also where rows store only `values` of them.
pub(crate) fn visitors_together(dim: usize, values: usize) -> usize {
    (32 * dim / values).max(2048)
}

/// Visits of which nobody hears what the others find: enough for many threads, few enough that rows soon know how far they reach.
pub(crate) const VISITS_TOGETHER: usize = 64;

/// The most that such visits may find, at 24 bytes each.
pub(crate) const NEWS_TOGETHER: usize = 4 << 20;

/// Looks of rows into cells that are kept in mind at a time, at 16 bytes each, if there are not more rows than that: each time, all cells are packed.
pub(crate) const LOOKS_TOGETHER: u64 = 8 << 20;

/// Whether a k-d tree finds the neighbours of `n` rows faster than brute force: it looks at the more of the rows, the more columns there are.
pub(crate) fn tree_pays(n: u64, dim: usize) -> bool {
    dim <= 16 && n as f64 >= 256.0 * 2f64.powf(dim as f64 / 2.0)
}

/// Multiplications of brute force, for `n` rows, that take minutes.
pub(crate) fn brute_force_pays(n: u64, dim: usize) -> bool {
    0.5 * n as f64 * n as f64 * dim as f64 <= 1e13
}

/// Rows of a leaf of a k-d tree: fewer cost more boxes, more cost more distances.
pub(crate) const LEAF_ROWS: usize = 16;

/// Cells of a coarse partition of `n` rows: few rows look into many cells or many into few, and either way `n` rows meet all centers.
pub(crate) fn n_cells(n: u64) -> usize {
    ((2.0 * (n as f64).sqrt()) as usize).clamp(1, n as usize)
}

/// Rows for each cell that a coarse partition is made from, and sweeps over them: where its centers lie exactly does not matter (of MNIST, in five
/// of 529 cells, 97.1% of neighbours are found after 5 sweeps over 32 rows a cell, 97.0% after 3 over 16, in a third of the time).
pub(crate) const CELL_SAMPLE_ROWS: usize = 16;

/// See [`CELL_SAMPLE_ROWS`].
pub(crate) const CELL_SWEEPS: u64 = 3;

/// Rows whose true neighbours are found to measure a recall: with 5 neighbours each, one of 0.95 is known to half a percent.
pub(crate) const RECALL_ROWS: usize = 384;

/// Rows of a cluster that are compared with each other to find where they are densest: more of them take longer than the iterations, and the first
/// mode need not be the best.
pub(crate) const DENSITY_ROWS: usize = 1024;

/// Bytes of responsibilities that lie in a near cache: of more of them, the rows are put in an order that keeps neighbours together. In the order of the
/// data two thirds of an update's time went into waiting for those of neighbours (70,000 rows, k = 10).
pub(crate) const NEAR_BYTES: usize = 128 << 10;

/// How many times longer the square of a shift must be than the median squared distance of the centers from it, where a few centers spoil the
/// mean: a nearer shift would save at most four binary digits of a tile value.
pub(crate) const CLUMPED: f64 = 16.0;

/// The first step size of backward Euler by default, in numbers of clusters (`papers/sbe.py`, steps; `defaults.py`).
pub(crate) const AUTO_STEP: f64 = 3.0;

/// The share of [`AUTO_STEP`] that the last step of a fit has by default.
pub(crate) const AUTO_END: f64 = 1.0 / 20.0;

/// Bytes of a mapped file between two looks at its length: a look costs 0.1 to 0.2 µs, so many bytes at least 20 µs.
pub(crate) const LENGTH_STEP: usize = 256 << 10;

/// Centers of which all pairs are compared, to find those that tile values cannot tell apart: 120 pairs cost less than one row against a
/// thousand centers.
pub(crate) const COMPARED_CENTERS: usize = 16;

/// Columns of such a pair that are compared first: nearly always enough to see that it is far apart.
pub(crate) const COMPARED_COLUMNS: usize = 16;

/// The mean sum of a row of a neighbor graph over the least: a row that no other names has half of the weights of its neighbors.
pub(crate) const MEAN_OVER_LEAST: f64 = 2.0;

/// Idle thread pools that are kept, the one just asked for not counted. A caller that alternates between two thread counts reuses both pools.
pub(crate) const IDLE_POOLS: usize = 1;
