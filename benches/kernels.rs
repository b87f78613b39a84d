//! Rates of the kernels; see `make bench`.
fn main() {}
