//! One battery for every instruction set that this machine has, against an oracle in `f64`.

mod battery;
mod difference;
mod naive;
mod packing;
