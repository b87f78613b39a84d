//! The loop that every method runs in.
//!
//! A [`Solver`] does one unit of work at a time and holds a valid model after each; [`Run`] is the only loop: it counts, times, stops,
//! and lets observers watch.

mod restarts;
mod run;
mod stop;
pub(crate) mod sweep;

use std::fmt;

use crate::data::{Access, DataSource};
use crate::error::Result;
use crate::float::Float;
use crate::parallel::Executor;

pub(crate) use restarts::RestartsState;
pub use restarts::{Restarts, Start};
pub(crate) use run::require;
pub use run::{Observer, Run, Steps};
pub use stop::StopRules;

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// No row changed its label: an exact fixed point.
    LabelsStable,
    /// The centers moved less than the tolerance.
    Tolerance,
    /// The allowed number of steps is used up.
    MaxIterations,
    /// The allowed time is used up.
    Deadline,
    /// The objective reached the target.
    Target,
    /// The objective has not improved for as many steps as patience allows.
    Patience,
    /// An observer asked to stop.
    Observer,
    /// The centers were no longer finite; those before them stay.
    Diverged,
    /// A cluster lost its last row.
    Collapsed,
}

impl StopReason {
    /// All of them.
    const ALL: [Self; 9] = [
        Self::LabelsStable,
        Self::Tolerance,
        Self::MaxIterations,
        Self::Deadline,
        Self::Target,
        Self::Patience,
        Self::Observer,
        Self::Diverged,
        Self::Collapsed,
    ];

    /// The reason of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// Whether somebody outside ended the run, who may want it to go on.
    pub(crate) fn is_of_others(self) -> bool {
        matches!(self, Self::Deadline | Self::Target | Self::Observer)
    }

    /// The name that Python and the command line show.
    pub fn name(self) -> &'static str {
        match self {
            Self::LabelsStable => "labels-stable",
            Self::Tolerance => "tolerance",
            Self::MaxIterations => "max-iter",
            Self::Deadline => "deadline",
            Self::Target => "target",
            Self::Patience => "patience",
            Self::Observer => "callback",
            Self::Diverged => "diverged",
            Self::Collapsed => "collapsed",
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one unit of work did.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Step {
    /// Number of the step, from 1.
    pub iteration: u64,
    /// Rows read so far, over all steps.
    pub rows_seen: u64,
    /// Rows that this step worked on.
    pub batch_size: u64,
    /// What the method minimises, as measured by this step over its rows; each solver says which.
    pub objective: f64,
    /// Euclidean length of the move of all centers together.
    pub center_shift: f64,
    /// Rows whose label changed.
    pub n_changed: u64,
    /// Distances between a row and a center computed by this step.
    pub n_distances: u64,
    /// Seconds since the run began.
    pub elapsed: f64,
    /// Why the run ended with this step; `None` while it goes on.
    pub stop_reason: Option<StopReason>,
}

/// A method as a state that can be advanced. It owns no data and no lifetime.
pub trait Solver<T: Float> {
    /// What it ends in.
    type Model;

    /// The access that it needs of a source.
    fn needs(&self) -> Access;

    /// One unit of progress; the model is valid afterwards. The step's `stop_reason` is set when the method itself has ended.
    ///
    /// # Errors
    /// Those of the source, [`Error::NotFinite`](crate::Error::NotFinite), [`Error::Interrupted`](crate::Error::Interrupted).
    fn step(&mut self, data: &dyn DataSource<T>, cx: &Executor) -> Result<Step>;

    /// The model as it is now.
    fn model(&self) -> Self::Model;
}
