//! Fits: how a method is advanced step by step, stopped, checkpointed and resumed.
//!
//! A [`Method`] names its parameters, its [`Solver`] for either compute type, and its model. [`Run`] drives a
//! method over any source: it dispatches on the type of the rows once. Its [`Driver`] times the
//! steps and keeps their history.

mod begin;
mod checkpoint;
mod driver;
mod history;
mod method;
mod metric;
mod params;
mod restarts;
mod run;
mod snapshot;
mod step;
mod steps;
mod stop;
mod timings;

pub(crate) use begin::{run_methods, stream_methods};
pub use driver::Driver;
pub(crate) use driver::require;
pub use method::{
    FitSolver, MergeMethod, MergeSolver, Method, Solver, SolverState, StreamMethod, StreamSolver,
};
pub use metric::Metric;
pub use params::{Parameter, Params, Value};
pub(crate) use params::{
    Problems, Range, Ranged, at_least_1, finite_at_least_0, from_0_to_1, parameters, parsed, ranged,
};
pub use restarts::{Restartable, Restarts};
pub use run::Run;
pub(crate) use run::over_rows;
pub use snapshot::{Facts, Snapshot};
pub use step::Step;
pub use steps::Steps;
pub use stop::StopReason;
pub use timings::Timings;

pub(crate) use crate::float::{Typed, either};
