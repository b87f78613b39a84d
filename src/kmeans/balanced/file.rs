//! Writes a fit by balanced k-means to a checkpoint and reads it back.

use serde_json::json;

use super::BalancedParams;
use super::solver::{Balance, BalancedSolver};
use crate::centers::LabelList;
use crate::fit::FitSolver;
use crate::fit::{stored_timings, timings_of};
use crate::kernel::Compute;
use crate::kmeans::starts::LloydStarts;
use crate::persist::kept::{count, flag, keep, list, number, rows, stored_rows};
use crate::persist::schema::BALANCED_CHECKPOINT;
use crate::persist::{Array, Contents};

impl<T: Compute> BalancedSolver<T> {
    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new(BALANCED_CHECKPOINT);
        let balance = self.balance.as_ref();
        // Floats are stored as bits, so that a resumed fit is bit-identical.
        let numbers = json!({
            "dim": self.start.best().dim(),
            "balanced": balance.is_some(),
            "energy": balance.map_or(f64::NAN, |balance| balance.energy).to_bits(),
            "bound": balance.map_or(f64::NAN, |balance| balance.bound).to_bits(),
            "current": balance.is_some_and(|balance| balance.current),
            "sweeps": balance.map_or(0, |balance| balance.sweeps),
            "iteration": self.iteration,
            "rows_seen": self.rows_seen,
            "timings": stored_timings(self.timings),
        });
        contents.meta.insert("state".into(), numbers.to_string());
        contents.put("start", FitSolver::<T>::checkpoint(&self.start));
        if let Some(balance) = balance {
            let labels = balance.labels.view().to_vec();
            keep(&mut contents, "centers", stored_rows(&balance.centers, self.start.best().dim().max(1)));
            keep(&mut contents, "prices", Array::new(&[balance.prices.len()], &balance.prices));
            keep(&mut contents, "settled", Array::new(&[balance.settled.len()], &balance.settled));
            keep(&mut contents, "sizes", Array::new(&[balance.sizes.len()], &balance.sizes));
            keep(&mut contents, "labels", Array::new(&[labels.len()], &labels));
        }
        contents
    }

    /// Reads what [`BalancedSolver::to_file`] wrote, to resume with `params`. The error says what is wrong.
    pub(super) fn of_file(params: BalancedParams, contents: &Contents) -> Result<Self, String> {
        contents.must_be(BALANCED_CHECKPOINT)?;
        let numbers = contents.object("state")?;
        let start = contents.part("start").ok_or("it holds no centers")?;
        let start = LloydStarts::of_file(&params.exact(), &start)?;
        let dim = usize::try_from(count(&numbers, "dim")?).map_err(|_| "its \"dim\" is too large")?;
        if dim != start.best().dim() {
            return Err("its \"dim\" does not match its centers".into());
        }
        let balance = if flag(&numbers, "balanced")? {
            if !params.has_limits() {
                return Err("it holds clusters with limits, but size_min and size_max are none".into());
            }
            let k = params.n_clusters;
            let centers: Vec<T> = rows(contents, "centers", dim)?;
            let prices: Vec<f64> = contents.values("prices", &[k])?;
            let settled: Vec<f64> = contents.values("settled", &[k])?;
            let sizes: Vec<f64> = list(contents, "sizes")?;
            let labels: Vec<u32> = list(contents, "labels")?;
            if centers.len() != k * dim || !centers.iter().all(|x| x.finite()) {
                return Err(format!("it does not hold {k} finite centers"));
            }
            for (name, prices) in [("prices", &prices), ("settled", &settled)] {
                if !prices.iter().all(|price| price.is_finite()) {
                    return Err(format!("its {name:?} are not finite"));
                }
            }
            if !labels.iter().all(|&j| (j as usize) < k) {
                return Err("its \"labels\" do not match its \"centers\"".into());
            }
            if !(sizes.len() == k && !labels.is_empty() || sizes.is_empty() && labels.is_empty()) {
                return Err("its \"sizes\" do not match its \"labels\"".into());
            }
            Some(Balance {
                centers,
                prices,
                labels: LabelList::of(labels, k),
                settled,
                sizes,
                energy: number(&numbers, "energy")?,
                bound: number(&numbers, "bound")?,
                current: flag(&numbers, "current")?,
                sweeps: count(&numbers, "sweeps")?,
            })
        } else {
            None
        };
        let (iteration, rows_seen) = (count(&numbers, "iteration")?, count(&numbers, "rows_seen")?);
        let timings = timings_of(&numbers)?;
        Ok(Self { params, start, balance, finished: None, iteration, rows_seen, timings })
    }
}
