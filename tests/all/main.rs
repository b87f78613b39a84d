//! Integration tests of the crate in one binary, because every binary would compile the generic kernels again.

mod bad_sources;
mod bounded;
mod checkpoint;
mod common;
mod determinism;
mod errors;
mod filtering;
mod fuzz;
mod hierarchical;
mod interrupts;
mod layering;
mod lloyd_vs_naive;
mod minibatch;
mod models;
mod params;
mod props;
mod saturation;
mod seeding;
mod sketches;
mod sources;
mod sparse;
