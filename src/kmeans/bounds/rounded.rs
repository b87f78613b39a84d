//! Arithmetic of bounds, rounded in the direction that keeps them bounds.

use crate::kernel::Compute;
use crate::kernel::bounded::ROUNDING;

/// Rounds up to `f32`.
pub(super) fn up(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) < x { nearest.next_up() } else { nearest }
}

/// Rounds down to `f32`.
pub(super) fn down(x: f64) -> f32 {
    let nearest = x as f32;
    if f64::from(nearest) > x { nearest.next_down() } else { nearest }
}

/// An upper bound on `a + b`; neither is negative.
pub(super) fn sum_up(a: f32, b: f32) -> f32 {
    (a + b) * (1.0 + ROUNDING)
}

/// A lower bound on `a + b`. A negative sum, which excludes nothing, may be rounded up.
pub(super) fn sum_down(a: f32, b: f32) -> f32 {
    (a + b) * (1.0 - ROUNDING)
}

/// A lower bound on `a - b`; `b` is finite and not negative. An infinite `a`, the bound of a group without other
/// centers, stays.
pub(super) fn difference_down(a: f32, b: f32) -> f32 {
    if a == f32::INFINITY { a } else { a - (b + (a.abs() + b) * ROUNDING) }
}

/// An upper bound on the distance of two points, times `scale` and `unit`.
pub(super) fn length_up<T: Compute>(a: &[T], b: &[T], scale: f64, unit: f64) -> f64 {
    // Scaled before it is squared: the square must neither overflow nor underflow.
    let apart = a.iter().zip(b).map(|(a, b)| (b.to_f64() - a.to_f64()) * scale);
    apart.map(|apart| apart * apart).sum::<f64>().sqrt() * unit * (1.0 + 1e-12)
}
