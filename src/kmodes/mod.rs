//! Scalable Laplacian K-modes: clusters of any shape, each represented by one of its own rows.
//!
//! The method rewards equal labels of neighboring rows, and rows near their mode. It minimizes `E = -sum_p
//! k(x_p, m_label(p)) + lambda sum_pq w_pq [label(p) != label(q)]` with a Gaussian kernel `k` (Ziko, Granger
//! and Ben Ayed, 2018). A relaxation of the labels has a bound that is minimized row by row, for all rows at
//! once.

mod affinity;
mod begin;
mod direction;
mod laplacian;
mod model;
mod model_file;
mod modes;
mod outside;
mod params;
mod parts;
mod run;
mod shares;
mod solver;
mod state;
#[cfg(test)]
mod tests;
mod width;

use crate::data::AnySource;
use crate::error::Result;
use crate::fit::{Method, Metric, either};
use crate::kernel::Compute;
pub use affinity::Affinity;
pub use model::KModesModel;
#[cfg(feature = "python")]
pub(crate) use outside::{FittedRows, NeighborWeight, responsibilities};
pub use params::{Collapse, KModesParams, LaplacianKModes, ModeUpdate, Shift};
pub use run::KModesRun;
#[cfg(feature = "python")]
pub(crate) use shares::Shares;
pub use solver::KModesSolver;

impl Method for LaplacianKModes {
    const NAME: &'static str = "kmodes";
    type Params = KModesParams;
    type Model = KModesModel;
    type Solver<T: Compute> = KModesSolver<T>;

    fn settled(
        params: &KModesParams,
        rows: AnySource<'_>,
        known: Option<Metric>,
    ) -> Result<Option<KModesParams>> {
        if params.normalize.is_some() {
            return Ok(None);
        }
        let scaled = match (params.metric, known) {
            (Metric::Cosine, _) => true,
            (_, Some(metric)) => metric == Metric::Cosine,
            (_, None) => either!(rows, data => direction::matters_most(data)?),
        };
        Ok(Some(params.clone().normalize(scaled)))
    }
}
