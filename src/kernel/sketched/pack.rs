//! Sketches of centers, packed in groups for a scan.

use super::sketch::Sketch;
use crate::kernel::arch::products::{GROUP, Words};

/// Limit of the relative rounding error of a comparison: it has about twenty roundings of at most 6e-8.
pub(super) const ROUNDING: f32 = 4e-6;

/// What a scan needs of the centers of a group, beside their words.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Group {
    /// The sum of the whole numbers, times -128: the bytes of rows are whole numbers plus 128.
    pub(in crate::kernel) bias: [i32; GROUP],
    pub(in crate::kernel) unit: [f32; GROUP],
    pub(in crate::kernel) rest: [f32; GROUP],
    pub(in crate::kernel) error: [f32; GROUP],
    /// The squared length of the stored point; huge in places without a center.
    pub(in crate::kernel) square: [f32; GROUP],
    /// The squared length, less the squared error and the rounding of both.
    pub(in crate::kernel) least: [f32; GROUP],
}

impl Group {
    fn set_error(&mut self, lane: usize, error: f32) {
        self.error[lane] = error;
        let (square, error) = (self.square[lane], error * error);
        self.least[lane] = square - error - ROUNDING * (square + error);
    }
}

/// Sketches of centers in a given order.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedSketches {
    pub(super) words: Vec<Words>,
    pub(super) groups: Vec<Group>,
    /// The largest error of a center, per group.
    pub(super) errors: Vec<f32>,
    /// No center has a part outside of the subspace.
    pub(super) is_whole: bool,
    /// Words of a sketch.
    pub(super) depth: usize,
    /// The center in each place.
    order: Vec<u32>,
    /// The place per center.
    places: Vec<u32>,
}

impl PackedSketches {
    /// Packs the sketches, of `width` bytes each, in this order.
    pub(crate) fn new(codes: &[u8], sketches: &[Sketch], width: usize, order: &[u32]) -> Self {
        let depth = width / 4;
        let mut places = vec![0; order.len()];
        let mut words = vec![Words([0; GROUP]); order.len().div_ceil(GROUP) * depth];
        let nothing = Group {
            bias: [0; GROUP],
            unit: [0.0; GROUP],
            rest: [0.0; GROUP],
            error: [0.0; GROUP],
            square: [1e38; GROUP],
            least: [1e38; GROUP],
        };
        let mut groups = vec![nothing; order.len().div_ceil(GROUP)];
        for (place, &j) in order.iter().enumerate() {
            places[j as usize] = place as u32;
            let (g, lane) = (place / GROUP, place % GROUP);
            let codes = &codes[j as usize * width..][..width];
            let mut sum = 0;
            for (word, bytes) in words[g * depth..].iter_mut().zip(codes.as_chunks::<4>().0) {
                sum += bytes.iter().map(|&b| i32::from(b) - 128).sum::<i32>();
                // Less 128 in each byte.
                word.0[lane] = u32::from_le_bytes(*bytes) ^ 0x8080_8080;
            }
            let (group, sketch) = (&mut groups[g], &sketches[j as usize]);
            group.bias[lane] = -128 * sum;
            group.unit[lane] = sketch.unit;
            group.rest[lane] = sketch.rest;
            group.square[lane] = sketch.square;
            group.set_error(lane, sketch.error);
        }
        let largest = |group: &Group| group.error.iter().fold(0.0, |most: f32, &error| most.max(error));
        let errors = groups.iter().map(largest).collect();
        let is_whole = sketches.iter().all(|sketch| sketch.rest == 0.0);
        Self { words, groups, errors, is_whole, depth, order: order.to_vec(), places }
    }

    /// Replaces the error of a center. An error that is larger by some length lists the center also for rows that are
    /// farther away by this length.
    pub(crate) fn set_error(&mut self, center: u32, error: f32) {
        let place = self.places[center as usize] as usize;
        let largest = &mut self.errors[place / GROUP];
        *largest = largest.max(error);
        self.groups[place / GROUP].set_error(place % GROUP, error);
    }

    /// The number of groups.
    pub(crate) fn n_groups(&self) -> usize {
        self.groups.len()
    }

    /// The group of a center.
    pub(crate) fn group_of(&self, center: u32) -> usize {
        self.places[center as usize] as usize / GROUP
    }

    /// The place of a center.
    pub(crate) fn place_of(&self, center: u32) -> u32 {
        self.places[center as usize]
    }

    /// The centers of a group.
    pub(crate) fn centers(&self, group: usize) -> &[u32] {
        &self.order[group * GROUP..self.order.len().min((group + 1) * GROUP)]
    }
}
