//! The sums of the passes of k-means||: the rows drawn in a round, and the weight that each candidate attracts.

use super::errors::of_others;
use super::numbers::as_size;
use super::picked::Picked;
use super::sums::Sums;
use crate::error::Result;
use crate::persist::kept::{keep, list};
use crate::persist::{Array, Contents};

/// A round of draws.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    /// The weight of all rows, and their weighted sum of squared distances to the candidates.
    pub(super) weight: f64,
    pub(super) energy: f64,
    /// The rows with the smallest waiting times.
    pub(super) picked: Picked,
}

impl Sums for Draws {
    const KIND: &'static str = "draws";

    fn add(&mut self, mut next: Self) -> Result<()> {
        let (one, two) = (&self.picked, &next.picked);
        let dims = one.dim() == two.dim() || one.dim() == 0 || two.dim() == 0;
        if !dims || one.most() != two.most() {
            return Err(of_others());
        }
        self.weight += next.weight;
        self.energy += next.energy;
        self.picked.append(&mut next.picked);
        self.picked.prune();
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "most", Array::new(&[1], &[self.picked.most() as u64]));
        keep(contents, "totals", Array::new(&[2], &[self.weight, self.energy]));
        self.picked.put(contents);
    }

    fn of_file(contents: &Contents, dim: usize) -> Result<Self, String> {
        let most = contents.values::<u64>("most", &[1])?[0];
        let totals = contents.values::<f64>("totals", &[2])?;
        if !totals.iter().all(|x| x.is_finite() && *x >= 0.0) {
            return Err("its totals are damaged".into());
        }
        let most = as_size(most)?;
        // A partition without rows does not know their width.
        let empty = contents.array("keys")?.shape() == [0];
        let picked = Picked::of_file(contents, if empty { 0 } else { dim }, most)?;
        if !picked.entries.iter().all(|entry| entry.key >= 0.0) {
            return Err("its rows are damaged".into());
        }
        Ok(Self { weight: totals[0], energy: totals[1], picked })
    }

    fn fits(&self, rows: u64, _: usize) -> bool {
        self.picked.entries.len() as u64 <= rows
    }
}

/// The weight of the rows that are nearest to each candidate.
#[derive(Clone, Debug)]
pub(super) struct Votes {
    pub(super) votes: Vec<f64>,
    /// The weighted sum of squared distances of the rows to the candidates.
    pub(super) energy: f64,
}

impl Sums for Votes {
    const KIND: &'static str = "votes";

    fn add(&mut self, next: Self) -> Result<()> {
        if self.votes.len() != next.votes.len() {
            return Err(of_others());
        }
        self.votes.iter_mut().zip(&next.votes).for_each(|(votes, more)| *votes += more);
        self.energy += next.energy;
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "votes", Array::new(&[self.votes.len()], &self.votes));
        keep(contents, "energy", Array::new(&[1], &[self.energy]));
    }

    fn of_file(contents: &Contents, _: usize) -> Result<Self, String> {
        let votes: Vec<f64> = list(contents, "votes")?;
        let energy = contents.values::<f64>("energy", &[1])?[0];
        if !votes.iter().chain([&energy]).all(|x| x.is_finite() && *x >= 0.0) {
            return Err("its votes are damaged".into());
        }
        Ok(Self { votes, energy })
    }
}
