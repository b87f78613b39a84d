//! Why a run ends.

use crate::names::names;

/// Why a run ended.
///
/// ```
/// use shoal::fit::StopReason;
/// assert_eq!((StopReason::Diverged.to_string(), "target".parse().ok()), ("diverged".to_owned(), Some(StopReason::Target)));
/// ```
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
    /// The caller asked to stop: a callback in Python.
    Observer,
    /// The centers were no longer finite; the run keeps the previous centers.
    Diverged,
    /// A cluster lost its last row.
    Collapsed,
}

names! {
    StopReason("stop_reason") {
        LabelsStable = "labels-stable",
        Tolerance = "tolerance",
        MaxIterations = "max-iter",
        Deadline = "deadline",
        Target = "target",
        Patience = "patience",
        Observer = "callback",
        Diverged = "diverged",
        Collapsed = "collapsed",
    }
}

impl StopReason {
    /// [`StopReason::MaxIterations`] once as many iterations are made as are allowed.
    pub(crate) fn after(iterations: u64, most: u64) -> Option<Self> {
        (iterations >= most).then_some(Self::MaxIterations)
    }

    /// Whether the caller ended the run and may want to resume it.
    pub(crate) fn is_resumable(self) -> bool {
        matches!(self, Self::Deadline | Self::Target | Self::Observer)
    }
}
