//! Stop reasons of a run, and the stop rules of the caller.

use super::Step;
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
    /// An observer asked to stop.
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
    /// Whether the caller ended the run and may want to resume it.
    pub(crate) fn is_of_others(self) -> bool {
        matches!(self, Self::Deadline | Self::Target | Self::Observer)
    }
}

/// Stop rules of the caller, in addition to those of the method. The first rule that holds gives the reason.
///
/// ```
/// use shoal::fit::{Step, StopReason, StopRules};
/// let mut rules = StopRules::default();
/// rules.max_steps = Some(2);
/// let mut step = Step::default();
/// step.iteration = 1;
/// assert_eq!(rules.check(&step), None);
/// step.iteration = 2;
/// assert_eq!(rules.check(&step), Some(StopReason::MaxIterations));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct StopRules {
    /// Most steps.
    pub max_steps: Option<u64>,
    /// Most seconds.
    pub deadline: Option<f64>,
    /// Stop once the objective is at most this; at least this if the method maximizes it.
    pub target: Option<f64>,
    /// Stop at the end of this many steps in a row without a new lowest objective; highest if the method maximizes
    /// it. A step whose objective is NaN has none, and 0 counts as 1.
    pub patience: Option<u64>,
    best: Option<f64>,
    /// Steps since the best one.
    waited: u64,
}

impl StopRules {
    /// The reason to stop after `step`, if there is one. Call it once per step of a method that minimizes its
    /// objective; a [`Driver`](super::Driver) asks its solver.
    pub fn check(&mut self, step: &Step) -> Option<StopReason> {
        self.check_as(step, false)
    }

    /// As [`StopRules::check`], for an objective that the method maximizes if `rising`.
    pub(super) fn check_as(&mut self, step: &Step, rising: bool) -> Option<StopReason> {
        let objective = step.objective;
        let better = |than: f64| if rising { objective > than } else { objective < than };
        if !objective.is_nan() && self.best.is_none_or(better) {
            (self.best, self.waited) = (Some(objective), 0);
        } else {
            self.waited += 1;
        }
        if step.stop_reason.is_some() {
            step.stop_reason
        } else if self.target.is_some_and(|t| objective == t || better(t)) {
            Some(StopReason::Target)
        } else if self.patience.is_some_and(|most| self.waited >= most.max(1)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The step that ends a run whose steps have these objectives, and why. Each step takes a second.
    fn end(rules: StopRules, objectives: &[f64]) -> Option<(u64, StopReason)> {
        end_as(rules, objectives, false)
    }

    /// The same for objectives that the method maximizes if `rising`.
    fn end_as(mut rules: StopRules, objectives: &[f64], rising: bool) -> Option<(u64, StopReason)> {
        (1..).zip(objectives).find_map(|(iteration, &objective)| {
            let step = Step { iteration, objective, elapsed: iteration as f64, ..Step::default() };
            rules.check_as(&step, rising).map(|reason| (iteration, reason))
        })
    }

    #[test]
    fn a_rule_holds_at_its_limit() {
        let falling = [5.0, 4.0, 3.0, 2.0, 1.0];
        let rules = || StopRules::default();
        assert_eq!(end(rules(), &falling), None);
        let found = end(StopRules { max_steps: Some(3), ..rules() }, &falling);
        assert_eq!(found, Some((3, StopReason::MaxIterations)));
        let found = end(StopRules { target: Some(3.0), ..rules() }, &falling);
        assert_eq!(found, Some((3, StopReason::Target)));
        let found = end(StopRules { deadline: Some(3.0), ..rules() }, &falling);
        assert_eq!(found, Some((3, StopReason::Deadline)));
    }

    #[test]
    fn an_equal_objective_is_no_new_lowest_one() {
        let patience = |steps| StopRules { patience: Some(steps), ..StopRules::default() };
        assert_eq!(end(patience(2), &[3.0, 2.0, 2.0, 2.0, 2.0]), Some((4, StopReason::Patience)));
        assert_eq!(end(patience(2), &[3.0, 4.0, 2.0, 3.0, 1.0]), None);
        assert_eq!(end(patience(2), &[3.0, 4.0, 3.5, 1.0]), Some((3, StopReason::Patience)));
    }

    #[test]
    fn a_first_objective_that_is_no_number_is_replaced() {
        let patience = |steps| StopRules { patience: Some(steps), ..StopRules::default() };
        assert_eq!(end(patience(2), &[f64::NAN, 4.0, 3.0, 2.0, 1.0]), None);
        assert_eq!(end(patience(2), &[f64::NAN, 4.0, 5.0, 5.0]), Some((4, StopReason::Patience)));
        assert_eq!(end(patience(2), &[f64::NAN, f64::NAN]), Some((2, StopReason::Patience)));
        let target = StopRules { target: Some(3.0), ..StopRules::default() };
        assert_eq!(end(target, &[f64::NAN, 4.0, 2.0]), Some((3, StopReason::Target)));
    }

    #[test]
    fn patience_ends_a_run_that_many_steps_after_its_best_one() {
        for steps in 1..5 {
            let patience = || StopRules { patience: Some(steps), ..StopRules::default() };
            assert_eq!(end(patience(), &[2.0; 9]), Some((1 + steps, StopReason::Patience)));
            assert_eq!(end_as(patience(), &[2.0; 9], true), Some((1 + steps, StopReason::Patience)));
        }
        let none = StopRules { patience: Some(0), ..StopRules::default() };
        assert_eq!(end(none, &[3.0, 2.0, 2.0, 1.0]), Some((3, StopReason::Patience)));
    }

    #[test]
    fn rules_follow_an_objective_that_rises() {
        let rising = [1.0, 2.0, 3.0, 4.0, 4.0, 3.0];
        let patience = StopRules { patience: Some(2), ..StopRules::default() };
        assert_eq!(end_as(patience, &rising, true), Some((6, StopReason::Patience)));
        let target = StopRules { target: Some(3.0), ..StopRules::default() };
        assert_eq!(end_as(target, &rising, true), Some((3, StopReason::Target)));
    }

    #[test]
    fn the_reason_of_the_method_comes_first() {
        let mut rules = StopRules { max_steps: Some(1), ..StopRules::default() };
        let step = Step { iteration: 1, stop_reason: Some(StopReason::LabelsStable), ..Step::default() };
        assert_eq!(rules.check(&step), Some(StopReason::LabelsStable));
    }
}
