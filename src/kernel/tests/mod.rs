//! Tests every instruction set of this machine against a reference in `f64`.

mod battery;
mod blocks;
mod difference;
mod naive;
mod packing;
