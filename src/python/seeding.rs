//! Seeding for Python.

use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use super::array::{array1, array2};
use super::enter::enter;
use super::rows::Input;
use super::source::Source;
use crate::data::Source as _;
use crate::float::either;
use crate::seeding::Seeding;

/// Parameters of seedings: the candidates per center, the rows per round as a multiple of the number of
/// centers, and the rounds. `None` takes the default.
#[derive(Clone, Copy, FromPyObject)]
pub(super) struct SeedingOptions(pub(super) Option<usize>, pub(super) Option<f64>, pub(super) Option<usize>);

/// The seeding with this name.
pub(super) fn named(name: &str, options: SeedingOptions) -> PyResult<Seeding> {
    let SeedingOptions(chain, oversampling, rounds) = options;
    Ok(match name.parse()? {
        Seeding::AfkMc2 { chain: usual } => Seeding::AfkMc2 { chain: chain.unwrap_or(usual) },
        Seeding::KMc2 { chain: usual } => Seeding::KMc2 { chain: chain.unwrap_or(usual) },
        Seeding::Parallel { oversampling: share, rounds: usual } => {
            Seeding::Parallel { oversampling: oversampling.unwrap_or(share), rounds: rounds.unwrap_or(usual) }
        }
        other => other,
    })
}

/// Centers, their row numbers, and the number of distances computed.
type FirstCenters<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, u64);

#[pyfunction]
#[pyo3(signature = (source, *, n_clusters, seeding, options, seed, weights, threads))]
#[expect(clippy::needless_pass_by_value, reason = "as PyO3 hands arrays over")]
pub(super) fn first_centers<'py>(
    source: &Bound<'py, Source>,
    n_clusters: usize,
    seeding: &str,
    options: SeedingOptions,
    seed: u64,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    threads: Option<usize>,
) -> PyResult<FirstCenters<'py>> {
    let (py, source) = (source.py(), source.get());
    let how = named(seeding, options)?;
    let input = Input::new(&source.0, weights.as_ref())?;
    let cols = source.0.cols();
    let cost = source.0.whole_effort() * cols as f64 * n_clusters as f64 * 4.0;
    let (centers, rows, n_distances) = either!(input.any(), data => {
        let seeds = enter(py, threads, cost, |cx| how.choose(data, n_clusters, seed, 0, cx))?;
        (array2(py, seeds.centers, cols)?, seeds.rows, seeds.n_distances)
    });
    Ok((centers, array1(py, rows.into_iter().map(u64::cast_signed).collect()), n_distances))
}
