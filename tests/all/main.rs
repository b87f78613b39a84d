//! Integration tests of the crate. They share one binary, since each binary would compile the generic kernels again.

mod bounded;
mod checkpoint;
mod determinism;
mod errors;
mod layering;
mod lloyd_vs_naive;
mod minibatch;
mod params;
mod props;
mod saturation;
mod seeding;
mod sources;
mod sparse;
