//! The components nearest to a row.

/// A component near a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) cost: f64,
    pub(super) id: u32,
    pub(super) sq_dist: f64,
}

/// The components with the smallest costs, in order; the lower index first among equals.
#[derive(Debug, Default)]
pub(super) struct Nearest {
    most: usize,
    /// The largest cost among them, once there are `most`.
    worst: f64,
    pub(super) found: Vec<Near>,
}

impl Nearest {
    /// Starts a new search for `most` components.
    pub(super) fn begin(&mut self, most: usize) {
        self.most = most;
        self.worst = f64::INFINITY;
        self.found.clear();
    }

    /// Offers a component.
    #[inline(always)]
    pub(super) fn offer(&mut self, near: Near) {
        // Most components are too far away.
        if near.cost <= self.worst || near.cost.is_nan() {
            self.take(near);
        }
    }

    fn take(&mut self, near: Near) {
        let before = |a: &Near, b: &Near| a.cost < b.cost || (a.cost == b.cost && a.id < b.id);
        let found = &mut self.found;
        if found.len() < self.most {
            found.push(near);
        } else if found.last().is_some_and(|last| before(&near, last)) {
            found[self.most - 1] = near;
        } else {
            return;
        }
        let mut at = found.len() - 1;
        while at > 0 && before(&near, &found[at - 1]) {
            found[at] = found[at - 1];
            at -= 1;
        }
        found[at] = near;
        if found.len() == self.most {
            self.worst = found[self.most - 1].cost;
        }
    }
}
