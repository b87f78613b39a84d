//! A lightweight coreset of partitions, in two passes (Bachem, Lucic and Krause, 2018).

use serde_json::json;

use super::errors::of_others;
use super::events::{AnyCoreset, Events, Measured, coreset_of, moments_of, put_coreset, put_moments};
use super::extent::Extent;
use super::kmeans::{digest, fits, seen_by};
use super::kmeans_file::read_pass;
use super::numbers::{exact, exact_of, size_of_object};
use super::partial::{About, Partial};
use super::place::Place;
use super::sums::Sums;
use crate::data::{AnySource, DataSource, Source};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step, Typed};
use crate::parallel::Executor;
use crate::persist::kept::{Values, count, flag, text};
use crate::persist::schema::CORESET_PASS;
use crate::persist::{Contents, to_bytes};
use crate::rng::{Purpose, Rng, mix};
use crate::stats::{Coreset, Drawn, Moments, SamplingLaw, add_moments, draw_events, other_rows, take_all};

/// One of the passes that draw a lightweight coreset: the first measures the rows, the second draws from them.
///
/// The second pass returns about `n_samples / p` rows for each of `p` partitions.
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
    stage: Stage,
    passes: u64,
    rows_seen: u64,
    /// Of the pass before.
    extent: Option<Extent>,
    /// Whether the rows are computed as `f64`; known after the first pass.
    wide: bool,
    moments: Option<Moments>,
    result: Option<AnyCoreset>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Measuring,
    Drawing,
    /// There are no more rows than requested.
    KeepingAll,
    Done,
}

const STAGES: [(Stage, &str); 4] = [
    (Stage::Measuring, "measuring"),
    (Stage::Drawing, "drawing"),
    (Stage::KeepingAll, "keeping"),
    (Stage::Done, "done"),
];

/// Passes after which the rows must have changed: too few events fall on all rows once in a hundred million passes.
const MOST_PASSES: u64 = 10;

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
            stage: Stage::Measuring,
            passes: 0,
            rows_seen: 0,
            extent: None,
            wide: false,
            moments: None,
            result: None,
        })
    }

    /// The coreset, once it is complete; `None` also if its rows have another compute type. Rows have the numbers
    /// that they have among all rows.
    pub fn coreset<T: Element>(&self) -> Option<&Coreset<T>> {
        match self.result.as_ref()? {
            Typed::F32(coreset) => (coreset as &dyn std::any::Any).downcast_ref(),
            Typed::F64(coreset) => (coreset as &dyn std::any::Any).downcast_ref(),
        }
    }

    /// Whether the coreset is complete.
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Number of columns; 0 before the first pass.
    pub fn dim(&self) -> usize {
        self.moments.as_ref().map_or(0, |moments| moments.mean().len())
    }

    /// Whether the rows are computed as `f64`; `None` before the first pass.
    #[cfg(feature = "python")]
    pub(crate) fn is_wide(&self) -> Option<bool> {
        self.moments.is_some().then_some(self.wide)
    }

    /// The bytes of all partial results, at most, however many partitions there are: the rows of the coreset.
    #[cfg(feature = "python")]
    pub(crate) fn result_bytes(&self) -> usize {
        if self.stage == Stage::Measuring { 16 } else { self.m * (8 * self.dim() + 36) }
    }

    /// The rows of the pass before, and the names of their columns.
    #[cfg(feature = "python")]
    pub(crate) fn extent(&self) -> Option<&Extent> {
        self.extent.as_ref()
    }

    fn digest(&self) -> u64 {
        let law = self.moments.as_ref().map_or_else(Vec::new, |moments| {
            moments.mean().iter().copied().chain([moments.weight(), moments.spread()]).collect()
        });
        let numbers = [self.m as u64, self.seed, self.passes, self.metric as u64];
        digest(4, &numbers, &Values::F64(law))
    }

    /// The key of the draws of this pass.
    fn key(&self) -> u64 {
        Rng::keyed(self.seed, Purpose::Coreset, self.passes).bits()
    }

    /// Runs the pass over a partition.
    ///
    /// # Errors
    /// [`Error::Shape`] for rows of another width or compute type than before. Those of the source,
    /// [`Error::NotFinite`], [`Error::Interrupted`]. [`Error::Source`] if the coreset is complete.
    pub fn absorb<S: Source + ?Sized>(&self, rows: &S, place: Place, cx: &Executor) -> Result<Partial> {
        match rows.any() {
            AnySource::F32(data) => self.absorb_typed(data, place, cx),
            AnySource::F64(data) => self.absorb_typed(data, place, cx),
        }
    }

    pub(crate) fn absorb_typed<T: Element>(
        &self,
        data: &dyn DataSource<T>,
        place: Place,
        cx: &Executor,
    ) -> Result<Partial> {
        place.check()?;
        let dim = data.dim();
        if let Some(moments) = &self.moments {
            fits(data, moments.mean().len(), self.wide)?;
        }
        let ((rows, sums), seen) = seen_by(data, self.metric, |data| match (self.stage, &self.moments) {
            (Stage::Measuring, _) => {
                let mut moments = Moments::new(dim);
                add_moments(data, &mut moments, cx)?;
                let (rows, wide) = (moments.rows(), T::WIDE);
                Ok((rows, Sums::Measured(Measured { moments: Some(moments), wide })))
            }
            (Stage::Drawing, Some(moments)) => {
                let (law, mut drawn) = (SamplingLaw::new(moments)?, Drawn::new(dim));
                let key = mix(place.key(self.key()) ^ place.first_row());
                draw_events(data, &law, (key, self.m), true, &mut drawn, cx)?;
                Ok((drawn.seen, Self::events(drawn.seen, drawn.rows, drawn.all)))
            }
            (Stage::KeepingAll, _) => {
                let mut all = Coreset::<T>::new(dim);
                take_all(data, &mut all, cx)?;
                let rows = all.rows.len() as u64;
                Ok((rows, Self::events(rows, all, 0.0)))
            }
            _ => Err(Error::Source("the coreset is complete: there are no more passes".into())),
        })?;
        Partial::new(self.digest(), place, rows, About::new::<T>(dim, place, seen), sums)
    }

    fn events<T: Element>(rows: u64, here: Coreset<T>, shares: f64) -> Sums {
        let blocks = vec![(rows, here.rows.len() as u64)];
        Sums::Events(Events { rows: Some(Typed::of_type::<T, Coreset<()>>(here)), shares, blocks })
    }

    /// The partial result of a partition without rows, which no source can be.
    pub fn absorb_nothing(&self, place: Place) -> Partial {
        let sums = if self.stage == Stage::Measuring {
            Sums::Measured(Measured { moments: None, wide: false })
        } else {
            Sums::Events(Events { rows: None, shares: 0.0, blocks: vec![(0, 0)] })
        };
        Partial::empty(self.digest(), place, sums)
    }

    /// Takes over what the pass measured or drew.
    ///
    /// # Errors
    /// [`Error::Source`] as for [`KMeansPass::commit`](super::KMeansPass::commit). [`Error::InvalidParam`] if no row
    /// has weight.
    pub fn commit(&self, total: &Partial) -> Result<(Self, Step)> {
        let (extent, sums) = total.whole(self.digest(), self.extent.as_ref())?;
        let rows = extent.rows;
        let mut next = Self { passes: self.passes + 1, extent: Some(extent), ..self.clone() };
        next.rows_seen = next.rows_seen.saturating_add(rows);
        match (self.stage, sums) {
            (Stage::Measuring, Sums::Measured(Measured { moments: Some(moments), wide })) => {
                // Raises for rows without weight.
                SamplingLaw::<f64>::new(&moments)?;
                next.stage = if rows <= self.m as u64 { Stage::KeepingAll } else { Stage::Drawing };
                (next.moments, next.wide) = (Some(moments), wide);
            }
            (Stage::KeepingAll, Sums::Events(events)) => {
                next.result = events.numbered()?;
                next.stage = Stage::Done;
            }
            (Stage::Drawing, Sums::Events(events)) if events.len() < self.m => {
                if self.passes > MOST_PASSES {
                    return Err(other_rows());
                }
            }
            (Stage::Drawing, Sums::Events(events)) => {
                let shares = events.shares;
                next.result = Some(match events.numbered()? {
                    Some(Typed::F32(rows)) => Typed::F32(self.chosen(rows, shares)?),
                    Some(Typed::F64(rows)) => Typed::F64(self.chosen(rows, shares)?),
                    None => return Err(of_others()),
                });
                next.stage = Stage::Done;
            }
            _ => return Err(of_others()),
        }
        let step = Step {
            iteration: next.passes,
            rows_seen: next.rows_seen,
            batch_size: rows,
            objective: f64::NAN,
            ..Step::default()
        };
        Ok((next, step))
    }

    /// Chooses the final rows, and weights them.
    fn chosen<T: Element>(&self, rows: Coreset<T>, all: f64) -> Result<Coreset<T>> {
        let moments = self.moments.as_ref().ok_or_else(of_others)?;
        if rows.points.cols() != moments.mean().len() {
            return Err(of_others());
        }
        let law = SamplingLaw::<T>::new(moments)?;
        let coreset = Drawn { rows, all, seen: 0 }.chosen(&law, self.key(), self.m);
        // Only damaged results have odds of 0, or so small that their inverse overflows.
        if coreset.weights.iter().all(|weight| weight.is_finite()) { Ok(coreset) } else { Err(of_others()) }
    }

    /// The pass as bytes, as [`KMeansPass::to_bytes`](super::KMeansPass::to_bytes).
    ///
    /// # Errors
    /// None for passes of this crate.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut contents = Contents::new(CORESET_PASS);
        let stage = STAGES.iter().find(|(stage, _)| *stage == self.stage).map(|(_, name)| name);
        let mut numbers = json!({
            "n_samples": self.m,
            "metric": self.metric.name(),
            "seed": exact(self.seed),
            "stage": stage,
            "passes": self.passes,
            "rows_seen": exact(self.rows_seen),
            "wide": self.wide,
        });
        Extent::put(self.extent.as_ref(), &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        if let Some(moments) = &self.moments {
            put_moments(&mut contents, moments);
        }
        match &self.result {
            None => {}
            Some(Typed::F32(coreset)) => put_coreset(&mut contents, coreset),
            Some(Typed::F64(coreset)) => put_coreset(&mut contents, coreset),
        }
        to_bytes(&contents)
    }

    /// Reads what [`CoresetPass::to_bytes`] wrote.
    ///
    /// # Errors
    /// Same as [`KMeansPass::from_bytes`](super::KMeansPass::from_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        read_pass(bytes, |contents| {
            contents.must_be(CORESET_PASS)?;
            let numbers = contents.object("pass")?;
            let m = size_of_object(&numbers, "n_samples")?;
            let metric = Metric::of_object(&numbers)?;
            let made = Self::new(m, metric, exact_of(&numbers, "seed")?);
            let mut pass = made.map_err(|e| e.to_string())?;
            let stage = text(&numbers, "stage")?;
            let stage = STAGES.iter().find(|(_, name)| *name == stage).map(|&(stage, _)| stage);
            pass.stage = stage.ok_or("its stage is damaged")?;
            pass.passes = count(&numbers, "passes")?;
            pass.rows_seen = exact_of(&numbers, "rows_seen")?;
            if pass.passes > 1 << 62 || pass.rows_seen > 1 << 62 {
                return Err("its counts are damaged".into());
            }
            if pass.stage == Stage::Measuring {
                return if pass.passes == 0 { Ok(pass) } else { Err("its stage is damaged".into()) };
            }
            pass.wide = flag(&numbers, "wide")?;
            let moments = moments_of(contents)?;
            let dim = moments.mean().len();
            pass.extent = Extent::of_object(&numbers, dim)?;
            if pass.extent.is_none() {
                return Err("it lacks the rows of its passes".into());
            }
            pass.moments = Some(moments);
            if pass.stage == Stage::Done {
                let coreset = coreset_of(contents, dim)?;
                if matches!(coreset, Typed::F64(_)) != pass.wide {
                    return Err("its points are of another type than its rows".into());
                }
                pass.result = Some(coreset);
            }
            Ok(pass)
        })
    }
}

#[cfg(feature = "python")]
impl CoresetPass {
    /// Calls `narrow` or `wide` with a copy of the coreset, once it is complete.
    pub(crate) fn with_coreset<R>(
        &self,
        narrow: impl FnOnce(Coreset<f32>) -> R,
        wide: impl FnOnce(Coreset<f64>) -> R,
    ) -> Option<R> {
        self.result.clone().map(|coreset| match coreset {
            Typed::F32(coreset) => narrow(coreset),
            Typed::F64(coreset) => wide(coreset),
        })
    }
}
