//! Seconds per phase of a fit.

use serde_json::{Value, json};

use crate::persist::state::{Field, StateReader, StateWriter};

/// Seconds spent in each phase of a fit.
///
/// ```
/// let model = shoal::KMeans::params(2).fit(&[[0.0f32], [1.0], [8.0], [9.0]])?;
/// let seconds = model.timings();
/// println!("{:.3} s seeding, {:.3} s sweeps", seconds.seeding, seconds.sweeps);
/// # Ok::<(), shoal::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Timings {
    /// Choosing the first centers.
    pub seeding: f64,
    /// Sweeps.
    pub sweeps: f64,
    /// The last pass, which recomputes labels and inertia.
    pub finish: f64,
}

impl Timings {
    /// The names of the phases in a model file.
    pub(crate) const PHASES: [&str; 3] = ["seeding", "sweeps", "final"];

    /// The seconds by phase as a model file stores them.
    pub(crate) fn by_name(self) -> Value {
        json!({ "seeding": self.seeding, "sweeps": self.sweeps, "final": self.finish })
    }

    /// The timings of the [phases](Self::PHASES).
    pub(crate) fn of([seeding, sweeps, finish]: [f64; 3]) -> Self {
        Self { seeding, sweeps, finish }
    }
}

impl std::ops::Add for Timings {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            seeding: self.seeding + other.seeding,
            sweeps: self.sweeps + other.sweeps,
            finish: self.finish + other.finish,
        }
    }
}

impl Field for Timings {
    fn put(&self, name: &str, to: &mut StateWriter) {
        to.put(name, &[self.seeding, self.sweeps, self.finish]);
    }

    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
        from.get(name).map(Self::of)
    }
}
