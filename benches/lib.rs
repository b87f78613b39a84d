//! An empty library: this package only holds benchmarks. See `README.md`.
