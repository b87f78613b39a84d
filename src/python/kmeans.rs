//! What runs of the k-means methods show to Python.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::array1;
use super::rows::AnyRows;
use super::run::{AnySnapshot, AnyStream, Shown};
use super::start::Given;
use crate::error::Result;
use crate::fit::{self, Value};
use crate::hierarchical::HierarchicalKMeans;
use crate::kmeans::{
    BackwardEuler, Balanced, Breathing, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced,
};
use crate::persist::Contents;
use crate::tuning::batch_seeding_sample;

/// Rows that the first centers of a mini-batch method are chosen from.
fn seeding_rows(given: &Given, rows: &AnyRows, batch: f64) -> f64 {
    batch_seeding_sample(batch as u64, given.count("n_clusters") as usize, 4 * rows.cols()) as f64
}

impl Shown for KMeans {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }
}

impl Shown for MiniBatch {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn rows_of_steps(_params: &Self::Params, given: &Given, rows: &AnyRows) -> (f64, f64) {
        let n = rows.len().map_or(f64::INFINITY, |n| n as f64);
        let batch = given.count("batch_size").min(n);
        let sample = match given.get("init_size") {
            Some(Value::Int(rows)) => *rows as f64,
            _ => seeding_rows(given, rows, batch),
        };
        (4.0 * sample.min(n) * given.count("n_init"), batch)
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn merge(run: &mut fit::Run<Self>, other: &Contents) -> Result<()> {
        run.merge_state(other)
    }
}

impl Shown for NestedMiniBatch {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn rows_of_steps(params: &Self::Params, _given: &Given, rows: &AnyRows) -> (f64, f64) {
        let batch = rows.len().map_or(0, |n| params.first_batch(n as u64));
        (4.0 * batch as f64, rows.whole_effort())
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("rows_used", run.rows_used())?;
        details.set_item("rows_retired", run.rows_retired())?;
        Ok(details)
    }
}

impl Shown for HierarchicalKMeans {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("certified", run.certified().unwrap_or(f64::NAN))?;
        details.set_item("sample_rows", run.sample_rows())?;
        Ok(details)
    }
}

impl Shown for BackwardEuler {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn rows_of_steps(_params: &Self::Params, given: &Given, rows: &AnyRows) -> (f64, f64) {
        let n = rows.len().map_or(f64::INFINITY, |n| n as f64);
        let batch = given.count("batch_size").min(n);
        let first = seeding_rows(given, rows, batch).min(n);
        let step = given.count("n_inner") * batch;
        // A sweep of the polish is a step too.
        let polishes = given.get("polish") != Some(&Value::Bool(false));
        (4.0 * first + step, if polishes { step.max(rows.whole_effort()) } else { step })
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("step_sizes", array1(py, run.step_sizes().to_vec()))?;
        details.set_item("starved", run.starved())?;
        Ok(details)
    }
}

impl Shown for VarianceReduced {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("learning_rate", run.learning_rate().unwrap_or(f64::NAN))?;
        Ok(details)
    }
}

impl Shown for Breathing {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("n_breaths", run.n_breaths())?;
        details.set_item("start_inertia", run.start_inertia())?;
        Ok(details)
    }
}

impl Shown for Balanced {
    fn params(k: usize, _given: &mut Given) -> PyResult<Self::Params> {
        Ok(Self::params(k))
    }

    fn snapshot(run: &fit::Run<Self>) -> AnySnapshot<'_> {
        run.snapshot()
    }

    fn details<'py>(run: &fit::Run<Self>, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let details = PyDict::new(py);
        details.set_item("prices", array1(py, run.prices().to_vec()))?;
        details.set_item("lower_bound", run.lower_bound())?;
        details.set_item("gap", run.gap())?;
        Ok(details)
    }
}
