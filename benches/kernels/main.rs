//! Speed of the kernels; see `benches/README.md`.
//!
//! Without arguments it prints the tables. With a name or part of a name it runs the criterion groups that match.

#![allow(missing_docs)]

mod intrinsics;

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, Throughput};
use shoal::data::Dense;
use shoal::kernel::{Isa, PackedCenters, Scratch, nearest};
use shoal::{KMeans, MatRef, Seeding};

use intrinsics::{Real, peak};

const DIMS: [usize; 13] = [2, 3, 4, 8, 16, 32, 64, 128, 256, 384, 768, 1024, 3072];
const CENTERS: [usize; 5] = [8, 64, 256, 1024, 4096];
/// Instruction sets with products of low precision, and those with the same vectors without them.
const CERTIFIED: [(Isa, Isa); 4] = [
    (Isa::NeonDot, Isa::Neon),
    (Isa::AvxVnni, Isa::Avx2),
    (Isa::Avx512Vnni, Isa::Avx512),
    (Isa::Amx, Isa::Avx512),
];
/// Rows per product of the `gemm` crate; the faster one counts.
const BLOCKS: [usize; 2] = [768, 3072];
/// Numbers of rows are multiples of this, so that neither side has a remainder.
const GRAIN: usize = 192;

const HELP: &str = "\
cargo bench --bench kernels -- [OPTIONS]          the tables
cargo bench --bench kernels -- FILTER             criterion groups whose name contains FILTER
  --quick             few cells, few rounds
  --isa NAMES         avx512,avx2,... (default: all that the processor has but scalar)
  --type f32|f64      (default f32)
  --dims 64,128 --centers 256,1024    cells of the grid
  --rounds N          interleaved rounds of a cell (default 9)
  --only grid|threads|certified
  --csv PATH          writes the table too";

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |name: &str| args.iter().any(|a| a == name);
    if has("--list") {
        return;
    }
    if has("--help") || has("-h") {
        println!("{HELP}");
        return;
    }
    let options = match Options::parse(&args) {
        Ok(options) => options,
        Err(what) => {
            eprintln!("{what}\n{HELP}");
            std::process::exit(2);
        }
    };
    if options.smoke {
        // `--test`, or `cargo test --benches`: a smoke run that measures nothing.
        options.tables::<f32>();
        options.tables::<f64>();
        groups(&mut Criterion::default().configure_from_args());
    } else if options.filter {
        groups(&mut Criterion::default().configure_from_args());
    } else if options.double {
        options.tables::<f64>();
    } else {
        options.tables::<f32>();
    }
}

// ---------------------------------------------------------------- options

#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Options {
    smoke: bool,
    filter: bool,
    double: bool,
    isas: Vec<Isa>,
    dims: Vec<usize>,
    centers: Vec<usize>,
    rounds: usize,
    /// Operations per timing.
    work: f64,
    grid: bool,
    threads: bool,
    certified: bool,
    csv: Option<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let mut o = Self {
            smoke: !args.iter().any(|a| a == "--bench"),
            filter: false,
            double: false,
            isas: vectors().into_iter().filter(|&isa| isa != Isa::Scalar).collect(),
            dims: DIMS.to_vec(),
            centers: CENTERS.to_vec(),
            rounds: 9,
            work: 2e9,
            grid: true,
            threads: true,
            certified: true,
            csv: None,
        };
        let mut it = args.iter();
        while let Some(arg) = it.next() {
            let mut value = || it.next().ok_or(format!("{arg} needs a value"));
            let list = |text: &str| -> Result<Vec<usize>, String> {
                text.split(',').map(|s| s.parse().map_err(|_| format!("{arg}: {s:?} is no number"))).collect()
            };
            match arg.as_str() {
                "--bench" | "--noplot" => {}
                "--test" => o.smoke = true,
                "--quick" => (o.dims, o.centers, o.rounds) = (vec![4, 32, 128, 768], vec![64, 1024], 3),
                "--isa" => {
                    let names = value()?;
                    o.isas = names
                        .split(',')
                        .map(|s| s.parse::<Isa>().map_err(|e| e.to_string()))
                        .collect::<Result<_, _>>()?;
                    if let Some(isa) = o.isas.iter().find(|isa| !isa.is_available()) {
                        return Err(format!("this processor has no {isa}"));
                    }
                }
                "--type" => {
                    o.double = match value()?.as_str() {
                        "f32" => false,
                        "f64" => true,
                        other => return Err(format!("--type must be f32 or f64, got {other:?}")),
                    }
                }
                "--dims" => o.dims = list(value()?)?,
                "--centers" => o.centers = list(value()?)?,
                "--rounds" => o.rounds = list(value()?)?[0].max(1),
                "--only" => match value()?.as_str() {
                    "grid" => (o.threads, o.certified) = (false, false),
                    "threads" => (o.grid, o.certified) = (false, false),
                    "certified" => (o.grid, o.threads) = (false, false),
                    other => return Err(format!("--only must be grid, threads or certified, got {other:?}")),
                },
                "--csv" => o.csv = Some(value()?.clone()),
                flag if flag.starts_with('-') => return Err(format!("unknown option {flag}")),
                _ => o.filter = true,
            }
        }
        if let Some(k) = o.centers.iter().find(|k| !k.is_multiple_of(8) || **k == 0) {
            return Err(format!("--centers must be multiples of 8, got {k}"));
        }
        if o.dims.contains(&0) {
            return Err("--dims must be at least 1".into());
        }
        if o.smoke {
            (o.dims, o.centers, o.rounds, o.work) = (vec![2, 40], vec![8, 64], 1, 1e6);
        }
        Ok(o)
    }

    fn tables<T: Real>(&self) {
        let library = Library::probe::<T>();
        let mut csv = format!(
            "# cpu: {}\n# cores: {}, type: {}, rounds: {}, gemm: {}\n",
            cpu(),
            cores(),
            T::NAME,
            self.rounds,
            library.describe()
        );
        print!("{csv}");
        if self.grid {
            self.table::<T>(&mut csv);
        }
        if self.threads {
            self.curve::<T>(&mut csv);
        }
        if self.certified && T::NAME == "f32" {
            self.certified(&mut csv);
        }
        if let Some(path) = &self.csv {
            if let Some(folder) = std::path::Path::new(path).parent() {
                std::fs::create_dir_all(folder).expect("the folder of --csv can be made");
            }
            std::fs::write(path, csv).expect("--csv can be written");
        }
    }
}

/// The available instruction sets that differ in their vectors.
fn vectors() -> Vec<Isa> {
    Isa::available().into_iter().filter(|isa| !CERTIFIED.iter().any(|(tier, _)| tier == isa)).collect()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|s| s.trim_matches([' ', '\t', ':']));
    name.unwrap_or(std::env::consts::ARCH).to_owned()
}

// ---------------------------------------------------------------- one thread: grid

/// Results of all rounds of one instruction set.
#[derive(Default)]
struct Rounds {
    rate: Vec<f64>,
    peak: Vec<f64>,
    ratio: Vec<f64>,
    differing: usize,
}

impl Options {
    fn table<T: Real>(&self, csv: &mut String) {
        println!(
            "\nOne thread. GFLOP/s = 2nkd/t; medians of interleaved rounds; peak: multiply-adds of one core, in the same round."
        );
        println!("ratio: shoal / (gemm + argmin); differing: rows that the two label differently.");
        println!(
            "{:>5} {:>5} {:>7} {:>7} | {:>9} {:>7} {:>7} | {:>7} {:>9} {:>6} | {:>9}",
            "d", "k", "n", "isa", "shoal", "peak", "share", "gemm", "block", "ratio", "differing"
        );
        csv.push_str("table,d,k,n,isa,shoal_gflops,peak_gflops,share,gemm_gflops,gemm_block,gemm_layout,ratio,rows_differing\n");
        for &d in &self.dims {
            for &k in &self.centers {
                self.cell::<T>(d, k, csv);
            }
        }
    }

    fn cell<T: Real>(&self, d: usize, k: usize, csv: &mut String) {
        let flops_a_row = 2.0 * (k * d) as f64;
        let most = if self.smoke { 960 } else { 400_000 };
        let least = if self.smoke { GRAIN } else { BLOCKS[1] };
        let n = ((self.work / flops_a_row) as usize).clamp(least, most).next_multiple_of(GRAIN);
        let flops = flops_a_row * n as f64;
        let calls = ((self.work / 4.0 / flops) as usize).clamp(1, 64);
        let mut noise = Noise(88_172_645_463_325_252);
        let (x, c): (Vec<T>, Vec<T>) = (noise.take(n * d), noise.take(k * d));
        let rows = MatRef::new(&x, d);
        let packed: Vec<_> =
            self.isas.iter().map(|&isa| PackedCenters::for_isa(MatRef::new(&c, d), isa)).collect();
        let mut scratch = Scratch::default();
        let (mut ours, mut theirs) = (vec![0u32; n], vec![0u32; n]);
        let mut library = Library::fit(&x, &c, d, &mut theirs);

        let mut all: Vec<Rounds> = self.isas.iter().map(|_| Rounds::default()).collect();
        let mut library_rates = Vec::new();
        for round in 0..=self.rounds {
            let t = Instant::now();
            for _ in 0..calls {
                library.run(black_box(&x), &c, d, &mut theirs);
            }
            let library_rate = flops * calls as f64 / t.elapsed().as_secs_f64();
            for (centers, (&isa, found)) in packed.iter().zip(self.isas.iter().zip(&mut all)) {
                // The peak comes first, so that the core already runs at the clock of these vectors when the
                // kernel starts.
                let peak = peak::<T>(isa, if self.smoke { 1 } else { 50_000 });
                let t = Instant::now();
                for _ in 0..calls {
                    nearest(black_box(rows), centers, &mut ours, &mut scratch);
                }
                let rate = flops * calls as f64 / t.elapsed().as_secs_f64();
                // Round 0 is a warm-up.
                if round == 0 {
                    found.differing = ours.iter().zip(&theirs).filter(|(a, b)| a != b).count();
                } else {
                    found.rate.push(rate);
                    found.peak.push(peak);
                    found.ratio.push(rate / library_rate);
                }
            }
            if round > 0 {
                library_rates.push(library_rate);
            }
        }
        let gemm = median(&library_rates) * 1e-9;
        for (isa, found) in self.isas.iter().zip(&all) {
            let share: Vec<f64> = found.rate.iter().zip(&found.peak).map(|(r, p)| r / p).collect();
            let (rate, peak) = (median(&found.rate) * 1e-9, median(&found.peak) * 1e-9);
            let (share, ratio, differing) = (median(&share), median(&found.ratio), found.differing);
            let (block, layout) = (library.block, library.layout());
            println!(
                "{d:>5} {k:>5} {n:>7} {:>7} | {rate:>9.1} {peak:>7.1} {:>6.1}% | {gemm:>7.1} {block:>5} {layout:>3} {ratio:>6.2} | {differing:>9}",
                isa.to_string(),
                100.0 * share
            );
            let _ = writeln!(
                csv,
                "nearest,{d},{k},{n},{isa},{rate:.2},{peak:.2},{share:.4},{gemm:.2},{block},{layout},{ratio:.3},{differing}"
            );
        }
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    if n == 0 { f64::NAN } else { f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]) }
}

/// Uniform values from -0.5 to 0.5.
struct Noise(u64);

impl Noise {
    fn take<T: Real>(&mut self, n: usize) -> Vec<T> {
        let mut next = || {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            T::from_f64((self.0 >> 40) as f64 / f64::from(1 << 24) - 0.5)
        };
        (0..n).map(|_| next()).collect()
    }
}

// ---------------------------------------------------------------- certified low precision

impl Options {
    /// Rows of bytes in certified low precision against the `f32` kernel, in turns.
    fn certified(&self, csv: &mut String) {
        let tiers: Vec<(Isa, Isa)> = CERTIFIED.into_iter().filter(|(tier, _)| tier.is_available()).collect();
        if tiers.is_empty() {
            println!("\nThis processor has no instructions for certified low precision.");
            return;
        }
        println!("\nRows of bytes, one thread: certified low precision against f32. GFLOP/s = 2nkd/t.");
        println!(
            "{:>5} {:>5} {:>7} {:>11} | {:>7} {:>9} {:>6}",
            "d", "k", "n", "tier", "f32", "certified", "ratio"
        );
        csv.push_str("table,d,k,n,tier,f32_gflops,certified_gflops,ratio\n");
        for &d in self.dims.iter().filter(|&&d| d >= 64 || self.smoke) {
            for &k in self.centers.iter().filter(|&&k| k >= 64) {
                for &tiers in &tiers {
                    self.certified_cell(d, k, tiers, csv);
                }
            }
        }
    }

    fn certified_cell(&self, d: usize, k: usize, (tier, plain): (Isa, Isa), csv: &mut String) {
        let flops_a_row = 2.0 * (k * d) as f64;
        let n = ((4.0 * self.work / flops_a_row) as usize).clamp(2048, 100_000);
        // Rows around k points, and centers near these points.
        let mut noise = Noise(88_172_645_463_325_252);
        let (points, spread, off): (Vec<f32>, Vec<f32>, Vec<f32>) =
            (noise.take(k * d), noise.take(n * d), noise.take(k * d));
        let byte = |v: f32| (v + 128.0).round().clamp(0.0, 255.0);
        let x: Vec<f32> =
            (0..n * d).map(|i| byte(160.0 * points[i / d * 7 % k * d + i % d] + 120.0 * spread[i])).collect();
        let c: Vec<f32> = points.iter().zip(&off).map(|(p, o)| 160.0 * p + 20.0 * o + 128.0).collect();
        let packed = [plain, tier].map(|isa| PackedCenters::for_isa(MatRef::new(&c, d), isa));
        let (mut labels, mut scratch) = ([vec![0; n], vec![0; n]], Scratch::default());
        let mut rates = [Vec::new(), Vec::new()];
        let mut ratios = Vec::new();
        // As many rows as a pass labels at a time.
        let chunk = (98_304 / d).max(96);
        for round in 0..=self.rounds {
            let mut seconds = [0.0; 2];
            for ((packed, labels), seconds) in packed.iter().zip(&mut labels).zip(&mut seconds) {
                let t = Instant::now();
                for (x, labels) in x.chunks(chunk * d).zip(labels.chunks_mut(chunk)) {
                    nearest(black_box(MatRef::new(x, d)), packed, labels, &mut scratch);
                }
                *seconds = t.elapsed().as_secs_f64();
            }
            if round > 0 {
                rates
                    .iter_mut()
                    .zip(seconds)
                    .for_each(|(all, s)| all.push(flops_a_row * n as f64 / s * 1e-9));
                ratios.push(seconds[0] / seconds[1]);
            }
        }
        assert!(labels[0] == labels[1], "labels must be bit-identical");
        let (plain, low, ratio) = (median(&rates[0]), median(&rates[1]), median(&ratios));
        println!("{d:>5} {k:>5} {n:>7} {:>11} | {plain:>7.1} {low:>9.1} {ratio:>6.2}", tier.to_string());
        let _ = writeln!(csv, "certified,{d},{k},{n},{tier},{plain:.2},{low:.2},{ratio:.3}");
    }
}

// ---------------------------------------------------------------- threads

impl Options {
    fn curve<T: Real>(&self, csv: &mut String) {
        let (n, d, k) = if self.smoke { (2000, 8, 16) } else { (200_000, 128, 1024) };
        let mut counts = vec![1];
        while *counts.last().expect("starts with 1") * 2 <= cores() {
            counts.push(counts[counts.len() - 1] * 2);
        }
        if *counts.last().expect("starts with 1") < cores() {
            counts.push(cores());
        }
        let x: Vec<T> = Noise(42).take(n * d);
        let rows = Dense::new(&x, d).expect("whole rows");
        let given: Vec<f64> = x[..k * d].iter().map(|v| v.to_f64()).collect();
        let sweeps = if self.rounds < 5 { 1 } else { 2 };
        let mut seconds = vec![Vec::new(); counts.len()];
        let mut results: Vec<Option<(u64, u64)>> = vec![None; counts.len()];
        for round in 0..=self.rounds.min(7) {
            for (i, &threads) in counts.iter().enumerate() {
                let fit = KMeans::params(k).seeding(Seeding::Given(given.clone())).tolerance(0.0);
                let model =
                    fit.max_iter(sweeps).threads(Some(threads)).fit(&rows).expect("a fit of finite rows");
                assert_eq!(model.n_iter(), sweeps, "as many sweeps as asked for");
                results[i] = Some((model.inertia().to_bits(), model.n_iter()));
                if round > 0 {
                    seconds[i].push(model.timings().sweeps / sweeps as f64);
                }
            }
        }
        assert!(
            results.iter().all(|r| *r == results[0]),
            "results must be bit-identical for any number of threads"
        );
        println!("\nThreads. KMeans, {} {n} x {d}, k={k}: median seconds of a sweep, interleaved.", T::NAME);
        println!("{:>7} {:>10} {:>8} {:>10}", "threads", "seconds", "speed-up", "efficiency");
        csv.push_str("table,threads,n,d,k,seconds_a_sweep,speedup\n");
        for (&threads, times) in counts.iter().zip(&seconds) {
            let ratios: Vec<f64> = seconds[0].iter().zip(times).map(|(one, t)| one / t).collect();
            let (time, ratio) = (median(times), median(&ratios));
            println!("{threads:>7} {time:>10.4} {ratio:>8.2} {:>9.0}%", 100.0 * ratio / threads as f64);
            let _ = writeln!(csv, "threads,{threads},{n},{d},{k},{time:.5},{ratio:.3}");
        }
    }
}

// ---------------------------------------------------------------- the gemm baseline

/// `|c|^2 - 2 x.c` for a block of rows by the `gemm` crate, and then a pass that finds the smallest value per row.
struct Library<T> {
    block: usize,
    /// Whether the product is stored center by center, so that vectors of the pass hold rows; otherwise row by row.
    by_center: bool,
    product: Vec<T>,
    norms: Vec<T>,
}

/// Whether the speed of `gemm` is above the limit of AVX2.
struct Path {
    rate: f64,
    avx2_peak: f64,
}

impl Path {
    fn describe(&self) -> String {
        let widest = if self.avx2_peak.is_nan() {
            "one path"
        } else if self.rate > 1.05 * self.avx2_peak {
            "AVX-512 path"
        } else {
            "AVX2 path, or AVX-512 without gain"
        };
        format!(
            "0.19, {widest} ({:.0} GFLOP/s at 384 x 384 x 256, AVX2 peak {:.0})",
            self.rate * 1e-9,
            self.avx2_peak * 1e-9
        )
    }
}

impl Library<f32> {
    fn probe<T: Real>() -> Path {
        let (rows, k, d) = (384, 384, 256);
        let (x, c): (Vec<T>, Vec<T>) = (Noise(1).take(rows * d), Noise(2).take(k * d));
        let mut product = vec![T::ZERO; rows * k];
        let mut path = Path { rate: 0.0, avx2_peak: f64::NAN };
        for _ in 0..20 {
            let t = Instant::now();
            multiply(&x, &c, d, false, &mut product);
            path.rate = path.rate.max(2.0 * (rows * k * d) as f64 / t.elapsed().as_secs_f64());
            black_box(&product);
            if Isa::Avx2.is_available() {
                path.avx2_peak = peak::<T>(Isa::Avx2, 50_000).max(path.avx2_peak);
            }
        }
        path
    }
}

impl<T: Real> Library<T> {
    /// Measures all block sizes and layouts, and returns the fastest.
    fn fit(x: &[T], c: &[T], d: usize, labels: &mut [u32]) -> Self {
        let norms =
            c.chunks_exact(d).map(|c| T::from_f64(c.iter().map(|v| v.to_f64() * v.to_f64()).sum())).collect();
        let mut this = Self { block: 0, by_center: false, product: Vec::new(), norms };
        let mut best = (f64::INFINITY, 0, false);
        for block in BLOCKS {
            for by_center in [false, true] {
                (this.block, this.by_center) = (block, by_center);
                // A slow candidate is measured only once.
                for _ in 0..2 {
                    let t = Instant::now();
                    this.run(x, c, d, labels);
                    let seconds = t.elapsed().as_secs_f64();
                    if seconds < best.0 {
                        best = (seconds, block, by_center);
                    } else if seconds > 2.0 * best.0 {
                        break;
                    }
                }
            }
        }
        (_, this.block, this.by_center) = best;
        this
    }

    fn layout(&self) -> &'static str {
        if self.by_center { "kxn" } else { "nxk" }
    }

    fn run(&mut self, x: &[T], c: &[T], d: usize, labels: &mut [u32]) {
        let k = self.norms.len();
        self.product.resize(self.block * k, T::ZERO);
        for (x, labels) in x.chunks(self.block * d).zip(labels.chunks_mut(self.block)) {
            let product = &mut self.product[..labels.len() * k];
            multiply(x, c, d, self.by_center, product);
            T::smallest(product, &self.norms, self.by_center, labels);
        }
    }
}

/// `product = -2 x c^T`, row by row or center by center.
fn multiply<T: Real>(x: &[T], c: &[T], d: usize, by_center: bool, product: &mut [T]) {
    let (rows, k) = (x.len() / d, c.len() / d);
    assert_eq!(product.len(), rows * k);
    let (column, row) = if by_center { (rows, 1) } else { (1, k) };
    // SAFETY: the strides and sizes are those of the three slices, checked above; the product overlaps neither operand.
    unsafe {
        gemm::gemm(
            rows,
            k,
            d,
            product.as_mut_ptr(),
            column as isize,
            row as isize,
            false,
            x.as_ptr(),
            1,
            d as isize,
            c.as_ptr(),
            d as isize,
            1,
            T::ZERO,
            T::from_f64(-2.0),
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

// ---------------------------------------------------------------- criterion

fn groups(criterion: &mut Criterion) {
    let isas = vectors();
    // The kernel at the shapes with performance targets.
    for &isa in &isas {
        rates::<f32>(criterion, &format!("nearest/{isa}/f32"), isa, &[64, 128, 256, 768], &[1024], 1536);
        rates::<f64>(criterion, &format!("nearest/{isa}/f64"), isa, &[64, 128, 256, 768], &[1024], 1536);
    }
    // Around `tuning::ROWS_IN_LANES_DIM`.
    rates::<f32>(
        criterion,
        "low-d",
        Isa::active(),
        &[2, 3, 4, 6, 8, 12, 16, 17, 20, 24, 32],
        &[64, 1024],
        1536,
    );
    // Around `tuning::STRIP_ROWS`: calls with fewer rows than a strip make one strip.
    for rows in [48, 96, 144, 192, 384] {
        rates::<f32>(criterion, &format!("strip/{rows}"), Isa::active(), &[32, 128, 768], &[1024], rows);
    }
    criterion.final_summary();
}

/// A group of `nearest` on `rows` rows. Criterion counts operations as elements, so `Gelem/s` is GFLOP/s.
fn rates<T: Real>(
    criterion: &mut Criterion,
    name: &str,
    isa: Isa,
    dims: &[usize],
    centers: &[usize],
    rows: usize,
) {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(20).measurement_time(std::time::Duration::from_secs(1));
    group.warm_up_time(std::time::Duration::from_millis(300));
    for &d in dims {
        for &k in centers {
            let (x, c): (Vec<T>, Vec<T>) = (Noise(3).take(rows * d), Noise(4).take(k * d));
            let packed = PackedCenters::for_isa(MatRef::new(&c, d), isa);
            let (mut labels, mut scratch) = (vec![0; rows], Scratch::default());
            group.throughput(Throughput::Elements((2 * rows * k * d) as u64));
            group.bench_function(BenchmarkId::from_parameter(format!("d{d}/k{k}")), |b| {
                b.iter(|| nearest(black_box(MatRef::new(&x, d)), &packed, &mut labels, &mut scratch));
            });
        }
    }
    group.finish();
}
