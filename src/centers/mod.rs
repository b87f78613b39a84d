//! Shared by all center-based methods: assignment to known centers, the model, its file, and the view of a
//! running fit.

mod approximate;
mod arrays;
mod assign;
mod by_label;
mod cells;
mod file;
#[cfg(any(test, feature = "python"))]
mod given;
mod model;
mod run;

pub use approximate::Search;
#[cfg(feature = "python")]
pub(crate) use approximate::nearest_approximately;
pub(crate) use approximate::probes_for;
#[cfg(feature = "python")]
pub(crate) use assign::transform;
pub(crate) use assign::{errors, inertia, label, nearest, predict};
pub(crate) use by_label::sum_labeled;
pub(crate) use cells::{Cells, Desk, search_cut};
#[cfg(feature = "python")]
pub(crate) use given::{sq_dists_to, sums_of};
pub use model::KMeansModel;
pub use run::CenterMethod;

pub use crate::fit::Snapshot;
pub use crate::stats::labels::LabelsRef;
pub(crate) use crate::stats::labels::{LabelList, LabelsMut, NO_LABEL};
pub(crate) use crate::stats::{Editing, Journal, project};
