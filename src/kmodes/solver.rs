//! This module knows the outer loop of Laplacian K-modes as a solver: modes, then responsibilities, then modes.

use std::time::Instant;

use serde_json::json;

use super::affinity::Affinity;
use super::exponent::Exponent;
use super::laplacian::{Problem, Relaxed, labels, ordered};
use super::modes::{Gauss, densest, members, nearness, shift, surest, without_rows};
use super::outside::Known;
use super::params::{Collapse, KModesParams, ModeUpdate, Shift};
use crate::data::{Access, DataSource, count_rows, normalize_rows, take};
use crate::error::{Error, Result};
use crate::graph::{About, knn_graph};
use crate::kernel::sq_dist;
use crate::kmeans::{Metric, predict};
use crate::matrix::make_room;
use crate::parallel::Executor;
use crate::persist::kept::{count, flag, keep, list, number, rows as kept_values, stored_rows, text};
use crate::persist::{Array, Contents, schema::KMODES_CHECKPOINT};
use crate::seeding::Seeding;
use crate::solver::{Solver, Step, StopReason};
use crate::tuning::NEAR_BYTES;

/// The run ends when the energy changes by less than this share.
const SETTLED: f64 = 1e-5;
/// What is left of the Laplacian's weight after a collapse.
const LESS: f64 = 0.8;
/// Collapses after which there is next to nothing left of it.
const MOST_COLLAPSES: u32 = 60;

/// What a fit shows between two of its steps.
#[derive(Clone, Copy)]
#[cfg_attr(not(feature = "python"), expect(dead_code, reason = "most of it is shown by Python only"))]
pub(crate) struct Snapshot<'a, T> {
    pub(crate) dim: usize,
    pub(crate) modes: &'a [T],
    pub(crate) mode_rows: &'a [u64],
    pub(crate) labels: &'a [u32],
    pub(crate) responsibilities: &'a [T],
    pub(crate) affinity: Option<&'a Affinity>,
    pub(crate) about: &'a str,
    pub(crate) recall: f64,
    /// The kernel's variance.
    pub(crate) variance: f64,
    pub(crate) lambda: f64,
    pub(crate) relaxed: &'a [Vec<f64>],
    pub(crate) energies: &'a [f64],
    pub(crate) collapsed: bool,
    pub(crate) shifted: bool,
    pub(crate) blind: bool,
    pub(crate) n_iter: u64,
    pub(crate) seeded_by: &'a str,
    /// Seconds for the graph, for the first modes, for iterations.
    pub(crate) timings: [f64; 3],
}

/// A fit on its way, over rows as they are to be seen.
#[expect(clippy::struct_excessive_bools, reason = "they are what Python shows, one by one")]
pub(super) struct KModesSolver<T> {
    params: KModesParams,
    dim: usize,
    affinity: Option<Affinity>,
    about: String,
    recall: f64,
    variance: f64,
    modes: Vec<T>,
    /// The rows that the modes are; none where they are means.
    mode_rows: Vec<u64>,
    labels: Vec<u32>,
    /// The kernel of all rows and modes.
    near: Vec<T>,
    z: Vec<T>,
    spare: [Vec<T>; 2],
    /// The affinity in an order that keeps neighbours together, and that order; of many rows only.
    local: Option<(Affinity, Vec<u32>)>,
    lambda: f64,
    /// Whether the diagonal is shifted, where that is left to the run.
    shifted: bool,
    /// `-sum z a - lambda sum w z.z` of the iteration before.
    expected: Option<f64>,
    relaxed: Vec<Vec<f64>>,
    energies: Vec<f64>,
    collapsed: bool,
    /// Whether all kernel values were 0 once.
    blind: bool,
    begun: bool,
    n_iter: u64,
    rows_seen: u64,
    seeded_by: String,
    timings: [f64; 3],
}

impl<T: Exponent> KModesSolver<T> {
    pub(super) fn new(params: &KModesParams, affinity: Option<Affinity>) -> Self {
        Self {
            params: params.clone(),
            dim: 0,
            about: if affinity.is_some() { "precomputed".into() } else { String::new() },
            affinity,
            recall: 1.0,
            variance: 0.0,
            modes: Vec::new(),
            mode_rows: Vec::new(),
            labels: Vec::new(),
            near: Vec::new(),
            z: Vec::new(),
            spare: [Vec::new(), Vec::new()],
            local: None,
            lambda: params.laplacian_weight,
            shifted: false,
            expected: None,
            relaxed: Vec::new(),
            energies: Vec::new(),
            collapsed: false,
            blind: false,
            begun: false,
            n_iter: 0,
            rows_seen: 0,
            seeded_by: String::new(),
            timings: [0.0; 3],
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot<'_, T> {
        Snapshot {
            dim: self.dim,
            modes: &self.modes,
            mode_rows: &self.mode_rows,
            labels: &self.labels,
            responsibilities: &self.z,
            affinity: self.affinity.as_ref(),
            about: &self.about,
            recall: self.recall,
            variance: self.variance,
            lambda: self.lambda,
            relaxed: &self.relaxed,
            energies: &self.energies,
            collapsed: self.collapsed,
            shifted: self.shifted,
            blind: self.blind,
            n_iter: self.n_iter,
            seeded_by: &self.seeded_by,
            timings: self.timings,
        }
    }

    /// What others ask the fit for, whose rows are `rows`.
    pub(super) fn known<'a>(&'a self, rows: &'a dyn DataSource<T>) -> Known<'a, T> {
        Known {
            rows,
            modes: &self.modes,
            responsibilities: &self.z,
            n_neighbors: self.params.n_neighbors,
            bandwidth: self.variance.sqrt(),
            lambda: self.lambda,
        }
    }

    fn gauss(&self) -> Gauss {
        Gauss::new(self.variance)
    }

    /// The graph, the kernel's width and the first modes.
    fn begin(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let (k, n) = (self.params.n_clusters, count_rows(data)?);
        let begun = Instant::now();
        self.dim = data.dim();
        self.prepare(data, cx)?;
        self.timings[0] += begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        // Kernel values, responsibilities, and these twice again while they are replaced.
        make_room(&mut self.near, "responsibilities", n, k)?;
        make_room(&mut Vec::<T>::new(), "responsibilities", n, 3 * k)?;
        self.near.resize(n as usize * k, T::ZERO);
        let mut seeds = self.params.seeding.choose(data, k, self.params.rng_seed, 0, cx)?;
        if self.params.normalize && matches!(self.params.seeding, Seeding::Given(_)) {
            normalize_rows(&mut seeds.centers, self.dim);
        }
        let labels = predict(&seeds.centers, Metric::Euclidean, data, cx)?;
        let (modes, mode_rows) = match self.params.mode_update {
            ModeUpdate::ByProduct => {
                let rows = densest(data, &labels, k, self.gauss(), cx)?;
                (take(data, &rows)?, rows)
            }
            ModeUpdate::MeanShift => {
                if let Some(l) = members(&labels, k).iter().position(Vec::is_empty) {
                    return Err(without_rows(k, l));
                }
                (seeds.centers, Vec::new())
            }
        };
        nearness(data, &modes, self.gauss(), &mut self.near, cx)?;
        (self.modes, self.mode_rows, self.labels) = (modes, mode_rows, labels);
        self.seeded_by = seeds.method;
        self.timings[1] += begun.elapsed().as_secs_f64();
        self.begun = true;
        Ok(())
    }

    /// The affinity, if none is there yet, and the kernel's variance.
    fn prepare(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let given = self.params.bandwidth.map(|bandwidth| bandwidth * bandwidth);
        if let Some(affinity) = &self.affinity {
            self.variance = match given {
                Some(variance) => variance,
                None => mean_sq_dist(data, affinity, cx)?,
            };
            return Ok(());
        }
        let graph = knn_graph(data, self.params.n_neighbors, self.params.graph_method, 0.95, cx)?;
        let mean = graph.sq_dists().iter().sum::<f64>() / graph.sq_dists().len() as f64;
        self.variance = given.unwrap_or(mean);
        refuse_no_width(self.variance)?;
        let gauss = Gauss::new(self.variance);
        let weight = |sq_dist| gauss.of(sq_dist);
        self.affinity = Some(Affinity::of_graph(&graph, self.params.gaussian.then_some(&weight)));
        let About { method, recall, .. } = graph.about();
        self.about = method.name().into();
        self.recall = recall;
        Ok(())
    }

    /// What the diagonal of the affinity is shifted by.
    fn shift_of(&self, affinity: &Affinity, lambda: f64) -> Vec<f64> {
        match self.params.shift {
            Shift::By(0.0) => Vec::new(),
            Shift::By(shift) => vec![shift; affinity.n_rows()],
            Shift::Auto if self.shifted && lambda > 0.0 => {
                (0..affinity.n_rows()).map(|p| (affinity.degree(p) - 2.0 / lambda).max(0.0)).collect()
            }
            Shift::Auto => Vec::new(),
        }
    }

    /// The inner loop for the present modes; with the shift from its beginning, where it turns out to be needed.
    fn relax(&mut self, lambda: f64, cx: &Executor) -> Result<Relaxed> {
        let k = self.params.n_clusters;
        if self.local.is_none() && size_of_val(&self.near[..]) > NEAR_BYTES {
            let affinity = self.affinity.as_ref().expect("made at the beginning");
            let order = affinity.local_order((NEAR_BYTES / (k * size_of::<T>())).max(1));
            self.local = Some((affinity.in_order(&order), order));
        }
        let local = self.local.take();
        let near = local.as_ref().map(|(_, order)| ordered(&self.near, order, k));
        let mut spare = std::mem::take(&mut self.spare);
        let relaxed = loop {
            let affinity = local.as_ref().map(|(affinity, _)| affinity).or(self.affinity.as_ref());
            let affinity = affinity.expect("made at the beginning");
            let shift = self.shift_of(affinity, lambda);
            let near = near.as_deref().unwrap_or(&self.near);
            let problem = Problem { near, k, affinity, lambda, shift: &shift };
            let leave = self.params.shift == Shift::Auto && !self.shifted;
            match problem.relax(&mut spare, leave, cx) {
                Ok(relaxed) if relaxed.rose && leave => self.shifted = true,
                ended => break ended,
            }
        };
        if let (Some((_, order)), Ok(_)) = (&local, &relaxed) {
            let [found, back] = &mut spare;
            for (z, &row) in found.chunks_exact(k).zip(order) {
                back[row as usize * k..][..k].copy_from_slice(z);
            }
            std::mem::swap(found, back);
        }
        (self.local, self.spare) = (local, spare);
        relaxed
    }

    /// One iteration.
    fn iterate(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        let k = self.params.n_clusters;
        let n = self.labels.len() as u64;
        let (before, mut passes) = (self.modes.clone(), 1);
        if self.params.mode_update == ModeUpdate::MeanShift {
            let (mut modes, gauss) = (self.modes.clone(), self.gauss());
            passes += shift(data, &self.labels, &mut modes, gauss, cx)? as u64;
            self.meet(&modes, data, cx)?;
            self.modes = modes;
        }
        self.blind |= self.near.iter().all(|&a| a == T::ZERO);
        let (mut lambda, mut collapses) = (self.lambda, 0);
        let found = loop {
            let relaxed = match self.relax(lambda, cx) {
                Ok(relaxed) => relaxed,
                Err(error) => {
                    if self.modes != before {
                        self.modes = before;
                        self.near.clear();
                    }
                    return Err(error);
                }
            };
            let found = labels(&self.spare[0], k);
            let mut used = vec![false; k];
            for &label in &found {
                used[label as usize] = true;
            }
            if used.iter().all(|&used| used) {
                break Some((relaxed, found));
            }
            self.collapsed = true;
            collapses += 1;
            if self.params.on_collapse == Collapse::Restore || collapses > MOST_COLLAPSES {
                self.relaxed.push(relaxed.watched);
                break None;
            }
            lambda *= LESS;
        };
        let Some((relaxed, found)) = found else { return self.restored(before, data, cx) };
        let n_changed = found.iter().zip(&self.labels).filter(|(new, old)| new != old).count() as u64;
        let next = match self.params.mode_update {
            ModeUpdate::ByProduct => {
                let rows = surest(&self.spare[0], k);
                let modes = if rows == self.mode_rows { self.modes.clone() } else { take(data, &rows)? };
                Some((rows, modes))
            }
            ModeUpdate::MeanShift => None,
        };
        let mut moved = self.modes != before;
        if let Some((rows, modes)) = next {
            if modes != self.modes {
                moved = true;
                passes += 1;
                self.meet(&modes, data, cx)?;
            }
            (self.mode_rows, self.modes) = (rows, modes);
        }
        // From here on nothing can fail.
        self.lambda = lambda;
        let Self { z, spare, .. } = self;
        std::mem::swap(z, &mut spare[0]);
        self.labels = found;
        self.relaxed.push(relaxed.watched);
        let energy = self.energy();
        self.energies.push(energy);
        let settled = self.expected.is_some_and(|old| (relaxed.energy - old).abs() <= SETTLED * old.abs());
        self.expected = Some(relaxed.energy);
        self.n_iter += 1;
        let pairs = before.chunks_exact(self.dim).zip(self.modes.chunks_exact(self.dim));
        let center_shift = pairs.map(|(old, new)| sq_dist(old, new)).sum::<f64>().sqrt();
        let stop_reason = if !moved && n_changed == 0 {
            Some(StopReason::LabelsStable)
        } else if !moved || settled {
            Some(StopReason::Tolerance)
        } else if self.n_iter >= self.params.max_iter {
            Some(StopReason::MaxIterations)
        } else {
            None
        };
        self.rows_seen += passes * n;
        Ok(Step {
            iteration: self.n_iter,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: energy,
            center_shift,
            n_changed,
            n_distances: passes * n * k as u64,
            elapsed: 0.0,
            stop_reason,
        })
    }

    /// Ends the run with what it had before a cluster lost its last row.
    fn restored(&mut self, before: Vec<T>, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if self.modes != before {
            self.meet(&before, data, cx)?;
            self.modes = before;
        }
        if self.z.is_empty() {
            // Nothing was found yet but modes: rows ask no one else.
            self.relax(0.0, cx)?;
            let Self { z, spare, .. } = self;
            std::mem::swap(z, &mut spare[0]);
        }
        let energy = self.energy();
        self.energies.push(energy);
        self.n_iter += 1;
        let n = self.labels.len() as u64;
        self.rows_seen += n;
        Ok(Step {
            iteration: self.n_iter,
            rows_seen: self.rows_seen,
            batch_size: n,
            objective: energy,
            n_distances: n * self.params.n_clusters as u64,
            stop_reason: Some(StopReason::Collapsed),
            ..Step::default()
        })
    }

    /// Makes the kernel values those of other modes. After an error there are none: those of the present modes are made when they are needed.
    fn meet(&mut self, modes: &[T], data: &dyn DataSource<T>, cx: &Executor) -> Result<()> {
        let mut near = std::mem::take(&mut self.near);
        near.resize(self.labels.len() * self.params.n_clusters, T::ZERO);
        nearness(data, modes, self.gauss(), &mut near, cx)?;
        self.near = near;
        Ok(())
    }

    /// The energy of the present labels about the present modes (equation 1).
    fn energy(&self) -> f64 {
        let k = self.params.n_clusters;
        let near = self.near.chunks_exact(k).zip(&self.labels);
        let close: f64 = near.map(|(near, &label)| near[label as usize].to_f64()).sum();
        let apart = self.affinity.as_ref().map_or(0.0, |affinity| affinity.between(&self.labels));
        self.lambda * apart - close
    }

    /// All that the next step depends on, but for the rows.
    pub(super) fn checkpoint(&self) -> Contents {
        let (n, k) = (self.labels.len(), self.params.n_clusters);
        let mut contents = Contents::new(KMODES_CHECKPOINT);
        keep(&mut contents, "centers", stored_rows(&self.modes, self.dim.max(1)));
        keep(&mut contents, "mode_rows", Array::new(&[self.mode_rows.len()], &self.mode_rows));
        keep(&mut contents, "labels", Array::new(&[n], &self.labels));
        keep(&mut contents, "responsibilities", stored_rows(&self.z, k));
        if let Some(affinity) = &self.affinity {
            let (starts, columns, weights) = affinity.parts();
            let starts: Vec<u64> = starts.iter().map(|&start| start as u64).collect();
            keep(&mut contents, "affinity_starts", Array::new(&[starts.len()], &starts));
            keep(&mut contents, "affinity_columns", Array::new(&[columns.len()], columns));
            keep(&mut contents, "affinity_weights", Array::new(&[weights.len()], weights));
        }
        let watched: Vec<f64> = self.relaxed.iter().flatten().copied().collect();
        let lengths: Vec<u64> = self.relaxed.iter().map(|loop_of| loop_of.len() as u64).collect();
        keep(&mut contents, "watched", Array::new(&[watched.len()], &watched));
        keep(&mut contents, "loops", Array::new(&[lengths.len()], &lengths));
        keep(&mut contents, "energies", Array::new(&[self.energies.len()], &self.energies));
        let about = json!({
            "found_by": self.about,
            "recall": self.recall.to_bits(),
            "variance": self.variance.to_bits(),
            "lambda": self.lambda.to_bits(),
            "expected": self.expected.map(f64::to_bits),
            "shifted": self.shifted,
            "collapsed": self.collapsed,
            "blind": self.blind,
            "n_iter": self.n_iter,
            "rows_seen": self.rows_seen,
            "seeded_by": self.seeded_by,
            "timings": self.timings,
        });
        contents.meta.insert("solver".into(), about.to_string());
        contents
    }

    /// The state that [`checkpoint`](Self::checkpoint) gave, of `n` rows of `dim` columns.
    pub(super) fn of_checkpoint(
        params: &KModesParams,
        contents: &Contents,
        (n, dim): (u64, usize),
    ) -> Result<Self, String> {
        contents.must_be(KMODES_CHECKPOINT)?;
        let (n, k) = (n as usize, params.n_clusters);
        let about = contents.object("solver")?;
        let starts: Vec<u64> = list(contents, "affinity_starts")?;
        let affinity = Affinity::of_parts(
            starts.iter().map(|&start| usize::try_from(start).unwrap_or(usize::MAX)).collect(),
            list(contents, "affinity_columns")?,
            list(contents, "affinity_weights")?,
        );
        let lengths: Vec<u64> = list(contents, "loops")?;
        let mut watched = list::<f64>(contents, "watched")?.into_iter();
        let relaxed: Vec<Vec<f64>> =
            lengths.iter().map(|&length| watched.by_ref().take(length as usize).collect()).collect();
        let solver = Self {
            dim,
            affinity: Some(affinity.checked(n)?),
            about: text(&about, "found_by")?,
            recall: number(&about, "recall")?,
            variance: number(&about, "variance")?,
            modes: kept_values(contents, "centers", dim)?,
            mode_rows: list(contents, "mode_rows")?,
            labels: list(contents, "labels")?,
            z: kept_values(contents, "responsibilities", k)?,
            lambda: number(&about, "lambda")?,
            shifted: flag(&about, "shifted")?,
            expected: crate::persist::kept::figure(&about, "expected")?,
            relaxed,
            energies: list(contents, "energies")?,
            collapsed: flag(&about, "collapsed")?,
            blind: flag(&about, "blind")?,
            begun: true,
            n_iter: count(&about, "n_iter")?,
            rows_seen: count(&about, "rows_seen")?,
            seeded_by: text(&about, "seeded_by")?,
            timings: std::array::from_fn(|at| about["timings"][at].as_f64().unwrap_or(0.0)),
            ..Self::new(params, None)
        };
        let modes = solver.modes.len() == k * dim && solver.mode_rows.iter().all(|&row| row < n as u64);
        let labels = solver.labels.len() == n && solver.labels.iter().all(|&label| (label as usize) < k);
        let by_product = params.mode_update == ModeUpdate::ByProduct;
        let rows = solver.mode_rows.len() == if by_product { k } else { 0 };
        let finite = solver.variance > 0.0 && solver.lambda >= 0.0 && solver.modes.iter().all(|x| x.finite());
        if modes && labels && rows && finite && solver.z.len() == n * k {
            Ok(solver)
        } else {
            Err("what it holds of its rows does not fit together".into())
        }
    }
}

impl<T: Exponent> Solver<T> for KModesSolver<T> {
    type Model = ();

    fn needs(&self) -> Access {
        Access::Random
    }

    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step> {
        if !self.begun {
            self.begin(data, cx)?;
        }
        let begun = Instant::now();
        if self.near.is_empty() {
            // An interrupt, or a file, has left none.
            let modes = self.modes.clone();
            self.meet(&modes, data, cx)?;
        }
        let step = self.iterate(data, cx)?;
        self.timings[2] += begun.elapsed().as_secs_f64();
        Ok(step)
    }

    fn model(&self) {}
}

/// The mean squared distance of rows that are neighbours.
fn mean_sq_dist<T: Exponent>(data: &dyn DataSource<T>, affinity: &Affinity, cx: &Executor) -> Result<f64> {
    let (mut sum, mut pairs) = (0.0, 0u64);
    let mut values = Vec::new();
    for p in 0..affinity.n_rows() {
        cx.check()?;
        let (columns, weights) = affinity.row(p);
        // Each pair once.
        let later = columns.iter().zip(weights).filter(|&(&q, &w)| q as usize > p && w > 0.0);
        let rows: Vec<u64> = std::iter::once(p as u64).chain(later.map(|(&q, _)| u64::from(q))).collect();
        values.clear();
        data.gather(&rows, &mut values)?;
        let (own, others) = values.split_at(data.dim());
        sum += others.chunks_exact(data.dim()).map(|other| sq_dist(own, other)).sum::<f64>();
        pairs += rows.len() as u64 - 1;
    }
    let mean = sum / pairs as f64;
    refuse_no_width(mean)?;
    Ok(mean)
}

/// Refuses a kernel without any width.
fn refuse_no_width(variance: f64) -> Result<()> {
    if variance > 0.0 && variance.is_finite() {
        return Ok(());
    }
    Err(Error::param(format!(
        "bandwidth=\"auto\" is the root of the mean squared distance of neighbours, which is {variance}: all of them coincide, or there are none; give a number"
    )))
}
