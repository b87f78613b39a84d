//! Passes over partitions of rows whose results merge, for many machines or threads of your own.
//!
//! A pass is small and immutable. It *absorbs* the rows of a partition wherever they lie, which gives a [`Partial`].
//! Partial results *merge* in any order, and the pass *commits* the total: this gives the next pass. Passes and
//! partial results are `Send`, and [`KMeansPass::to_bytes`] and [`Partial::to_bytes`] carry them between machines.
//!
//! | pass | one round of |
//! |---|---|
//! | [`KMeansPass`] | exact k-means |
//! | [`SeedPass`] | k-means\|\| |
//! | [`CoresetPass`] | a lightweight coreset |
//! | [`LabelPass`] | labels for known centers |
//!
//! # Bit-identical for any schedule
//!
//! Results are bit-identical however the rows are cut into partitions, merged, repeated after an error, or placed on
//! machines. The rows of partition 0 come first, then those of partition 1, and so on:
//!
//! - Sums are exact and rounded once.
//! - Draws are keyed by the number of a row among all rows. The first pass of a [`SeedPass`] cannot know these numbers, and
//!   keys its one draw by the values of the row. Later passes know how many rows each partition has.
//! - Among rows that are equally far from their centers, an empty cluster moves to the first one.
//!
//! The centers, labels and inertia of a fit from given centers are also bit-identical to those of a local fit.
//!
//! Every partial result carries its places: the numbers of its partitions, or of its first rows.
//!
//! A partition that is merged twice, as after a retried task, is an error. So is one that is missing when the total is
//! committed, and one whose columns have other names or another order than those of the other partitions.
//!
//! # State that workers keep
//!
//! A [`Kept`] holds labels, bounds and sums of a partition between the sweeps of a fit, and
//! [`KMeansPass::absorb_keeping`] skips most distances with them, as a local fit does. Results do not depend on it: a
//! worker without this state measures all distances.
//!
//! # Example: workers that send partial results over a channel
//!
//! ```
//! use std::{sync::mpsc, thread};
//! use shoal::distributed::{KMeansPass, Partial, Place};
//! use shoal::{Executor, Metric};
//!
//! let partitions = [vec![[0.0f32], [1.0]], vec![[9.0]], vec![[8.0], [2.0]]];
//! let mut task = KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Euclidean)?;
//! loop {
//!     let (sender, parts) = mpsc::channel();
//!     thread::scope(|scope| {
//!         for (i, rows) in partitions.iter().enumerate() {
//!             let (task, sender) = (&task, sender.clone());
//!             scope.spawn(move || {
//!                 let cx = Executor::new(Some(1)).unwrap();
//!                 let part = task.absorb(rows, Place::Partition(i as u64), &cx).unwrap();
//!                 sender.send(part.to_bytes().unwrap()).unwrap();
//!             });
//!         }
//!     });
//!     drop(sender);
//!     // In the order of arrival.
//!     let mut total = Partial::default();
//!     for bytes in parts {
//!         total = total.merge(&Partial::from_bytes(&bytes)?)?;
//!     }
//!     let (next, step) = task.commit(&total)?;
//!     task = next;
//!     if step.stop_reason.is_some() {
//!         break;
//!     }
//! }
//! assert_eq!(task.centers::<f32>(), [1.0, 8.5]);
//! # Ok::<(), shoal::Error>(())
//! ```

mod clusters;
mod commit;
mod coreset;
mod errors;
mod events;
mod extent;
mod kept;
mod kmeans;
mod labels;
mod message;
mod nearest;
mod numbers;
mod partial;
mod partial_file;
mod pass;
mod picked;
mod pieces;
mod place;
#[cfg(any(test, feature = "python"))]
mod ranges;
mod seed;
mod seed_sums;
mod sums;
#[cfg(test)]
mod tests;

#[cfg(feature = "python")]
pub(crate) use commit::{Head, Plan};
pub use coreset::CoresetPass;
#[cfg(feature = "python")]
pub(crate) use extent::Before;
pub use kept::Kept;
pub use kmeans::KMeansPass;
pub use labels::LabelPass;
#[cfg(feature = "python")]
pub(crate) use message::Message;
pub use partial::Partial;
#[cfg(feature = "python")]
pub(crate) use pass::{Pass, PassFacts};
pub use place::Place;
pub use seed::SeedPass;
