//! A lightweight coreset of partitions, in two or three passes (Bachem, Lucic and Krause, 2018).
//!
//! Neither the mean and the spread, which come from exact sums, nor the draws, which are keyed by the numbers of the rows
//! among all rows, depend on the partitions.

use serde_json::json;

use super::errors::of_others;
use super::events::{AnyCoreset, Events, Measured, coreset_of, moments_of, put_coreset, put_moments};
use super::extent::Before;
use super::message::Message;
use super::nearest::{Nearest, counted_sweep};
use super::numbers::{exact, exact_of, size_of_object};
use super::partial::Partial;
use super::pass::{NAME, Pass, PassFacts, Summed, digest, public_pass};
use super::picked::Picked;
use super::place::{Place, Starts};
use super::sums::AnySums;
use crate::data::{DataSource, Source, no_weight, too_heavy};
use crate::error::{Error, Result};
use crate::fit::{Metric, Step, Typed, either};
use crate::kernel::{Compute, PackedCenters};
use crate::matrix::MatRef;
use crate::names::{Named, names};
use crate::parallel::Executor;
use crate::pass::Chunk;
use crate::persist::Contents;
use crate::persist::kept::{Values, count, flag, text};
use crate::persist::schema::CORESET_PASS;
use crate::rng::{Purpose, Rng};
use crate::stats::{
    ClusterSums, Coreset, Drawn, Moments, SamplingLaw, Streams, check_energy, draw_events, other_rows,
    take_all,
};
use crate::tuning::SEEDING_TILE_ROWS;

/// One of the passes that draw a lightweight coreset: the first measures the rows, the second draws from them. Between
/// them, rows that are all very far from the origin are measured again, about their mean.
///
/// The last pass returns about `n_samples / p` rows for each of `p` partitions.
///
/// ```
/// use shoal::{Executor, Metric, distributed::{CoresetPass, Place}};
/// let rows: Vec<[f32; 1]> = (0..1000).map(|i| [i as f32]).collect();
/// let (mut task, cx) = (CoresetPass::new(50, Metric::Euclidean, 7)?, Executor::new(Some(1))?);
/// while task.coreset::<f32>().is_none() {
///     let one = task.absorb(&rows[..300].to_vec(), Place::Partition(0), &cx)?;
///     let two = task.absorb(&rows[300..].to_vec(), Place::Partition(1), &cx)?;
///     task = task.commit(&one.merge(&two)?)?.0;
/// }
/// let coreset = task.coreset::<f32>().unwrap();
/// assert_eq!(coreset.points.len(), 50);
/// assert!(coreset.rows.iter().all(|&row| row < 1000));
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CoresetPass {
    m: usize,
    metric: Metric,
    seed: u64,
    stage: CoresetStage,
    before: Before,
    starts: Starts,
    /// Whether the rows are computed as `f64`; known after the first pass.
    wide: bool,
    moments: Option<Moments>,
    result: Option<AnyCoreset>,
}

/// What a pass does with the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CoresetStage {
    Measuring,
    Drawing,
    /// There are no more rows than requested.
    KeepingAll,
    /// The coreset is complete.
    Done,
}

names! {
    CoresetStage("stage") {
        Measuring = "measuring",
        Drawing = "drawing",
        KeepingAll = "keeping",
        Done = "done",
    }
}

/// After so many passes without enough events, the rows must have changed: by chance, a pass has too few
/// events once in a hundred million times.
const MOST_PASSES: u64 = 10;

/// A smaller spread, as a share of the squared distances to the origin, is measured again about the mean: rounded squared
/// distances to the origin determine it to about 1e-16 of their sum.
const SPREAD_OUT: f64 = 1e-9;

impl CoresetPass {
    /// The first pass for a coreset of `m` rows.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if `m` is 0.
    pub fn new(m: usize, metric: Metric, seed: u64) -> Result<Self> {
        if m == 0 {
            return Err(Error::param("n_samples", "at least 1", 0));
        }
        Ok(Self {
            m,
            metric,
            seed,
            stage: CoresetStage::Measuring,
            before: Before::default(),
            starts: Starts::default(),
            wide: false,
            moments: None,
            result: None,
        })
    }

    /// The coreset, once it is complete; `None` also if its rows have another compute type. Rows have the numbers
    /// that they have among all rows.
    pub fn coreset<T: Compute>(&self) -> Option<&Coreset<T>> {
        match self.result.as_ref()? {
            Typed::F32(coreset) => (coreset as &dyn std::any::Any).downcast_ref(),
            Typed::F64(coreset) => (coreset as &dyn std::any::Any).downcast_ref(),
        }
    }

    /// Whether the coreset is complete.
    pub fn is_done(&self) -> bool {
        self.stage == CoresetStage::Done
    }

    /// Number of columns; 0 before the first pass.
    pub fn dim(&self) -> usize {
        self.moments.as_ref().map_or(0, |moments| moments.mean().len())
    }

    /// The coreset, once it is complete.
    #[cfg(feature = "python")]
    pub(crate) fn any_coreset(&self) -> Option<&AnyCoreset> {
        self.result.as_ref()
    }

    /// The key of the draws of this pass.
    fn key(&self) -> u64 {
        Rng::keyed(self.seed, Purpose::Coreset, self.before.passes).bits()
    }

    /// The point about which this pass measures the rows: the origin, then their mean.
    fn about<T: Compute>(&self, dim: usize) -> Vec<T> {
        let mean = self.moments.as_ref().map(Moments::mean);
        mean.map_or_else(
            || vec![T::from_f64(0.0); dim],
            |mean| mean.iter().map(|&x| T::from_f64(x)).collect(),
        )
    }

    /// Sums the rows, their weights and their squared distances to [`Self::about`].
    fn measure<T: Compute>(&self, data: &dyn DataSource<T>, cx: &Executor) -> Result<(u64, ClusterSums)> {
        let dim = data.dim();
        let about = self.about::<T>(dim);
        let packed = PackedCenters::for_rows(MatRef::new(&about, dim), data.most_values().is_some());
        let absorb = |chunk: &Chunk<'_, T>, part: &mut ClusterSums, nearest: &mut Nearest<T>| {
            nearest.labels.resize(chunk.rows.rows(), 0);
            part.absorb(chunk.rows, &nearest.labels, chunk.weights, &packed);
            if part.is_finite() {
                return Ok(());
            }
            chunk.check_finite()?;
            Err(if chunk.weights.is_none() { chunk.not_finite() } else { too_heavy(true) })
        };
        let make = (ClusterSums::new(1, dim), || ClusterSums::part(1, dim));
        counted_sweep(data, cx, SEEDING_TILE_ROWS, make, absorb, ClusterSums::merge)
    }

    /// The moments of `rows` rows with these sums, and whether they are precise.
    fn moments<T: Compute>(&self, rows: u64, totals: &ClusterSums) -> Result<(Moments, bool)> {
        let (weight, energy) = (totals.weights()[0], totals.energy());
        if weight <= 0.0 {
            return Err(no_weight());
        }
        check_energy(energy)?;
        let mean: Vec<f64> = totals.sum(0).iter().map(|sum| sum / weight).collect();
        let about = self.about::<T>(mean.len());
        let apart = mean.iter().zip(&about).map(|(mean, about)| (mean - about.to_f64()).powi(2)).sum::<f64>();
        let spread = (energy - weight * apart).max(0.0);
        let precise = self.moments.is_some() || spread >= SPREAD_OUT * energy;
        Ok((Moments::of_parts(rows, weight, mean, spread), precise))
    }

    /// The rows of a block whose first row has the number `start` among all rows.
    fn events<T: Compute>(start: u64, mut here: Coreset<T>) -> AnySums {
        here.rows.iter_mut().for_each(|row| *row += start);
        AnySums::new(Events(Some(Typed::of_type::<T, Coreset<()>>(here))))
    }

    /// The complete coreset.
    fn done(self, coreset: AnyCoreset) -> Self {
        Self { stage: CoresetStage::Done, starts: Starts::default(), result: Some(coreset), ..self }
    }

    /// Chooses the final rows, and weights them.
    fn chosen<T: Compute>(&self, rows: Coreset<T>) -> Result<Coreset<T>> {
        let moments = self.moments.as_ref().ok_or_else(of_others)?;
        if rows.points.cols() != moments.mean().len() {
            return Err(of_others());
        }
        let law = SamplingLaw::<T>::new(moments)?;
        // The shares of all rows add up to 1, because the law comes from the same rows.
        let coreset = Drawn { rows, all: 1.0, seen: 0 }.chosen(&law, self.key(), self.m);
        // Only damaged results have odds of 0, or so small that their inverse overflows.
        if coreset.weights.iter().all(|weight| weight.is_finite()) { Ok(coreset) } else { Err(of_others()) }
    }
}

public_pass! {
    CoresetPass:
    /// Takes over what the pass measured or drew.
    ///
    /// # Errors
    /// [`Error::Source`] as for [`KMeansPass::commit`](super::KMeansPass::commit). [`Error::InvalidParam`] if no row
    /// has weight.
    commit
}

impl Pass for CoresetPass {
    fn facts(&self) -> PassFacts<'_> {
        PassFacts {
            metric: self.metric,
            shape: self.moments.as_ref().map(|moments| (moments.mean().len(), self.wide)),
            before: &self.before,
            centers: None,
            is_done: self.is_done(),
            // All partitions together return about the rows of the coreset, for any number of partitions.
            result_bytes: match self.stage {
                CoresetStage::Measuring => 16 * (self.dim() + 2),
                _ => self.m * Picked::row_bytes(self.dim()),
            },
        }
    }

    fn before_mut(&mut self) -> &mut Before {
        &mut self.before
    }

    fn digest(&self) -> u64 {
        let law = self.moments.as_ref().map_or_else(Vec::new, |moments| {
            moments.mean().iter().copied().chain([moments.weight(), moments.spread()]).collect()
        });
        let numbers = [self.m as u64, self.seed, self.before.passes, self.metric as u64];
        digest(4, &numbers, &Values::F64(law))
    }

    fn sum<T: Compute>(&self, data: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed> {
        match (self.stage, &self.moments) {
            (CoresetStage::Measuring, _) => {
                let (rows, totals) = self.measure(data, cx)?;
                Ok((rows, AnySums::new(Measured { totals: (rows > 0).then_some(totals), wide: T::WIDE })))
            }
            (CoresetStage::Drawing, Some(moments)) => {
                let (law, mut drawn) = (SamplingLaw::new(moments)?, Drawn::new(data.dim()));
                let start = self.starts.first_row(place)?;
                let how = (self.key(), Streams::Rows(start), self.m);
                draw_events(data, &law, how, false, &mut drawn, cx)?;
                Ok((drawn.seen, Self::events(start, drawn.rows)))
            }
            (CoresetStage::KeepingAll, _) => {
                let mut all = Coreset::<T>::new(data.dim());
                take_all(data, &mut all, cx)?;
                Ok((all.rows.len() as u64, Self::events(self.starts.first_row(place)?, all)))
            }
            _ => Err(Error::Source("the coreset is complete: there are no more passes".into())),
        }
    }

    fn no_sums(&self) -> AnySums {
        if self.stage == CoresetStage::Measuring {
            AnySums::new(Measured { totals: None, wide: false })
        } else {
            AnySums::new(Events(None))
        }
    }

    fn next(&self, now: Before, starts: Starts, total: AnySums) -> Result<(Self, Step)> {
        let n = now.rows();
        let mut next = Self { before: now, starts, ..self.clone() };
        match self.stage {
            CoresetStage::Measuring => {
                let Measured { totals: Some(totals), wide } = total.into_kind()? else {
                    return Err(of_others());
                };
                let (moments, precise) =
                    if wide { self.moments::<f64>(n, &totals) } else { self.moments::<f32>(n, &totals) }?;
                // Fails if the rows have hardly any weight.
                SamplingLaw::<f64>::new(&moments)?;
                if n <= self.m as u64 {
                    next.stage = CoresetStage::KeepingAll;
                } else if precise {
                    next.stage = CoresetStage::Drawing;
                }
                (next.moments, next.wide) = (Some(moments), wide);
            }
            CoresetStage::KeepingAll => {
                let rows = total.into_kind::<Events>()?.in_order(n)?;
                if either!(&rows, rows => rows.rows.len()) as u64 != n {
                    return Err(of_others());
                }
                next = next.done(rows);
            }
            CoresetStage::Drawing => {
                let events: Events = total.into_kind()?;
                if events.len() >= self.m {
                    next = next.done(match events.in_order(n)? {
                        Typed::F32(rows) => Typed::F32(self.chosen(rows)?),
                        Typed::F64(rows) => Typed::F64(self.chosen(rows)?),
                    });
                } else if self.before.passes > MOST_PASSES {
                    return Err(other_rows());
                }
            }
            CoresetStage::Done => return Err(of_others()),
        }
        let step = next.before.step(0, f64::NAN);
        Ok((next, step))
    }
}

impl Message for CoresetPass {
    const KIND: &'static str = CORESET_PASS;
    const NAME: &'static str = NAME;

    fn put(&self, contents: &mut Contents) {
        let mut numbers = json!({
            "n_samples": self.m,
            "metric": self.metric.name(),
            "seed": exact(self.seed),
            "stage": self.stage.name(),
            "wide": self.wide,
        });
        self.before.put("passes", &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        if let Some(moments) = &self.moments {
            put_moments(contents, moments);
        }
        put_coreset(contents, self.result.as_ref());
        self.starts.put(contents);
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("pass")?;
        let m = size_of_object(&numbers, "n_samples")?;
        let metric = Metric::of_object(&numbers)?;
        let made = Self::new(m, metric, exact_of(&numbers, "seed")?);
        let mut pass = made.map_err(|e| e.to_string())?;
        let stage = CoresetStage::of_name("stage", &text(&numbers, "stage")?);
        pass.stage = stage.map_err(|_| "its stage is damaged")?;
        if count(&numbers, "passes")? == 0 {
            pass.before = Before::of_object("passes", &numbers, 0)?;
            let begun = pass.stage == CoresetStage::Measuring;
            return if begun { Ok(pass) } else { Err("it has no moments".into()) };
        }
        pass.moments = Some(moments_of(contents)?);
        pass.wide = flag(&numbers, "wide")?;
        let dim = pass.dim();
        pass.before = Before::of_object("passes", &numbers, dim)?;
        if pass.before.extent.is_none() {
            return Err("it lacks the rows of its passes".into());
        }
        if pass.stage == CoresetStage::Done {
            let coreset = coreset_of(contents, dim)?;
            if matches!(coreset, Typed::F64(_)) != pass.wide {
                return Err("its points are of another type than its rows".into());
            }
            pass.result = Some(coreset);
        } else {
            pass.starts = Starts::of_contents(contents)?;
        }
        Ok(pass)
    }
}
