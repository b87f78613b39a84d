//! Writes a fit by balanced k-means to a checkpoint and reads it back.

use super::BalancedParams;
use super::solver::{Balance, BalancedSolver};
use crate::centers::LabelList;
use crate::fit::FitSolver;
use crate::kernel::Compute;
use crate::kmeans::starts::LloydStarts;
use crate::persist::Contents;
use crate::persist::schema::BALANCED_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter, stored_fields};

impl<T: Compute> BalancedSolver<T> {
    stored_fields! { iteration, rows_seen, timings }

    pub(super) fn to_file(&self) -> Contents {
        let mut to = StateWriter::new(BALANCED_CHECKPOINT);
        self.put_fields(&mut to);
        let dim = self.start.best().dim();
        to.put("dim", &dim);
        to.put("balanced", &self.balance.is_some());
        to.contents.put("start", FitSolver::<T>::checkpoint(&self.start));
        if let Some(balance) = &self.balance {
            balance.put_fields(&mut to);
            to.put_matrix("centers", &balance.centers, dim);
            to.put("labels", &balance.labels.view().to_vec());
        }
        to.finish()
    }

    /// Reads what [`BalancedSolver::to_file`] wrote, to resume with `params`. The error says what is wrong.
    pub(super) fn of_file(params: BalancedParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(BALANCED_CHECKPOINT)?;
        let from = StateReader::new(contents)?;
        let start = contents.part("start").ok_or("it holds no centers")?;
        let start = LloydStarts::of_file(&params.exact(), &start)?;
        let dim = from.get("dim")?;
        if dim != start.best().dim() {
            return Err("its \"dim\" does not match its centers".into());
        }
        let balance = if from.get("balanced")? {
            if !params.has_limits() {
                return Err("it holds clusters with limits, but size_min and size_max are none".into());
            }
            Some(Balance::of_file(params.n_clusters, dim, &from)?)
        } else {
            None
        };
        let mut state = Self { start, balance, ..Self::plan(params) };
        state.get_fields(&from)?;
        Ok(state)
    }
}

impl<T: Compute> Balance<T> {
    stored_fields! { prices, settled, sizes, energy, bound, current, sweeps }

    /// Reads the balance of `k` clusters of rows with `dim` columns.
    fn of_file(k: usize, dim: usize, from: &StateReader<'_>) -> Result<Self, String> {
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
