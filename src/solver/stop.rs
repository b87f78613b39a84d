//! This module knows when a run has to stop, whatever the method.

use super::{Step, StopReason};

/// Rules that end a run from outside the method; the first that holds gives the reason.
///
/// ```
/// use shoal::solver::{Step, StopReason, StopRules};
/// let mut rules = StopRules::default();
/// rules.max_steps = Some(2);
/// assert_eq!(rules.check(&Step { iteration: 1, ..Step::default() }), None);
/// assert_eq!(rules.check(&Step { iteration: 2, ..Step::default() }), Some(StopReason::MaxIterations));
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopRules {
    /// Most steps.
    pub max_steps: Option<u64>,
    /// Most seconds.
    pub deadline: Option<f64>,
    /// Stop once the objective is at most this.
    pub target: Option<f64>,
    /// Stop after this many steps without a new lowest objective.
    pub patience: Option<u64>,
    best: Option<(f64, u64)>,
}

impl StopRules {
    /// The reason to stop after `step`, if there is one.
    pub fn check(&mut self, step: &Step) -> Option<StopReason> {
        if self.best.is_none_or(|(best, _)| step.objective < best) {
            self.best = Some((step.objective, step.iteration));
        }
        let waited = self.best.map_or(0, |(_, at)| step.iteration - at);
        if step.stop_reason.is_some() {
            step.stop_reason
        } else if self.target.is_some_and(|t| step.objective <= t) {
            Some(StopReason::Target)
        } else if self.patience.is_some_and(|p| waited >= p) {
            Some(StopReason::Patience)
        } else if self.max_steps.is_some_and(|m| step.iteration >= m) {
            Some(StopReason::MaxIterations)
        } else if self.deadline.is_some_and(|d| step.elapsed >= d) {
            Some(StopReason::Deadline)
        } else {
            None
        }
    }
}
