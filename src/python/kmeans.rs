//! The k-means methods as Python starts them, and what only some of them show.

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::array::array1;
use super::rows::AnyRows;
use super::run::AnyStream;
use super::start::{Call, Given, PythonMethod};
use crate::error::Result;
use crate::fit::{self, Value};
use crate::hierarchical::HierarchicalKMeans;
use crate::kmeans::{
    BackwardEuler, Balanced, Breathing, KMeans, MiniBatch, NestedMiniBatch, VarianceReduced,
};
use crate::persist::Contents;

impl PythonMethod for KMeans {}

impl PythonMethod for MiniBatch {
    fn rows_of_steps(_params: &Self::Params, given: &Given, rows: &AnyRows) -> (f64, f64) {
        let n = rows.len().map_or(f64::INFINITY, |n| n as f64);
        let batch = given.count("batch_size").min(n);
        let seen = match given.get("init_size") {
            Some(Value::Int(sample)) => (*sample as f64).min(n),
            _ => rows.whole_effort(),
        };
        (4.0 * seen * given.count("n_init"), batch)
    }

    fn start(call: Call<'_, '_>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        call.fit_or_stream::<Self>(py)
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn merge(run: &mut fit::Run<Self>, other: &Contents) -> Result<()> {
        run.merge_state(other)
    }
}

impl PythonMethod for NestedMiniBatch {
    fn rows_of_steps(params: &Self::Params, _given: &Given, rows: &AnyRows) -> (f64, f64) {
        let batch = rows.len().map_or(0, |n| params.first_batch(n as u64));
        (4.0 * batch as f64, rows.whole_effort())
    }

    fn start(call: Call<'_, '_>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        call.fit_or_stream::<Self>(py)
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        to.set_item("rows_used", run.rows_used())?;
        to.set_item("rows_retired", run.rows_retired())
    }
}

impl PythonMethod for HierarchicalKMeans {
    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        to.set_item("certified", run.certified().unwrap_or(f64::NAN))?;
        to.set_item("sample_rows", run.sample_rows())
    }
}

impl PythonMethod for BackwardEuler {
    fn rows_of_steps(_params: &Self::Params, given: &Given, rows: &AnyRows) -> (f64, f64) {
        let n = rows.len().map_or(f64::INFINITY, |n| n as f64);
        let batch = given.count("batch_size").min(n);
        let step = given.count("n_inner") * batch;
        // A sweep of the polish is a step too.
        let polishes = given.get("polish") != Some(&Value::Bool(false));
        (4.0 * rows.whole_effort() + step, if polishes { step.max(rows.whole_effort()) } else { step })
    }

    fn start(call: Call<'_, '_>, py: Python<'_>) -> PyResult<Py<PyAny>> {
        call.fit_or_stream::<Self>(py)
    }

    fn stream(run: &mut fit::Run<Self>) -> Option<&mut dyn AnyStream> {
        Some(run)
    }

    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        to.set_item("step_sizes", array1(to.py(), run.step_sizes().to_vec()))?;
        to.set_item("starved", run.starved())
    }
}

impl PythonMethod for VarianceReduced {
    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        to.set_item("learning_rate", run.learning_rate().unwrap_or(f64::NAN))
    }
}

impl PythonMethod for Breathing {
    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        to.set_item("n_breaths", run.n_breaths())?;
        to.set_item("start_inertia", run.start_inertia())
    }
}

impl PythonMethod for Balanced {
    fn details(run: &fit::Run<Self>, to: &Bound<'_, PyDict>) -> PyResult<()> {
        to.set_item("prices", array1(to.py(), run.prices().to_vec()))?;
        to.set_item("lower_bound", run.lower_bound())?;
        to.set_item("gap", run.gap())
    }
}
