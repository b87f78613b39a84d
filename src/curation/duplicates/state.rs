//! Writes a search to a checkpoint and reads it back. Cells and identical rows are found again from the rows.

use super::cells::Cells;
use super::identical::Distinct;
use super::linkage::{Links, Ranks};
use super::{Deduplication, Search};
use crate::data::{DataSource, count_rows, fingerprint};
use crate::error::{Error, Result};
use crate::graph::frame;
use crate::kernel::Compute;
use crate::parallel::Executor;
use crate::persist::Contents;
use crate::persist::schema::DUPLICATES_CHECKPOINT;
use crate::persist::state::{StateReader, StateWriter};

impl Deduplication {
    /// The parameters that decide the result, as text.
    fn decisive(&self) -> String {
        let number = |value: Option<usize>| value.map_or("none".into(), |value| value.to_string());
        format!(
            "threshold={}, metric={}, keep={}, linkage={}, n_clusters={}, n_probes={}",
            self.threshold,
            self.metric,
            self.keep,
            self.linkage,
            number(self.n_clusters),
            number(self.n_probes)
        )
    }
}

impl<T: Compute> Search<T> {
    /// The state of the search between two steps. It holds all pairs, 8 bytes each, with
    /// [`Linkage::Leader`](super::Linkage::Leader).
    pub(crate) fn checkpoint(&self, cx: &Executor) -> Result<Contents> {
        let mut to = StateWriter::new(DUPLICATES_CHECKPOINT);
        to.put("params", &self.how.decisive());
        to.put_value("seed", self.how.rng_seed);
        to.put_value("fingerprint", self.fingerprint);
        to.put("next", &self.next);
        to.put("per_step", &self.per_step);
        to.put("expected", &self.expected);
        to.put("n_pairs", &self.n_pairs);
        to.put("compared", &self.compared);
        let centers = self.cells.centers();
        to.put_matrix("centers", centers.data(), centers.cols());
        match &self.links {
            Links::Leader(pairs) => to.put("pairs", &pairs.all(cx)?),
            Links::Components(ranks) | Links::SemDeDup(ranks) => to.put("ranks", ranks),
        }
        Ok(to.finish())
    }

    /// The search of a checkpoint, for the same rows and parameters.
    ///
    /// # Errors
    /// [`Error::Source`] for a state that is damaged, or of other rows or parameters.
    pub(crate) fn restore(
        mut how: Deduplication,
        contents: &Contents,
        data: &dyn DataSource<T>,
        cx: &Executor,
    ) -> Result<Self> {
        let damaged = |problem: String| Error::Source(format!("the checkpoint cannot be used: {problem}"));
        contents.must_be(DUPLICATES_CHECKPOINT).map_err(damaged)?;
        let from = StateReader::new(contents).map_err(damaged)?;
        let params: String = from.get("params").map_err(damaged)?;
        if params != how.decisive() {
            return Err(Error::param("checkpoint", format!("of a search with {}", how.decisive()), params));
        }
        let fingerprint = fingerprint(data)?;
        if from.value("fingerprint").and_then(serde_json::Value::as_u64) != Some(fingerprint) {
            return Err(Error::param("checkpoint", "of a search among these rows", "other rows or weights"));
        }
        how.rng_seed = from.seed().map_err(damaged)?;
        let centers: Vec<T> = from.finite_matrix("centers", data.dim()).map_err(damaged)?;
        if centers.is_empty() {
            return Err(damaged("it holds no centers".into()));
        }
        let distinct = Distinct::of(data, how.is_cosine(), cx)?;
        let view = distinct.view(data);
        let m = count_rows(&view)? as usize;
        let frame = frame(&view, None, cx)?;
        let cells = Cells::new(&view, &centers, how.reach(), how.n_probes, cx)?;
        let ranks = Ranks::new(&distinct, &cells, how.keep, data.weights());
        let mut links = Links::new(how.linkage, m, how.memory)?;
        links.restore(&from).map_err(damaged)?;
        let search = Self {
            n: count_rows(data)?,
            fingerprint,
            next: from.get("next").map_err(damaged)?,
            per_step: from.get("per_step").map_err(damaged)?,
            expected: from.get("expected").map_err(damaged)?,
            n_pairs: from.get("n_pairs").map_err(damaged)?,
            compared: from.get("compared").map_err(damaged)?,
            how,
            distinct,
            frame,
            cells,
            ranks,
            links,
        };
        if search.next > search.cells.len() || search.per_step == 0 {
            return Err(damaged("its numbers of cells do not match".into()));
        }
        Ok(search)
    }
}
