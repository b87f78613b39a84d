//! Writes a fit by balanced k-means to a checkpoint and reads it back.

use super::params::BalancedParams;
use super::solver::{Balance, BalancedSolver};
use crate::centers::LabelList;
use crate::fit::{SolverState, Timings};
use crate::kernel::Compute;
use crate::kmeans::lloyd::starts::{LloydStarts, restore_starts};
use crate::persist::Contents;
use crate::persist::schema::BALANCED_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter, stored_fields};

impl<T: Compute> BalancedSolver<T> {
    stored_fields! { iteration, rows_seen, timings }
}

impl<T: Compute> SolverState for BalancedSolver<T> {
    type Params = BalancedParams;

    fn plan(params: &BalancedParams) -> Self {
        Self {
            start: LloydStarts::plan(&params.exact()),
            balance: None,
            finished: None,
            iteration: 0,
            rows_seen: 0,
            timings: Timings::default(),
            params: params.clone(),
        }
    }

    fn checkpoint(&self) -> Contents {
        let mut to = StateWriter::new(BALANCED_CHECKPOINT);
        self.put_fields(&mut to);
        let dim = self.start.best().dim();
        to.put("dim", &dim);
        to.put("balanced", &self.balance.is_some());
        to.contents.put("start", self.start.checkpoint());
        if let Some(balance) = &self.balance {
            balance.put_fields(&mut to);
            to.put_matrix("centers", &balance.centers, dim);
            to.put("labels", &balance.labels.view().to_vec());
        }
        to.finish()
    }

    fn restore(params: &BalancedParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(BALANCED_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let start = contents.part("start").ok_or("it holds no centers")?;
        let start = restore_starts(&params.exact(), &start)?;
        let dim = from.get("dim")?;
        if dim != start.best().dim() {
            return Err("its \"dim\" does not match its centers".into());
        }
        let balance = if from.get("balanced")? {
            if !params.has_limits() {
                return Err("it holds clusters with limits, but size_min and size_max are none".into());
            }
            Some(Balance::restore(params.n_clusters, dim, &from)?)
        } else {
            None
        };
        let mut state = Self { start, balance, ..Self::plan(params) };
        state.get_fields(&from)?;
        Ok(state)
    }

    fn fits(&self, n: Option<u64>) -> bool {
        let fits = |balance: &Balance<T>| {
            balance.labels.len() == 0 || n.is_none_or(|n| balance.labels.len() as u64 == n)
        };
        self.start.fits(n) && self.balance.as_ref().is_none_or(fits)
    }
}

impl<T: Compute> Balance<T> {
    stored_fields! { prices, settled, sizes, energy, bound, current, sweeps }

    /// Reads the balance of `k` clusters of rows with `dim` columns.
    fn restore(k: usize, dim: usize, from: &StateReader<'_>) -> Result<Self, String> {
        let labels: Vec<u32> = from.get("labels")?;
        if !labels.iter().all(|&j| (j as usize) < k) {
            return Err("its \"labels\" do not match its \"centers\"".into());
        }
        let rows = labels.len();
        let mut balance = Self::new(from.centers("centers", k, dim)?, LabelList::of(labels, k), k);
        balance.get_fields(from)?;
        for (name, prices) in [("prices", &balance.prices), ("settled", &balance.settled)] {
            if prices.len() != k || !prices.iter().all(|price| price.is_finite()) {
                return Err(format!("its {name:?} are not {k} finite numbers"));
            }
        }
        if balance.sizes.len() != if rows == 0 { 0 } else { k } {
            return Err("its \"sizes\" do not match its \"labels\"".into());
        }
        Ok(balance)
    }
}
