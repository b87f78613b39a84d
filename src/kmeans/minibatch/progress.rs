//! Decides when a mini-batch fit has stopped improving. Batches are noisy, so it averages over about one
//! pass.

use crate::fit::StopReason;

/// Exponential averages of the measurements of batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Averages {
    /// Inertia per row.
    pub(super) inertia: Option<f64>,
    /// The lowest value of `inertia` so far.
    pub(super) lowest: Option<f64>,
    /// Batches since the lowest value.
    pub(super) stalled: u64,
    /// Squared length of all center moves.
    pub(super) shift: Option<f64>,
}

/// Stop criteria.
pub(super) struct Patience {
    /// Stop when the averaged squared moves are at most this.
    pub(super) threshold: Option<f64>,
    /// Stop after this many batches without improvement.
    pub(super) batches: Option<u64>,
}

impl Averages {
    /// Records a batch of `rows` of the `n` rows. Returns the reason to stop, if there is one. Follows
    /// scikit-learn, which does not average the moves.
    pub(super) fn observe(
        &mut self,
        (rows, n): (u64, u64),
        inertia: f64,
        sq_shift: f64,
        patience: &Patience,
    ) -> Option<StopReason> {
        let share = (2.0 * rows as f64 / (n as f64 + 1.0)).min(1.0);
        let smooth = |old: Option<f64>, new: f64| old.map_or(new, |old| old * (1.0 - share) + new * share);
        let (inertia, shift) = (smooth(self.inertia, inertia), smooth(self.shift, sq_shift));
        (self.inertia, self.shift) = (Some(inertia), Some(shift));
        if patience.threshold.is_some_and(|threshold| shift <= threshold) {
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
    fn moves_are_averaged_before_they_are_compared() {
        let mut progress = Averages::default();
        let patience = Patience { threshold: Some(1.0), batches: None };
        // A batch is a tenth of the rows and gets a fifth of the weight: one short move after long ones must
        // not end the fit.
        assert_eq!(progress.observe((10, 99), 1.0, 8.0, &patience), None);
        assert_eq!(progress.observe((10, 99), 1.0, 0.0, &patience), None);
        let mut batches = 1;
        while progress.observe((10, 99), 1.0, 0.0, &patience).is_none() {
            batches += 1;
        }
        // 8 * 0.8^10 < 1
        assert_eq!(batches, 9);
    }
}
