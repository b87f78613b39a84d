//! A lightweight coreset of partitions, in two passes (Bachem, Lucic and Krause, 2018).

use serde_json::json;

use super::errors::of_others;
use super::events::{AnyCoreset, Events, Measured, coreset_of, moments_of, put_coreset, put_moments};
use super::extent::Before;
use super::numbers::{exact, exact_of, size_of_object};
use super::partial::Partial;
use super::pass::{Pass, PassFacts, Summed, digest, public_pass};
use super::picked::Picked;
use super::place::Place;
use super::sums::AnySums;
use crate::data::{DataSource, Source};
use crate::error::{Error, Result};
use crate::fit::{Element, Metric, Step, Typed};
use crate::names::{Named, names};
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::kept::{Values, flag, text};
use crate::persist::schema::CORESET_PASS;
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
    stage: CoresetStage,
    before: Before,
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

    fn events<T: Element>(rows: u64, here: Coreset<T>, shares: f64) -> AnySums {
        let blocks = vec![(rows, here.rows.len() as u64)];
        AnySums::new(Events { rows: Some(Typed::of_type::<T, Coreset<()>>(here)), shares, blocks })
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
    const KIND: &'static str = CORESET_PASS;

    fn facts(&self) -> PassFacts<'_> {
        PassFacts {
            metric: self.metric,
            shape: self.moments.as_ref().map(|moments| (moments.mean().len(), self.wide)),
            before: &self.before,
            centers: None,
            is_done: self.is_done(),
            // All partitions together return about the rows of the coreset, for any number of partitions.
            result_bytes: match self.stage {
                CoresetStage::Measuring => 16,
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

    fn sum<T: Element>(&self, data: &dyn DataSource<T>, place: Place, cx: &Executor) -> Result<Summed> {
        match (self.stage, &self.moments) {
            (CoresetStage::Measuring, _) => {
                let mut moments = Moments::new(data.dim());
                add_moments(data, &mut moments, cx)?;
                let (rows, wide) = (moments.rows(), T::WIDE);
                Ok((rows, AnySums::new(Measured { moments: Some(moments), wide })))
            }
            (CoresetStage::Drawing, Some(moments)) => {
                let (law, mut drawn) = (SamplingLaw::new(moments)?, Drawn::new(data.dim()));
                let key = mix(place.key(self.key()) ^ place.first_row());
                draw_events(data, &law, (key, self.m), true, &mut drawn, cx)?;
                Ok((drawn.seen, Self::events(drawn.seen, drawn.rows, drawn.all)))
            }
            (CoresetStage::KeepingAll, _) => {
                let mut all = Coreset::<T>::new(data.dim());
                take_all(data, &mut all, cx)?;
                let rows = all.rows.len() as u64;
                Ok((rows, Self::events(rows, all, 0.0)))
            }
            _ => Err(Error::Source("the coreset is complete: there are no more passes".into())),
        }
    }

    fn no_sums(&self) -> AnySums {
        if self.stage == CoresetStage::Measuring {
            AnySums::new(Measured { moments: None, wide: false })
        } else {
            AnySums::new(Events { rows: None, shares: 0.0, blocks: vec![(0, 0)] })
        }
    }

    fn next(&self, now: Before, total: AnySums) -> Result<(Self, Step)> {
        let mut next = Self { before: now, ..self.clone() };
        match self.stage {
            CoresetStage::Measuring => {
                let Measured { moments: Some(moments), wide } = total.into_kind()? else {
                    return Err(of_others());
                };
                // Fails if no row has weight.
                SamplingLaw::<f64>::new(&moments)?;
                let is_small = next.before.rows() <= self.m as u64;
                next.stage = if is_small { CoresetStage::KeepingAll } else { CoresetStage::Drawing };
                (next.moments, next.wide) = (Some(moments), wide);
            }
            CoresetStage::KeepingAll => {
                next.result = total.into_kind::<Events>()?.numbered()?;
                next.stage = CoresetStage::Done;
            }
            CoresetStage::Drawing => {
                let events: Events = total.into_kind()?;
                if events.len() >= self.m {
                    let shares = events.shares;
                    next.result = Some(match events.numbered()? {
                        Some(Typed::F32(rows)) => Typed::F32(self.chosen(rows, shares)?),
                        Some(Typed::F64(rows)) => Typed::F64(self.chosen(rows, shares)?),
                        None => return Err(of_others()),
                    });
                    next.stage = CoresetStage::Done;
                } else if self.before.passes > MOST_PASSES {
                    return Err(other_rows());
                }
            }
            CoresetStage::Done => return Err(of_others()),
        }
        let step = next.before.step(0, f64::NAN);
        Ok((next, step))
    }

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
    }

    fn of_contents(contents: &Contents) -> Result<Self, String> {
        let numbers = contents.object("pass")?;
        let m = size_of_object(&numbers, "n_samples")?;
        let metric = Metric::of_object(&numbers)?;
        let made = Self::new(m, metric, exact_of(&numbers, "seed")?);
        let mut pass = made.map_err(|e| e.to_string())?;
        let stage = CoresetStage::of_name("stage", &text(&numbers, "stage")?);
        pass.stage = stage.map_err(|_| "its stage is damaged")?;
        if pass.stage != CoresetStage::Measuring {
            pass.moments = Some(moments_of(contents)?);
            pass.wide = flag(&numbers, "wide")?;
        }
        let dim = pass.dim();
        pass.before = Before::of_object("passes", &numbers, dim)?;
        if pass.stage == CoresetStage::Measuring {
            return if pass.before.passes == 0 { Ok(pass) } else { Err("its stage is damaged".into()) };
        }
        if pass.before.extent.is_none() {
            return Err("it lacks the rows of its passes".into());
        }
        if pass.stage == CoresetStage::Done {
            let coreset = coreset_of(contents, dim)?;
            if matches!(coreset, Typed::F64(_)) != pass.wide {
                return Err("its points are of another type than its rows".into());
            }
            pass.result = Some(coreset);
        }
        Ok(pass)
    }
}
