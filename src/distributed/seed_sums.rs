//! The sums of the passes of k-means||: the rows drawn in a round, and the weight that each candidate attracts.

use super::errors::of_others;
use super::numbers::as_size;
use super::picked::Picked;
use super::sums::Sums;
use crate::error::Result;
use crate::kmeans::{keep_sums, sums_of};
use crate::persist::kept::keep;
use crate::persist::{Array, Contents};
use crate::stats::ClusterSums;

/// A round of draws.
#[derive(Clone, Debug)]
pub(super) struct Draws {
    /// The weight of all rows, and their weighted sum of squared distances to the candidates: one cluster without columns.
    pub(super) totals: ClusterSums,
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
        self.totals.merge(&mut next.totals);
        self.picked.append(&mut next.picked);
        self.picked.prune();
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "most", Array::new(&[1], &[self.picked.most() as u64]));
        keep_sums(contents, "totals", &self.totals);
        self.picked.put(contents);
    }

    fn of_file(contents: &Contents, dim: usize) -> Result<Self, String> {
        let most = as_size(contents.values::<u64>("most", &[1])?[0])?;
        let totals = sums_of(contents, "totals", 1, 0)?.ok_or("it lacks its totals")?;
        // A partition without rows does not know their width.
        let empty = contents.array("keys")?.shape() == [0];
        let picked = Picked::of_file(contents, if empty { 0 } else { dim }, most)?;
        if !picked.entries.iter().all(|entry| entry.key >= 0.0) {
            return Err("its rows are damaged".into());
        }
        Ok(Self { totals, picked })
    }

    fn fits(&self, rows: u64, _: usize) -> bool {
        self.picked.entries.len() as u64 <= rows
    }
}

/// The weight of the rows that are nearest to each candidate, and their weighted squared distances to it: one cluster
/// without columns per candidate.
#[derive(Clone, Debug)]
pub(super) struct Votes(pub(super) ClusterSums);

impl Sums for Votes {
    const KIND: &'static str = "votes";

    fn add(&mut self, mut next: Self) -> Result<()> {
        if self.0.shape() != next.0.shape() {
            return Err(of_others());
        }
        self.0.merge(&mut next.0);
        Ok(())
    }

    fn put(&self, contents: &mut Contents) {
        keep(contents, "candidates", Array::new(&[1], &[self.0.weights().len() as u64]));
        keep_sums(contents, "votes", &self.0);
    }

    fn of_file(contents: &Contents, _: usize) -> Result<Self, String> {
        let candidates = as_size(contents.values::<u64>("candidates", &[1])?[0])?;
        Ok(Self(sums_of(contents, "votes", candidates, 0)?.ok_or("it lacks its votes")?))
    }
}
