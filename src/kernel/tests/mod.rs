//! Tests every instruction set of this machine against a reference in `f64`.

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(in crate::kernel) mod amx;
mod arbiter;
mod battery;
mod blocks;
mod bytes;
mod left_over;
mod limbs;
mod margins;
mod naive;
mod packing;
mod points;
mod projected;
