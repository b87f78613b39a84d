//! Passes of a seeding as bytes.

use serde_json::json;

use super::extent::Extent;
use super::kmeans_file::read_pass;
use super::numbers::{exact, exact_of, size_of_object};
use super::seed::{SeedPass, Stage};
use crate::error::Result;
use crate::fit::Metric;
use crate::persist::kept::{Values, count, keep, number, text};
use crate::persist::schema::SEED_PASS;
use crate::persist::{Contents, to_bytes};

/// The stages of a seeding, in files.
const STAGES: [(Stage, &str); 3] =
    [(Stage::Drawing, "drawing"), (Stage::Voting, "voting"), (Stage::Done, "done")];

impl SeedPass {
    /// The pass as bytes, as [`KMeansPass::to_bytes`](super::KMeansPass::to_bytes).
    ///
    /// # Errors
    /// None for passes of this crate.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut contents = Contents::new(SEED_PASS);
        let stage = STAGES.iter().find(|(stage, _)| *stage == self.stage).map(|(_, name)| name);
        let mut numbers = json!({
            "n_clusters": self.k,
            "oversampling": self.oversampling.to_bits(),
            "rounds": self.rounds,
            "metric": self.metric.name(),
            "seed": exact(self.seed),
            "stage": stage,
            "passes": self.passes,
            "rows_seen": exact(self.rows_seen),
            "dim": self.dim,
        });
        Extent::put(self.extent.as_ref(), &mut numbers);
        contents.meta.insert("pass".into(), numbers.to_string());
        keep(&mut contents, "candidates", self.candidates.array(self.dim));
        to_bytes(&contents)
    }

    /// Reads what [`SeedPass::to_bytes`] wrote.
    ///
    /// # Errors
    /// Same as [`KMeansPass::from_bytes`](super::KMeansPass::from_bytes).
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        read_pass(bytes, |contents| {
            contents.must_be(SEED_PASS)?;
            let numbers = contents.object("pass")?;
            let k = size_of_object(&numbers, "n_clusters")?;
            let rounds = size_of_object(&numbers, "rounds")?;
            let metric = Metric::of_object(&numbers)?;
            let seed = exact_of(&numbers, "seed")?;
            let made = Self::new(k, number(&numbers, "oversampling")?, rounds, metric, seed);
            let mut pass = made.map_err(|e| e.to_string())?;
            let stage = text(&numbers, "stage")?;
            let stage = STAGES.iter().find(|(_, name)| *name == stage).map(|&(stage, _)| stage);
            pass.stage = stage.ok_or("its stage is damaged")?;
            pass.passes = count(&numbers, "passes")?;
            pass.rows_seen = exact_of(&numbers, "rows_seen")?;
            if pass.passes > 1 << 62 || pass.rows_seen > 1 << 62 {
                return Err("its counts are damaged".into());
            }
            if pass.passes == 0 {
                return if pass.stage == Stage::Drawing {
                    Ok(pass)
                } else {
                    Err("it has no candidates".into())
                };
            }
            pass.dim = size_of_object(&numbers, "dim")?;
            pass.extent = Extent::of_object(&numbers, pass.dim)?;
            if pass.extent.is_none() {
                return Err("it lacks the rows of its passes".into());
            }
            pass.candidates = Values::matrix(contents, "candidates", pass.dim)?;
            let rows = pass.candidates.len() / pass.dim;
            let fits = if pass.stage == Stage::Done { rows == k } else { rows > 0 };
            if !fits || pass.candidates.first_not_finite(pass.dim).is_some() {
                return Err("its candidates are damaged".into());
            }
            Ok(pass)
        })
    }
}
