//! The Python extension module `shoal._core`: a thin private layer for the Python package.

mod array;
mod coreset;
mod curation;
mod distributed;
mod enter;
mod error;
mod graph;
mod kernel;
mod kmeans;
mod kmodes;
mod mixture;
mod partition;
mod persist;
mod rows;
mod run;
mod seeding;
mod source;
mod start;
mod step;
mod stream;
mod write;

use pyo3::prelude::*;

use crate::kernel::Isa;
use crate::parallel;

/// Name of the instruction set in use.
#[pyfunction]
fn isa() -> String {
    Isa::active().to_string()
}

/// Names of the instruction sets that this machine supports.
#[pyfunction]
fn available_isas() -> Vec<String> {
    Isa::available().iter().map(ToString::to_string).collect()
}

/// Number of threads that this process may use.
#[pyfunction]
fn available_threads() -> usize {
    parallel::available_threads()
}

/// Number of threads actually used when `n` are requested.
#[pyfunction]
fn at_most_threads(n: usize) -> usize {
    parallel::at_most_threads(n)
}

/// Number of threads requested by the environment, or None.
#[pyfunction]
fn requested_threads() -> PyResult<Option<usize>> {
    Ok(parallel::requested_threads()?)
}

/// The compiled part of shoal; private.
// All state is in frozen classes behind locks, so that the GIL is not needed.
#[pymodule(gil_used = false)]
fn _core(m: &Bound<'_, PyModule>) -> PyResult<()> {
    // Reject an invalid SHOAL_ISA at import.
    Isa::requested()?;
    m.add("version", env!("CARGO_PKG_VERSION"))?;
    m.add_class::<source::Source>()?;
    m.add_class::<step::Step>()?;
    m.add_class::<write::NpyWriter>()?;
    m.add_class::<write::ShuffledWriter>()?;
    m.add_class::<write::TemporaryFile>()?;
    m.add_class::<write::TemporaryFolder>()?;
    m.add_function(wrap_pyfunction!(write::leftovers, m)?)?;
    m.add_class::<run::Run>()?;
    m.add_class::<coreset::LightweightCoreset>()?;
    m.add_class::<coreset::StreamingCoreset>()?;
    m.add_class::<curation::DuplicateSearch>()?;
    m.add_class::<distributed::Head>()?;
    m.add_class::<distributed::Kept>()?;
    m.add_class::<distributed::Partial>()?;
    m.add_class::<distributed::Pass>()?;
    m.add_class::<distributed::Plan>()?;
    m.add_class::<mixture::Mixture>()?;
    m.add_function(wrap_pyfunction!(start::start, m)?)?;
    m.add_function(wrap_pyfunction!(start::parameters, m)?)?;
    m.add_class::<mixture::MixtureRun>()?;
    m.add_class::<kmodes::ModesRun>()?;
    m.add_function(wrap_pyfunction!(kmodes::start_modes, m)?)?;
    m.add_function(wrap_pyfunction!(kmodes::kmodes_responsibilities, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::nearest, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::nearest_approximately, m)?)?;
    m.add_function(wrap_pyfunction!(graph::knn_graph, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::predict, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::transform, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::inertia, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::sq_dists_to, m)?)?;
    m.add_function(wrap_pyfunction!(kernel::sums_of, m)?)?;
    m.add_function(wrap_pyfunction!(partition::update_partition, m)?)?;
    m.add_function(wrap_pyfunction!(seeding::first_centers, m)?)?;
    m.add_function(wrap_pyfunction!(coreset::sensitivity_coreset, m)?)?;
    m.add_function(wrap_pyfunction!(curation::balanced_quotas, m)?)?;
    m.add_function(wrap_pyfunction!(curation::pick_rows, m)?)?;
    m.add_function(wrap_pyfunction!(persist::save_model, m)?)?;
    m.add_function(wrap_pyfunction!(persist::load_model, m)?)?;
    m.add_function(wrap_pyfunction!(persist::array_layouts, m)?)?;
    m.add_function(wrap_pyfunction!(enter::report_to, m)?)?;
    m.add_function(wrap_pyfunction!(isa, m)?)?;
    m.add_function(wrap_pyfunction!(available_isas, m)?)?;
    m.add_function(wrap_pyfunction!(available_threads, m)?)?;
    m.add_function(wrap_pyfunction!(at_most_threads, m)?)?;
    m.add_function(wrap_pyfunction!(requested_threads, m)?)
}
