//! All size thresholds of the crate, with their reasons and the benchmarks that set them.

/// Rows that one worker labels between two merges of sums, for `k` centers.
///
/// A merge takes `k d` additions and a row takes `d`: with four rows per center, merging takes at most a
/// quarter of the time of summing, which is a small share of labeling at large `k`. The lower limit keeps
/// scheduling below 1% at small `k d`, the upper limit leaves enough tiles for many threads. A change alters
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

/// Number of centers from which kernels search for columns that are zero in all rows of a micro tile. The
/// search takes about the time of three centers (`peers.py` on MNIST, where half the columns of a micro tile
/// are zero: a sweep takes half the time).
pub(crate) const SKIPPING_CENTERS: usize = 64;

/// Upper limit of the share of listed columns for which kernels use the list: a listed column takes a little
/// longer than one of a run.
pub(crate) const SKIPPING_SHARE: f64 = 7.0 / 8.0;

/// Strips that are not searched for zero columns after a strip with too few of them.
pub(crate) const SKIPPING_PAUSE: u32 = 31;

/// Whether tiles of low precision are faster than the `f32` kernel for `k` centers of `dim` columns (bench `kernels`, table
/// `certified`). With fewer of either, converting the rows takes what the products save.
pub(crate) const fn certified_pays(k: usize, dim: usize) -> bool {
    k >= 64 && dim >= 64
}

/// Rows for which rounding the centers to low precision pays off: it takes what products save on about 2,000
/// rows (256 and 1024 centers of 128 columns).
pub(crate) const CERTIFIED_ROWS: usize = 2048;

/// Groups of 16 rows, of `steps` tiles each, that are compared with all centers at a time. They stay in the
/// first-level cache if at most eight tiles make a row, else in the second-level cache.
pub(crate) const fn certified_groups(steps: usize) -> usize {
    let bytes = if steps <= 8 { 24 << 10 } else { 384 << 10 };
    let groups = bytes / (steps * 1024) / 2 * 2;
    if groups < 4 {
        4
    } else if groups > 32 {
        32
    } else {
        groups
    }
}

/// The same for the matrix unit (measured on a Xeon with AMX, k = 1024, d = 100 to 3072): of rows with many tiles it
/// takes more at a time, because it reads the centers faster.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub(crate) fn tile_unit_groups(steps: usize) -> usize {
    if steps <= 8 {
        return certified_groups(steps);
    }
    let kilobytes = (16 * steps).clamp(256, 800);
    (kilobytes / steps / 2 * 2).clamp(4, 32)
}

/// Tiles of a row that are multiplied before the next rows follow: those of two panels stay in the first-level
/// cache.
pub(crate) const CERTIFIED_DEPTH: usize = 8;

/// Share of all panels above which rows in doubt go to the `f32` kernel.
pub(crate) const CERTIFIED_DOUBT: f64 = 0.25;

/// Rows after which the share of panels in doubt decides whether low precision goes on.
pub(crate) const CERTIFIED_TRIAL: usize = 512;

/// Values of rows among which rows in doubt are collected before they are measured: more rows in doubt share
/// panels, but rows should still be in the second-level cache.
pub(crate) const CERTIFIED_VALUES: usize = 1 << 18;

/// Upper limit of the candidates that are collected, of 8 bytes each.
pub(crate) const CERTIFIED_CANDIDATES: usize = 1 << 16;

/// Share of the squared lengths of rows, about their mean, that the columns of sketches hold. With less, sketches exclude
/// too few centers; with more, they take longer to compare.
pub(crate) const SKETCH_ENERGY: f64 = 0.9;

/// Rows on which mixing columns is tried, and the share of the largest coordinates from which on it pays: it takes as long
/// as rounding the rows.
pub(crate) const SKETCH_PEAKS: usize = 64;
pub(crate) const SKETCH_GAIN: f32 = 0.85;

/// Whether sketches of rows that are met once are faster than the `f32` kernel (`certified.py`): with less, sketching a row
/// takes what products of bytes save.
pub(crate) const fn few_sketches_pay(k: usize, dim: usize) -> bool {
    k >= 64 && dim >= 32 && k * dim >= 40_000
}

/// Centers that sketches may leave for a row that is met once. With more, its `f32` tile values take less time.
pub(crate) const fn sketch_candidates(k: usize) -> usize {
    4 + k / 32
}

/// Estimates of distances, of 4 bytes each, that are kept per worker: they stay in the second-level cache.
pub(crate) const SKETCH_ESTIMATES: usize = 1 << 16;

/// Rows of a chunk of a sweep by sketches, for `k` centers: so many that their lists of centers are worth sorting, and so
/// few that their values stay in the second-level cache, and that the lists take at most 20 MB if nothing is excluded.
pub(crate) fn sketch_chunk_rows(dim: usize, k: usize) -> usize {
    ((1 << 18) / dim.max(1)).min(SKETCH_PAIRS / k.max(1)).clamp(64, 2048)
}

/// Most pairs of a row and a center in a chunk of a sweep by sketches.
pub(crate) const SKETCH_PAIRS: usize = 1 << 20;

/// Most sets of centers with a bound per row, of 4 bytes, in sweeps by sketches.
pub(crate) const SKETCH_SETS: usize = 64;

/// Coordinates of the sketches of centers by which similar ones are found.
pub(crate) const SKETCH_COORDINATES: usize = 32;

/// Sweeps of a fit from which sketches pay: sketching all rows takes about as long as one plain sweep.
pub(crate) const SKETCH_SWEEPS: u64 = 3;

/// Whether sketches pay for `n` rows and `k` clusters in `dim` columns (`auto.py`, AVX-512 VNNI; AVX-VNNI gains as much over AVX2): a row takes about as
/// long as 50,000 values of centers in bookkeeping and exact distances. There must be enough rows to learn the columns of
/// sketches from.
pub(crate) fn sketches_pay(n: usize, k: usize, dim: usize) -> bool {
    dim >= 32 && k * dim >= 50_000 && n >= 4096
}

/// Whether finer sketches pay for `n` rows in a file larger than memory (`files.py`), because most rows are then not read:
/// their bytes must be few beside those of the rows, and making them, which takes as long as comparing the rows with `dim`
/// centers, must take less than a few sweeps. Completing the directions to a basis takes `dim^3` operations.
pub(crate) fn fine_sketches_pay(n: usize, k: usize, dim: usize) -> bool {
    n >= 4096 && (64..=1024).contains(&dim) && dim <= 4 * k
}

/// The directions of sketches that have finer ones: the first number for which there is memory, of those that are at most
/// half of the columns. More of them leave fewer rows to read.
pub(crate) const FINE_WIDTHS: [usize; 7] = [128, 112, 96, 80, 64, 48, 32];

/// Values of a tile of which single rows are read, at most, because each thread has room for all of them.
pub(crate) const FINE_VALUES: usize = 1 << 22;

/// The share of the available memory for sketches, where rows are in a file larger than memory.
pub(crate) const FINE_MEMORY: f64 = 0.8;

/// Whether sketches leave few enough of the `k` centers: the distances of one center in 32 take as long as the sweep by
/// `f32` tile values.
pub(crate) fn sketches_exclude_most(distances: u64, rows: u64, k: u64) -> bool {
    distances * 32 <= rows * (k + 128)
}

/// Rows for which this is tested before all rows are sketched.
pub(crate) const SKETCH_PROBE: usize = 256;

/// Steps of the iteration that finds the columns of sketches.
pub(crate) const SKETCH_ROUNDS: usize = 3;

/// Rows from which the columns of sketches are learned.
pub(crate) const SKETCH_SAMPLE: usize = 1024;

/// Upper limit of the number of rows for which a sweep notes changed labels and a checkpoint stores labels. With more
/// rows, labels that were lost are recomputed in a sweep: a note takes up to 3 bytes per row in memory, and a checkpoint
/// would take 4 bytes per row on the disk, each time it is written. Tests use few rows.
pub(crate) const NOTED_ROWS: usize = if cfg!(test) { 500 } else { 1 << 24 };

/// Upper limit of the share of changed labels for which the next sweep updates sums: updating for one changed
/// row takes the time of recomputing three rows (`peers.py`: at the second sweep about three tenths change).
pub(crate) const CARRIED_CHANGES: f64 = 1.0 / 3.0;

/// Sums are recomputed when the energy falls below this share of its value at the last recomputation, so that an
/// updated energy has 12 digits: following the centers, it is rounded in every sweep.
pub(crate) const CARRIED_ENERGY: f64 = 1e-3;

/// Rows that the kernel labels at a time: a multiple of the height of every micro tile. Their copy and a
/// panel must fit into the second-level cache (bench `kernels`, group `strip`).
pub(crate) const STRIP_ROWS: usize = 192;

/// Upper limit of the bytes of the copied rows of a strip; large `d` shortens the strip.
pub(crate) const STRIP_BYTES: usize = 384 * 1024;

/// Upper limit of the bytes of a strip of 96 rows, if the packed centers fit into the second-level cache and if they
/// do not. With half the rows, panels from the third-level cache are read twice as often: with 3072 columns, a sweep
/// takes 5 to 10% longer for 1024 centers, but 4 to 8% less for 16 (bench `kernels`).
const WIDE_STRIP_BYTES: [usize; 2] = [768 * 1024, 1536 * 1024];

/// Bytes of packed centers that fit into the second-level cache beside a strip.
const NEAR_CENTERS: usize = 1 << 20;

/// Rows of a strip whose copied rows take `row_bytes` each, for packed centers of `packed_bytes`.
pub(crate) const fn strip_rows(row_bytes: usize, packed_bytes: usize) -> usize {
    let wide = WIDE_STRIP_BYTES[(packed_bytes > NEAR_CENTERS) as usize];
    let fit = STRIP_BYTES / row_bytes / 48 * 48;
    if fit > STRIP_ROWS {
        STRIP_ROWS
    } else if fit >= 96 {
        fit
    } else if 96 * row_bytes <= wide {
        96
    } else {
        48
    }
}

/// Upper limit of the number of columns for kernels with rows in the lanes.
pub(crate) const ROWS_IN_LANES_DIM: usize = 16;

/// Up to so many columns, and from [`GROUPED_CENTERS`] centers on, kernels with rows in the lanes compare four centers
/// with the nearest so far at a time, and find the nearest of the four at the end. With 2 columns and 1024 centers this
/// takes 0.8 of the time; with 8 columns, the search at the end takes longer than it saves.
pub(crate) const GROUPED_DIM: usize = 4;

/// See [`GROUPED_DIM`].
pub(crate) const GROUPED_CENTERS: usize = 512;

/// Whether kernels hold rows in the lanes and broadcast centers, or the other way round (bench `kernels`,
/// group `low-d`).
///
/// With few columns, the reduction of running minima takes longer than the distances, and it is fastest with
/// rows in the lanes. This layout needs one register per column. With 16 registers and more than 4 columns it
/// is faster only for few centers, which would leave lanes empty.
pub(crate) const fn rows_in_lanes(dim: usize, k: usize, registers: usize) -> bool {
    dim <= ROWS_IN_LANES_DIM && (registers >= 32 || dim <= 4 || k <= 64)
}

/// Vectors of centers that a sparse row is compared with at a time: their sums, a value and a load fit into
/// 16 registers, and longer runs of a column need fewer cache lines (`sparse.py`).
pub(crate) const SPARSE_VECTORS: usize = 8;

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

/// Number of columns from which one bound per center is faster than one per panel, for any number of centers.
/// These bounds are read and written for every row that is in doubt, and let through two thirds as many
/// panels (`auto.py`: equal at 100 and 128 columns).
pub(crate) const FINE_DIM: usize = 160;

/// Number of centers up to which one bound per center is faster with fewer columns too.
pub(crate) const FINE_CENTERS: usize = 64;

/// Number of values of all centers from which rows of few columns have one bound per panel instead of one per
/// row: from 512 centers in 16 columns, 1024 in 8.
pub(crate) const GROUPED_VALUES: usize = 8192;

/// Number of centers from which one bound per row is faster in few columns: the distances to fewer centers
/// take the time of testing a bound.
pub(crate) const SINGLE_CENTERS: usize = 24;

/// Upper limit of the expected cost of a bounded sweep for which bounds begin, relative to a full sweep, with
/// one bound per row. The limit for keeping bounds is [`SINGLE_LATER`].
pub(crate) const SINGLE_AT_FIRST: f64 = 1.15;

/// See [`SINGLE_AT_FIRST`].
pub(crate) const SINGLE_LATER: f64 = 1.3;

/// As [`SINGLE_AT_FIRST`], with bounds per panel or center. They skip more distances with every sweep, so a
/// loss at first pays (`auto.py`).
pub(crate) const BOUNDED_AT_FIRST: f64 = 2.0;

/// See [`BOUNDED_AT_FIRST`].
pub(crate) const BOUNDED_LATER: f64 = 2.0;

/// Total loss, in full sweeps, at which bounds are dropped.
pub(crate) const BOUNDED_LOSS: f64 = 3.0;

/// Upper limit of the expected cost of a bounded sweep for which bounds begin again after they were dropped.
pub(crate) const BOUNDED_AGAIN: f64 = 0.9;

/// Sweeps without bounds after they are dropped: half the sweeps so far, at least this many.
pub(crate) const BOUNDED_PAUSE: u64 = 3;

/// Cost of a plain sweep with at most [`ROWS_IN_LANES_DIM`] columns, in nanoseconds per row: constant, per
/// column, per center, and per center and column. All sweep costs are those of one core with AVX-512
/// (`bounded.py --by-sweep`); only their ratios are used.
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

/// Share of the distances outside a row's own panel that a sweep with a bound per center is expected to
/// compute at most.
pub(crate) const FINE_SHARE: f64 = 0.25;

/// Panels per row whose distances a sweep with a bound per group is expected to compute at most. Their share
/// of all distances is limited to [`GROUPED_SHARE`].
pub(crate) const GROUPED_PANELS: f64 = 2.5;

/// See [`GROUPED_PANELS`].
pub(crate) const GROUPED_SHARE: (f64, f64) = (0.2, 1.3);

/// With one bound per row: expected share of doubtful rows per square root of the share of labels that changed.
pub(crate) const SINGLE_DOUBTFUL: f64 = 2.2;

/// With more bounds per row: expected share of doubtful rows per share of labels that changed.
pub(crate) const BOUNDED_DOUBTFUL: f64 = 20.0;

/// Whether rows of few columns are compared only with centers near their own center, as exponion does.
///
/// Each label of a tile needs a list of those centers, which takes some hundred distances, and each sweep
/// needs the distances between all centers. Enough rows must share both; fewer rows suffice if rows of one
/// label are consecutive, as reported by `in_runs`. Measured with `auto.py`, rows in random order, 256 centers,
/// 330 to 570 rows per center: 0.94 to 1.44 times as fast as one bound per row on nine sets of 2 to 10
/// columns, 1.15 in the mean; with 60 rows per center and fewer, mostly slower.
pub(crate) fn balls_pay(n: usize, k: usize, in_runs: impl FnOnce() -> bool) -> bool {
    k >= BALLS_FROM && (k <= n / BALLS_ROWS || k <= n / BALLS_ROWS_IN_RUNS && in_runs())
}

/// Number of centers from which [`balls_pay`].
const BALLS_FROM: usize = 192;

/// Rows per center from which balls pay off for rows in any order (see [`balls_pay`]). For rows in runs of
/// one label see [`BALLS_ROWS_IN_RUNS`].
const BALLS_ROWS: usize = 256;
const BALLS_ROWS_IN_RUNS: usize = 64;

/// Mean length of runs of one label from which rows count as being in runs.
pub(crate) const BALL_RUN: usize = 4;

/// Share of the distances of a full sweep above which a sweep with balls is slower. Distances that are
/// computed one by one are relatively more expensive with fewer columns. Both kinds of sweep (bench
/// `bounded.py --by-sweep`) take the same time at 4% with 2 columns, 3% with 3, 11% with 10, and 15% with 16.
pub(crate) fn ball_share(dim: usize) -> f64 {
    0.02 + 0.007 * dim as f64
}

/// Rows whose bounds a bounded sweep tests together: enough that the remaining rows fill micro tiles, few
/// enough to stay in the second-level cache (example of the bench `bounded`).
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

/// Number of centers from which rows with one bound search for the centers near their own center: computing
/// the distances to fewer centers is as fast.
pub(crate) const BALL_CENTERS: usize = 24;

/// Rows of a batch that one worker labels between two merges of sums: about 2 million multiplications, some
/// 30 microseconds. They hide the cost of scheduling a tile, and give a batch of a thousand rows enough tiles
/// for several threads.
pub(crate) fn batch_tile_rows(k: usize, dim: usize) -> usize {
    let rows = (1usize << 21) / (k * dim).max(1);
    (rows / STRIP_ROWS * STRIP_ROWS).clamp(STRIP_ROWS, tile_rows(k))
}

/// Rows of `row_bytes` each that mini-batch k-means seeds from, for `k` centers and batches of `batch` rows,
/// for any number of rows. Seeding takes the time of some dozens of batches (MNIST, k = 50: a fit makes
/// 110 to 160). At least 16 rows per center; beyond them at most 32 MB, as in `auto_seeding_sample`.
pub(crate) fn batch_seeding_sample(batch: u64, k: usize, row_bytes: usize) -> u64 {
    let fitting = ((32 << 20) / row_bytes.max(1) as u64).max(16 * k as u64);
    (3 * batch).max(16 * k as u64).min(fitting)
}

/// The factor by which a batch decays the per-cluster number of recent rows of stochastic backward Euler,
/// which covers some 100 batches.
pub(crate) const RECENT_STAYS: f64 = 0.99;

/// A cluster starves if it has less than this share of the rows of the mean cluster: steps of a useful length
/// hardly move its center. On real sets (`defaults.py`) clusters of exact k-means have 3% and more, except
/// clusters of a few outliers, which steps do not reach either.
pub(crate) const STARVED: f64 = 0.01;

/// Minimum mean rows per cluster before starvation is reported: of 200, a cluster with a twentieth of them
/// gets fewer than 2 once in 2,000 times.
pub(crate) const RECENT_ROWS: f64 = 200.0;

/// Upper limit of the threads of an executor per core: more threads only take turns and memory. More than
/// one, since a thread may wait for a disk or a stream.
pub(crate) const THREADS_A_CORE: usize = 4;

/// Number of threads that any machine may start, so that tests can check that results do not depend on the
/// number of threads.
pub(crate) const THREADS_ANYWHERE: usize = 16;

/// Upper limit of the rows of a batch from which the variance of the data is estimated: to 1%, which is more
/// than a tolerance needs.
pub(crate) const VARIANCE_ROWS: u64 = 16_384;

/// A distributed sweep sums squared errors about the centers of an earlier sweep while the moves since then, squared and
/// weighted, add up to at most this share of the squared errors. Converting the sums to the centers then rounds away about
/// one bit.
pub(crate) const CARRIED_MOVES: f64 = 1.0;

/// The most rows that a partial result of a distributed sweep keeps for empty clusters, and so the most clusters that
/// move in one sweep. More rows would make partial results larger than their sums when `k` is small. Clusters
/// that remain empty move in the next sweep.
pub(crate) const FARTHEST_ROWS: usize = 16;

/// Rows per tile of squared distances in k-means++: a draw scans one tile, and a pass schedules `n` divided
/// by this number of tiles.
pub(crate) const SEEDING_TILE_ROWS: usize = 4096;

/// Whether sketches of `n` rows pay for choosing `k` centers by k-means++ (`seeding.py`): sketching takes as long as
/// comparing the rows with a few dozen candidates. They take at most a byte per column and about 60 per row, and must fit
/// into 1 GiB.
pub(crate) fn seeding_sketches_pay(n: usize, k: usize, dim: usize) -> bool {
    dim >= 32 && k >= 32 && n >= 4096 && n * (dim + 60) <= 1 << 30
}

/// Centers from which on k-means++ compares candidates by sketches.
pub(crate) const SEEDING_PLAIN: usize = 16;

/// Most rows on which `Seeding::Auto` runs greedy k-means++ for `k` centers. It computes up to `k (2 + ln k)` distances
/// per row. On up to 50,000 rows, fits after k-means|| end 0.3 to 2.9% higher with 100 clusters and up to 0.5% with 1,000
/// (`init.py`); with more rows they end as low, in less time.
pub(crate) fn greedy_seeding_rows(k: usize) -> u64 {
    (32 * k as u64).max(65_536)
}

/// Candidates per center and round, and rounds, of k-means|| for methods whose fits read few rows (`rare.py`): three
/// distances per row and center in four passes. With half a candidate, some of many equal groups far from each other get
/// no center: mini-batches then end at about twice the inertia. With 2 and 5, seeding takes twice as long, and ends as low.
pub(crate) const BRIEF_CANDIDATES: (f64, usize) = (1.0, 3);

/// The same for the rough solution of coresets, which also draw rows far from all candidates. More candidates take longer,
/// and coresets are as good (`rare.py`).
pub(crate) const CORESET_CANDIDATES: (f64, usize) = (0.5, 3);

/// Rows up to which the default seeding and coresets keep a distance per row, 16 bytes each: at most 1 GiB. More rows are
/// seeded on a coreset of their parts.
pub(crate) const BRIEF_ROWS: u64 = 1 << 26;

/// Bytes of the rows of such a part, which are copied if the source is a stream.
pub(crate) const CORESET_PART_BYTES: usize = 1 << 30;

/// Rows of the coreset that more rows are seeded on, for `k` centers: as many as greedy k-means++ takes without one, and
/// for thousands of centers only a few per center, because they are copied (`rare.py`, "kmeans, parts").
pub(crate) fn coreset_seeding_rows(k: usize) -> u64 {
    greedy_seeding_rows(k).min((4 * k as u64).max(131_072))
}

/// Centers from which `Seeding::Auto` draws so few candidates: greedy k-means++ on all rows, or among ten candidates per
/// center, would take longer than the sweeps.
pub(crate) const BRIEF_CENTERS: usize = 4000;

/// Chains of `chain` candidates that AFK-MC2 begins together, with `centers` centers so far. The kernels
/// compute the distances of the candidates to these centers. Distances to centers that are added meanwhile, a
/// 64th of all, are computed from differences, at an eighth of the rate. Copies of the candidates take at
/// most 32 MB, if those of one chain do.
pub(crate) fn chains_together(centers: usize, chain: usize, row_bytes: usize) -> usize {
    let fitting = (32 << 20) / chain.saturating_mul(row_bytes).max(1);
    (centers / 32).clamp(8, fitting.max(8))
}

/// Rows between two merges in the pass of a coreset: a merge takes some operations per column.
pub(crate) const CORESET_TILE_ROWS: usize = 8192;

/// Bytes of rows in one step of the pass of a coreset: about a tenth of a second between two signs of progress.
pub(crate) const CORESET_STEP_BYTES: usize = 256 << 20;

/// Share of the rows of a file from which a subset is read in a pass that reads ahead. With a smaller share,
/// most of the bytes that the pass reads would be unused (pages of 4 KiB hold 4 to 40 rows of usual length).
pub(crate) const SUBSET_SHARE: f64 = 1.0 / 8.0;

/// Upper limit of the share of changed labels in an iteration of nested batches for which bounds begin:
/// before, most bounds fail and take more time than they save.
pub(crate) const NESTED_BOUNDS_CHANGES: f64 = 0.15;

/// Number of columns from which bounds of nested batches are faster, for any number of centers: with 50 and
/// 256 centers, iterations without bounds take 0.7 to 1.1 times as long at 3 and 8 columns, 1.1 to 1.7 at 12, 1.2
/// to 2.8 at 16, 2.8 to 3.1 at 24.
pub(crate) const NESTED_BOUNDS_DIM: usize = 16;

/// Rows that a worker labels together for steps of variance-reduced k-means: enough to fill micro tiles.
pub(crate) const STEPS_TOGETHER: usize = 64;

/// Lower limit of the steps that are drawn together: slightly more than one micro tile.
pub(crate) const STEPS_LEAST: usize = 16;

/// Upper limit of the steps that are drawn together: distances of their rows become outdated with every
/// center that moves.
pub(crate) const STEPS_AHEAD: usize = 1024;

/// Values of centers and rows that steps read or change between two checks for an interrupt: a few milliseconds.
pub(crate) const STEPS_CHECKED: u64 = 1 << 22;

/// Upper limit of the squared move of all centers in a step: the sum of squared distances of 2^50 rows to
/// such centers is still finite.
pub(crate) const MOST_SQ_MOVE: f64 = f64::MAX * f64::EPSILON * f64::EPSILON;

/// A step of backward Euler has diverged when the mean squared distance of a batch to its centers is this
/// many times the scale of the rows. On Iris the longest useful step (2 per cluster) reaches 100 times, the
/// longest step that converges (2.7) reaches 1300, and values beyond a million grow without limit.
pub(crate) const DIVERGED: f64 = 1e6;

/// Upper limit of the bytes of copied rows of steps that are drawn together.
pub(crate) const STEPS_AHEAD_BYTES: usize = 16 << 20;

/// Number of centers, of `k` in panels of `panel`, that may move far before distances are computed again. A
/// row in doubt is compared with all of them.
pub(crate) fn few_centers(k: usize, panel: usize) -> usize {
    if k < 2 * panel { 0 } else { panel * (k / (4 * panel)).clamp(1, 4) }
}

/// Rows of `row_bytes` each from which variance-reduced k-means draws steps when rows are read in passes: at
/// most 32 MB, so that memory does not grow with the number of rows, and enough to give nearly the result of
/// draws from all rows.
pub(crate) fn stretch_rows(row_bytes: usize) -> usize {
    ((32 << 20) / row_bytes.max(1)).clamp(256, 16_384)
}

/// Rows of `n` for which one worker computes responsibilities of `k` components between two merges: an eighth
/// of all, which gives several threads work, but enough that merging the sums of all components takes little
/// of the time. At most 32,768, of which thousands of components have some rows each.
pub(crate) fn mixture_tile_rows(n: usize, k: usize) -> usize {
    (n / 8).max(k).next_multiple_of(1024).min(32_768)
}

/// Cells of means that a row searches in its first search. With two cells, 99% of rows find their nearest
/// mean in 2 columns and among scaled connections, 88% in 40 columns, and 55 to 76% in 128 and 3072 columns,
/// where the mean squared distance to the found means is 4 to 8% larger. Later searches find the others. A
/// third cell takes a quarter more distances.
pub(crate) const PROBED_CELLS: usize = 2;

/// Rows of `row_bytes` each for which a worker computes responsibilities together, if each row evaluates up
/// to `looks` components. They are processed in the order of their components, so that rows of one component
/// find its center, neighbors and sums in the cache. More rows are better, up to 16 MB of converted rows and
/// a million evaluated components.
pub(crate) fn mixture_chunk_rows(row_bytes: usize, looks: usize) -> usize {
    ((16 << 20) / row_bytes.max(1)).min((1 << 20) / looks.max(1)).max(STRIP_ROWS)
}

/// Rows whose neighbors one worker searches between two merges: a few strips, so that a small part has work
/// for several threads.
pub(crate) const GRAPH_TILE_ROWS: usize = 2 * STRIP_ROWS;

/// Rows of `dim` columns that are packed at a time to find the neighbors of `n` rows. A distance to an
/// earlier row serves both rows, so more parts compute fewer distances twice. But every part reads each row
/// again, which takes the time of a few dozen distances.
pub(crate) fn graph_block_rows<T>(n: usize, dim: usize) -> usize {
    (n / 16).max(512).min(packed_rows::<T>(dim)).next_multiple_of(32)
}

/// Upper limit of the rows of `dim` columns that a thread packs at a time: 2048, and 64 MB, where a packed
/// value takes three times its size.
pub(crate) fn packed_rows<T>(dim: usize) -> usize {
    ((64 << 20) / (3 * size_of::<T>() * dim)).clamp(16, 2048)
}

/// Rows that search a part of a cell together: enough to make its packing, of `dim` columns, cheap, also if
/// rows store only `values` of them.
pub(crate) fn visitors_together(dim: usize, values: usize) -> usize {
    (32 * dim / values).max(2048)
}

/// Visits that run at the same time without each other's results: enough for many threads, few enough that
/// rows soon know their search radius.
pub(crate) const VISITS_TOGETHER: usize = 64;

/// Upper limit of the results of such visits, at 24 bytes each.
pub(crate) const NEWS_TOGETHER: usize = 4 << 20;

/// Pairs of a row and a cell to search that are stored at a time, at 16 bytes each, or the number of rows if
/// it is larger. All cells are packed each time.
pub(crate) const LOOKS_TOGETHER: u64 = 8 << 20;

/// Whether a k-d tree finds the neighbors of `n` rows faster than brute force: with more columns it visits
/// more of the rows.
pub(crate) fn tree_pays(n: u64, dim: usize) -> bool {
    dim <= 16 && n as f64 >= 256.0 * 2f64.powf(dim as f64 / 2.0)
}

/// Whether brute force for `n` rows takes at most minutes, by its number of multiplications.
pub(crate) fn brute_force_pays(n: u64, dim: usize) -> bool {
    0.5 * n as f64 * n as f64 * dim as f64 <= 1e13
}

/// Rows per leaf of a k-d tree: fewer rows need more boxes, more rows need more distances.
pub(crate) const LEAF_ROWS: usize = 16;

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

/// Rows whose true neighbors are computed to measure the recall: with 5 neighbors each, a recall of 0.95 has
/// an error of half a percent.
pub(crate) const RECALL_ROWS: usize = 384;

/// Rows of a cluster that are compared with each other to find the densest: more rows take longer than the
/// iterations, and the first mode need not be the best.
pub(crate) const DENSITY_ROWS: usize = 1024;

/// Bytes of responsibilities that fit into a near cache. If there are more, rows are ordered to keep
/// neighbors together: in the order of the data, two thirds of the time of an update were spent waiting for
/// the responsibilities of neighbors (70,000 rows, k = 10).
pub(crate) const NEAR_BYTES: usize = 128 << 10;

/// Lower limit of the square of a shift over the median squared distance of the centers from it, if a few
/// outlying centers spoil the mean: with a smaller ratio, a shift would save at most four binary digits of a
/// tile value.
pub(crate) const CLUMPED: f64 = 16.0;

/// The first step size of backward Euler by default, in numbers of clusters (`papers/sbe.py`, steps; `defaults.py`).
pub(crate) const AUTO_STEP: f64 = 3.0;

/// The share of [`AUTO_STEP`] that the last step of a fit has by default.
pub(crate) const AUTO_END: f64 = 1.0 / 20.0;

/// Bytes of a mapped file between two checks of its length: a check takes 0.1 to 0.2 µs, reading so many
/// bytes at least 20 µs.
pub(crate) const LENGTH_STEP: usize = 256 << 10;

/// Number of centers of which all pairs are compared to find centers that squared differences cannot tell apart:
/// 120 pairs take less time than one row against a thousand centers.
pub(crate) const COMPARED_CENTERS: usize = 16;

/// The ratio of the mean to the smallest row sum of a neighbor graph: a row that is no neighbor of another
/// row has half the weights.
pub(crate) const MEAN_OVER_LEAST: f64 = 2.0;

/// Columns from which on Laplacian K-modes scales rows to length 1 unless told otherwise. Shapes in two and three columns
/// must not be scaled. With 5 to 15 columns, some sets are better scaled and some are not (`shapes.py`).
pub(crate) const DIRECTION_COLUMNS: usize = 8;

/// The fewest and the most rows on which this decision is based, and about how many values they may have.
pub(crate) const DIRECTION_ROWS: [u64; 2] = [64, 1024];
pub(crate) const DIRECTION_VALUES: u64 = 1 << 24;

/// The share of nonzero values up to which rows are counts of rare things, whose lengths say little: word counts, at
/// most 1%.
pub(crate) const DIRECTION_FILLED: f64 = 0.1;

/// The share of the variance that lengths must have for rows not to be scaled: scaling would leave nearly nothing. Images
/// and sounds have up to 49% (`shapes.py`).
pub(crate) const DIRECTION_LENGTHS: f64 = 0.99;

/// The fewest and the most neighbors of a graph of Laplacian K-modes, unless told otherwise. The fewest are those of the
/// paper. On the sets of shapes, 10 are always enough (`shapes.py`).
pub(crate) const NEIGHBORS: [usize; 2] = [5, 40];

/// A connected component with fewer rows than this share of the mean cluster size is no cluster of its own. The same
/// number is in `_kmodes/spectral.py`.
pub(crate) const SMALL_PART: f64 = 0.1;

/// The share of true neighbors that an approximate graph of Laplacian K-modes must find.
pub(crate) const GRAPH_RECALL: f64 = 0.95;

/// Idle thread pools that are kept, in addition to the pool requested last: a caller that alternates between
/// two thread counts reuses both.
pub(crate) const IDLE_POOLS: usize = 1;

/// Rows of a branch of the tree of blocks: its rows and their copy by columns fit into the second-level cache
/// while the branch is built. A sweep tests all centers against every branch, which must be few distances
/// for each row.
pub(crate) const BLOCK_BRANCH_ROWS: usize = 4096;

/// Rows of a leaf: a few vectors. Smaller leaves hold fewer candidates, and more boxes must be tested.
pub(crate) const BLOCK_LEAF_ROWS: usize = 64;

/// Sampled rows for each branch, from which the splits between the branches are made.
pub(crate) const BLOCK_BRANCH_SAMPLE: usize = 64;

/// Sampled rows for each leaf, from which the splits of a branch are made.
pub(crate) const BLOCK_LEAF_SAMPLE: usize = 8;

/// Fewest rows and fewest centers for which `Algorithm::Auto` tries blocks: the tree costs about two plain sweeps.
pub(crate) const BLOCK_ROWS: usize = 16_384;
pub(crate) const BLOCK_CENTERS: usize = 16;

/// Fewest sweeps that a fit may take for `Algorithm::Auto` to try blocks.
pub(crate) const BLOCK_SWEEPS: u64 = 8;

/// Blocks are given up if a sweep computes more than this share of all distances.
pub(crate) const BLOCK_SHARE: f64 = 0.15;

/// How far a center may move until the lists of candidates of its blocks are made again, in multiples of its last
/// move.
pub(crate) const SKIN_MOVES: f32 = 3.0;

/// The least of that, and the most for which lists are kept at all, in radii of a leaf.
pub(crate) const SKIN_LEAST: f32 = 0.25;
pub(crate) const SKIN_MOST: f32 = 1.5;

/// Rows of groups that a worker compares or sums together: enough to hide the cost of scheduling them.
pub(crate) const GROUPED_ROWS: usize = 2048;

/// Largest number of children of a node of the tree of hierarchical k-means: two levels, of which the last splits
/// nodes of up to twice the mean quota at once.
pub(crate) fn branching(k: usize) -> usize {
    (2.0 * (k as f64).sqrt()).ceil().max(2.0) as usize
}

/// Rows that a node with so many children is fitted to: 256 per child, as faiss trains inverted lists.
pub(crate) fn node_sample(children: usize) -> usize {
    256 * children
}

/// Sweeps of the k-means fit of a node (40,000 SIFT descriptors, 4,000 clusters: 1, 2 and 6 sweeps end within 0.2%).
pub(crate) const NODE_SWEEPS: u64 = 6;

/// Products of a sweep over the rows of a node up to which one thread fits the node: a few milliseconds, of which the
/// start of the threads would be a large part. Threads share larger nodes.
pub(crate) const SMALL_NODE_WORK: u64 = 1 << 27;

/// Columns up to which the nodes of a tree of hierarchical k-means begin by greedy k-means++, where it takes less time
/// than the other steps. (SIFT descriptors, 20,000 clusters: four sweeps then end 0.6% lower, but the tree takes eight
/// times as long. Its sweeps gain more in this time.)
pub(crate) const GREEDY_NODE_COLUMNS: usize = 32;

/// Centers from which a tree seeds the cells of a search for duplicates. With 4,000 centers of SIFT descriptors, greedy
/// k-means++ takes five times as long as the sweeps that follow it, a tree a seventh, and k-means ends within 0.05%
/// (`hierarchical.py`, init).
pub(crate) const TREE_CENTERS: usize = 4000;

/// Default of all memory budgets, in bytes. It also bounds the rows that a node of the tree of `Seeding::Hierarchical` is
/// fitted to.
pub(crate) const DEFAULT_MEMORY: u64 = 1_000_000_000;

/// Whether lists of the centers around each of `k` centers of `dim` columns cost little beside the last pass over `n`
/// rows, which compares most rows with all centers. A pair of centers takes about five times as long as a row
/// and a center, because near ones are kept in order.
pub(crate) fn exact_lists_pay(k: usize, dim: usize, n: usize) -> bool {
    tree_pays(k as u64, dim) || 50 * k <= n || k <= 1024
}

/// Fewest centers for which an approximate search uses cells: among fewer, an exact search takes milliseconds per
/// thousand rows.
pub(crate) const SEARCH_CENTERS: usize = 1024;

/// Rows on which the number of searched cells is chosen and the recall is measured: a recall of 0.99 has an error of
/// 0.3%.
pub(crate) const SEARCH_SAMPLE_ROWS: usize = 1024;

/// Largest share of the cells of `k` centers of `dim` columns that a row may search: with more, an exact search takes
/// less time. Certified products are several times as fast. (100,000 SIFT descriptors, 20,000 centers: an exact search
/// takes 1.5 s, 2.5% of the cells 0.9 s, 12% of the cells 2.3 s.)
pub(crate) fn search_share(k: usize, dim: usize) -> f64 {
    if certified_pays(k, dim) { 0.05 } else { 0.2 }
}

/// Rows of `row_bytes` each that search cells together: enough that packing the centers of a cell takes a small part
/// of the time.
pub(crate) fn search_chunk_rows(row_bytes: usize) -> usize {
    ((8 << 20) / row_bytes.max(1)).clamp(1024, 8192)
}

/// Default number of candidates of sweeps by lists, and of those by cells; and the default share of the labels at which
/// either end. With few rows per cluster flat k-means is fast, and ends higher. (`rare.py`, hierarchical: 10 letters per
/// cluster take a fifth of the time of 128 and 0.001, and end 1.0% higher, which is 0.8% below flat k-means.)
pub(crate) const LISTED: usize = 128;
pub(crate) const CELL_LISTED: usize = 32;
pub(crate) const LIST_TOLERANCE: f64 = 1e-3;
pub(crate) const CELL_TOLERANCE: f64 = 0.02;

/// Centers that a row is compared with in a sweep by cells, in multiples of the number of candidates. (200,000 SIFT
/// descriptors, 20,000 clusters, 20 sweeps: 1, 2 and 4 times 128 end 6.0%, 7.1% and 7.5% below flat k-means, in 9, 15
/// and 29 s.)
pub(crate) const CELL_CANDIDATES: usize = 2;

/// Nearest centers of a row, in such a sweep, among which the cluster is chosen that the row moves to. (The same with 2:
/// 6.9% instead of 7.1%, in 12 s instead of 15 s.)
pub(crate) const CELL_NEAREST: usize = 3;

/// How far the centers that breathing k-means adds lie from those they copy, in root mean squared distances of rows to
/// their centers (Fritzke, 2020).
pub(crate) const BREATH_OFFSET: f64 = 0.01;

/// Breaths in a row that may fail before fewer centers are added: the first splits the clusters with the largest
/// errors, the others split drawn ones (`breathing.py`, known).
pub(crate) const BREATH_TRIES: u64 = 3;

/// The factor on the tolerance of the run that ends a fit (`breathing.py`, known).
pub(crate) const BREATH_LAST_TOLERANCE: f64 = 0.01;

/// Most sweeps of any other run of exact k-means of a breathing fit, as of a start of k-means.
pub(crate) const BREATH_RUN_SWEEPS: u64 = 300;

/// Centers that a row of balanced k-means may belong to in the first round: those with the smallest squared distance
/// plus price. Each further round has four times as many. Up to twice as many clusters are all candidates
/// (`balanced.py`).
pub(crate) const BALANCED_CANDIDATES: usize = 8;

/// Most rounds for the same centers, and the gap at which no further round is made (`balanced.py`, identical).
pub(crate) const BALANCED_ROUNDS: usize = 6;
pub(crate) const BALANCED_GAP: f64 = 1e-3;

/// The share of the weight that exact k-means puts into wrong clusters from which on balanced k-means begins on samples.
pub(crate) const BALANCED_COARSE: f64 = 0.05;

/// Rows per cluster of the first sample, the factor from a sample to the next, and most rows per cluster of a sample
/// (`balanced.py`, limits). Paths on the first one are few; each further one has prices that keep most rows in place.
pub(crate) const BALANCED_SAMPLE: usize = 4;
pub(crate) const BALANCED_GROWTH: usize = 4;
pub(crate) const BALANCED_SAMPLE_MOST: usize = 256;

/// Most sweeps over a sample, and the share by which each must lower the energy.
pub(crate) const BALANCED_SAMPLE_SWEEPS: usize = 40;
pub(crate) const BALANCED_SAMPLE_TOLERANCE: f64 = 3e-3;

/// How far centers move in a sweep with limits, relative to the way to the means, as long as more than this share of the
/// rows change their clusters: fewer sweeps (`balanced.py`, limits).
pub(crate) const BALANCED_RELAXATION: f64 = 1.5;
pub(crate) const BALANCED_RELAXED: f64 = 0.002;

/// The share of the weight in wrong clusters at which the ascent of prices ends: shortest paths move what is left.
pub(crate) const BALANCED_SETTLED: f64 = 5e-3;

/// The share of the weight in wrong clusters up to which rows with weights get no further candidates.
pub(crate) const BALANCED_IMBALANCE: f64 = 0.01;

/// Most steps of the ascent, and most steps of conjugate gradients in each.
pub(crate) const BALANCED_STEPS: usize = 30;
pub(crate) const BALANCED_CONJUGATE: usize = 200;

/// Steps along the slopes with weights, and the factor from the length of a step to the next (`balanced.py`, weighted).
pub(crate) const BALANCED_PLAIN_STEPS: usize = 60;
pub(crate) const BALANCED_DECAY: f64 = 0.93;

/// The rows whose regret is at most this share of the mean of their border tell the weight near the border.
pub(crate) const BALANCED_BORDER: f64 = 0.2;

/// The arcs of shortest paths that are listed at first: up to this share of the mean regret, unless more than that share
/// of the rows has to move.
pub(crate) const BALANCED_REACH: f64 = 0.25;
pub(crate) const BALANCED_FAR: f64 = 0.05;

/// Rows of a tile whose choices are summed at a time.
pub(crate) const BALANCED_TILE_ROWS: usize = 4096;

/// Rows of a tile whose distances to all `k` centers are kept until it is their turn: at most 2 MB.
pub(crate) fn repair_tile_rows(k: usize) -> usize {
    ((1 << 18) / k.max(1)).clamp(1, 256)
}

/// The first number of cells for finding duplicates among `n` rows, which doubles as long as that saves work. A few thousand
/// rows are compared in one cell. If only `n_probes` cells are searched, more cells save nothing.
/// Rows in thousands of tight groups need more than the first number.
pub(crate) fn duplicate_cells(n: u64, n_probes: Option<usize>) -> usize {
    match n_probes {
        _ if n <= 4096 => 1,
        None => ((n as f64).sqrt() / 2.0) as usize,
        Some(probes) => ((n as f64 * probes as f64).sqrt() as usize).min(n as usize / 2),
    }
}

/// Rows from which the work of a search for duplicates, and the recall of an approximate one, are estimated.
pub(crate) const DUPLICATE_SAMPLE: usize = 1024;

/// Rows that are compared with rows of a cell together: their pairs take at most some 32 MB.
pub(crate) const DUPLICATE_VISITORS: usize = 2048;

/// Multiplications of a step of a search for duplicates: some tens of seconds on two cores.
pub(crate) const DUPLICATE_STEP: f64 = 2e12;

/// The least share of the rows on a side of a split cell, and the sweeps of its 2-means.
pub(crate) const PARTITION_LEAST_SHARE: f64 = 1.0 / 3.0;
pub(crate) const PARTITION_SPLIT_SWEEPS: usize = 6;

/// The largest number of parts that a cell is split into at once: its rows are compared with the centers of all parts.
pub(crate) const PARTITION_PARTS: usize = 64;

/// Cells around a split cell whose rows may move to its parts: nine in ten of the moves of all cells (`partitions.py`).
pub(crate) const PARTITION_NEIGHBORS: usize = 16;

/// Cells that an update fetches because their centers drifted, as a share of those that it fetches anyway
/// (`partitions.py`, drift).
pub(crate) const PARTITION_REFRESHED: f64 = 0.3;

/// Largest share of the cells that an update fetches, other than to split or join them.
pub(crate) const PARTITION_MOST_FETCHED: f64 = 0.75;

/// Sweeps over the fetched cells, and centers that a row is compared with (`partitions.py`).
pub(crate) const PARTITION_SWEEPS: usize = 12;
pub(crate) const PARTITION_CANDIDATES: usize = 48;
