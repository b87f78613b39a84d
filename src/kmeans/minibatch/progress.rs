//! Decides when a mini-batch fit has stopped improving. Inertias of batches are noisy, so they are averaged
//! over about one pass.

use crate::fit::StopReason;

/// Exponential average of the inertia of batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Averages {
    /// Inertia per row.
    pub(super) inertia: Option<f64>,
    /// The lowest value of `inertia` so far.
    pub(super) lowest: Option<f64>,
    /// Batches since the lowest value.
    pub(super) stalled: u64,
}

/// Stop criteria.
pub(super) struct Patience {
    /// Stop when the squared length of the center moves of a batch is at most this.
    pub(super) threshold: Option<f64>,
    /// Stop after this many batches without improvement.
    pub(super) batches: Option<u64>,
}

impl Averages {
    /// Records a batch of `rows` of the `n` rows. Returns the reason to stop, if there is one. Follows
    /// scikit-learn. Moves shrink with the number of rows seen: an average of them would be that of the first
    /// batches for several passes.
    pub(super) fn observe(
        &mut self,
        (rows, n): (u64, u64),
        inertia: f64,
        sq_shift: f64,
        patience: &Patience,
    ) -> Option<StopReason> {
        let share = (2.0 * rows as f64 / (n as f64 + 1.0)).min(1.0);
        let inertia = self.inertia.map_or(inertia, |old| old * (1.0 - share) + inertia * share);
        self.inertia = Some(inertia);
        if patience.threshold.is_some_and(|threshold| sq_shift <= threshold) {
            return Some(StopReason::Tolerance);
        }
        if self.lowest.is_none_or(|lowest| inertia < lowest) {
            (self.lowest, self.stalled) = (Some(inertia), 0);
        } else {
            self.stalled += 1;
        }
        patience.batches.is_some_and(|most| self.stalled >= most).then_some(StopReason::Patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_stops_after_so_many_batches_without_a_new_lowest_average() {
        let mut progress = Averages::default();
        let patience = Patience { threshold: None, batches: Some(3) };
        // A batch is half of the rows, so the average is nearly the newest value.
        let seen = [9.0, 8.0, 7.0, 8.0, 6.0, 8.0, 8.0, 8.0];
        let stops: Vec<bool> = seen
            .iter()
            .map(|&inertia| progress.observe((50, 99), inertia, 1.0, &patience).is_some())
            .collect();
        assert_eq!(stops, [false, false, false, false, false, false, false, true]);
        // An equal average is no new lowest one. A batch of all rows is not averaged.
        let mut constant = Averages::default();
        let stops: Vec<bool> =
            (0..4).map(|_| constant.observe((99, 99), 5.0, 1.0, &patience).is_some()).collect();
        assert_eq!(stops, [false, false, false, true]);
        let mut endless = Averages::default();
        let never = Patience { threshold: None, batches: None };
        assert!((0..1000).all(|_| endless.observe((50, 99), 1.0, 1.0, &never).is_none()));
    }

    #[test]
    fn it_stops_after_the_first_batch_with_short_moves() {
        let mut progress = Averages::default();
        let patience = Patience { threshold: Some(1.0), batches: None };
        let stops = [8.0, 1.5, 1.0].map(|sq_shift| progress.observe((10, 99), 1.0, sq_shift, &patience));
        assert_eq!(stops, [None, None, Some(StopReason::Tolerance)]);
    }
}
