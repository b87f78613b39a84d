//! Centers in low precision, in tiles of 16, and the bounds of their errors.

use super::bound::{Bound, Center, Frame};
use crate::kernel::arch::engine::{Line, Product, Tile};
use crate::kernel::frame::moved;
use crate::kernel::pack::PackedCenters;

/// Centers in a tile.
pub(super) const PANEL: usize = 16;

/// Largest quantized value of a center.
const MOST: f64 = 127.0;

/// The smallest unit of quantized values. A smaller unit, and the values, become 0.
const LEAST_UNIT: f64 = 1e-30;

/// From the sums of a panel to its values: `sum * unit + constant`, per center.
#[derive(Clone, Debug)]
pub(super) struct Scaling {
    pub(super) units: Line,
    pub(super) constants: Line,
}

/// Centers in low precision. Panels hold centers of like length about the mean, so that one bound fits all.
#[derive(Debug)]
pub(in crate::kernel) struct LowCenters {
    pub(super) product: Product,
    pub(super) dim: usize,
    /// Number of panels, even.
    pub(super) panels: usize,
    /// Tiles of a panel, and of 16 rows.
    pub(super) steps: usize,
    /// Panel by panel.
    pub(super) tiles: Vec<Tile>,
    pub(super) scalings: Vec<Scaling>,
    pub(super) bounds: Vec<Bound>,
    /// Subtracted from a row before its length is taken, and before it is rounded to bf16.
    pub(super) middle: Vec<f32>,
    /// `m`: values are tile values plus `2 x.m`, with `x` as the product reads it.
    pub(super) mean: Vec<f32>,
    /// Rows farther than this from `middle` or `mean` are not compared in low precision.
    pub(super) farthest: f32,
    /// The center in each slot; `u32::MAX` for padding.
    pub(super) order: Vec<u32>,
    /// `-2 c'` panel by panel, column by column.
    pub(super) columns: Vec<Line>,
    /// `|c'|^2` per panel; infinite for padding.
    pub(super) norms: Vec<Line>,
}

impl LowCenters {
    /// Rounds centers to low precision, or returns nothing if their magnitudes do not suit the product.
    pub(in crate::kernel) fn new(packed: &PackedCenters<f32>, product: Product) -> Option<Self> {
        let (k, dim) = (packed.k, packed.dim);
        let bytes = product == Product::Bytes;
        // Whole numbers stay whole only if they are not scaled.
        if bytes && (packed.scale != 1.0 || dim > MOST_BYTES_DIM) {
            return None;
        }
        let mut centers = vec![0.0f32; k * dim];
        for (out, c) in centers.chunks_exact_mut(dim).zip(packed.centers().iter()) {
            for ((out, &c), &s) in out.iter_mut().zip(c).zip(&packed.shift) {
                *out = moved(c, s, packed.scale);
            }
        }
        let mut sums = vec![0.0f64; dim];
        for c in centers.chunks_exact(dim) {
            sums.iter_mut().zip(c).for_each(|(sum, &c)| *sum += f64::from(c));
        }
        let mean: Vec<f32> = sums.iter().map(|sum| (sum / k as f64) as f32).collect();
        if !mean.iter().chain(&centers).all(|v| v.is_finite()) {
            return None;
        }
        let middle = match product {
            Product::Bytes => mean.iter().zip(&packed.shift).map(|(m, s)| m + s).collect(),
            Product::Bf16 => mean.clone(),
        };
        let mut order = by_length(&centers, &mean);
        let panels = k.div_ceil(2 * PANEL) * 2;
        order.resize(panels * PANEL, u32::MAX);
        let steps = dim.div_ceil(step_values(product));
        let mut low = Self {
            product,
            dim,
            panels,
            steps,
            tiles: vec![Tile::ZERO; panels * steps],
            scalings: vec![Scaling { units: Line::ZERO, constants: Line::INFINITY }; panels],
            bounds: vec![Bound::default(); panels],
            middle,
            mean,
            farthest: (FARTHEST * packed.largest_norm()) as f32,
            order,
            columns: vec![Line::ZERO; panels * dim],
            norms: vec![Line::INFINITY; panels],
        };
        let frame = Frame::new(product, low.farthest, (&low.mean, &low.middle, &packed.shift));
        for slot in 0..k {
            let j = low.order[slot] as usize;
            low.place(slot, &centers[j * dim..][..dim], packed.norms[j], &packed.shift, &frame);
        }
        Some(low)
    }

    /// Packs one center.
    fn place(&mut self, slot: usize, center: &[f32], norm: f32, shift: &[f32], frame: &Frame) {
        let (panel, lane) = (slot / PANEL, slot % PANEL);
        let tiles = &mut self.tiles[panel * self.steps..][..self.steps];
        let columns = &mut self.columns[panel * self.dim..][..self.dim];
        let moved = center.iter().zip(&self.mean).map(|(&c, &m)| f64::from(c) - f64::from(m));
        let most = moved.fold(0.0f64, |most, v| most.max(v.abs()));
        let unit = match self.product {
            Product::Bytes => (most / MOST * (1.0 + f64::from(f32::EPSILON))) as f32,
            Product::Bf16 => 1.0,
        };
        let unit = if f64::from(unit) < LEAST_UNIT { 0.0 } else { unit };
        let mut found = Center::new(f64::from(norm));
        for (t, &c) in center.iter().enumerate() {
            columns[t].0[lane] = -2.0 * c;
            let moved = f64::from(c) - f64::from(self.mean[t]);
            let near = match self.product {
                Product::Bytes => {
                    let quantum =
                        if unit > 0.0 { (moved / f64::from(unit)).round().clamp(-MOST, MOST) } else { 0.0 };
                    set_byte(&mut tiles[t / 64].0[lane], t % 64, -(quantum as i8));
                    quantum * f64::from(unit)
                }
                Product::Bf16 => {
                    let near = bf16(moved as f32);
                    set_half(&mut tiles[t / 32].0[lane], t % 32, bf16(-2.0 * wide(near)));
                    f64::from(wide(near))
                }
            };
            let middle = f64::from(self.middle[t]);
            found.add(f64::from(c), moved, near, f64::from(shift[t]), f64::from(self.mean[t]), middle);
        }
        let constant = found.constant(self.product);
        self.norms[panel].0[lane] = norm;
        self.scalings[panel].constants.0[lane] = constant;
        self.scalings[panel].units.0[lane] = match self.product {
            Product::Bytes => 2.0 * unit,
            Product::Bf16 => 1.0,
        };
        self.bounds[panel].widen(&found.bound(frame));
    }
}

/// The largest distance of a row, in lengths of the largest center.
const FARTHEST: f64 = 1e4;

/// Largest number of columns whose sums of bytes fit into 32 bits.
const MOST_BYTES_DIM: usize = (i32::MAX / (255 * 127)) as usize;

/// Number of columns in a tile.
pub(super) fn step_values(product: Product) -> usize {
    match product {
        Product::Bytes => 64,
        Product::Bf16 => 32,
    }
}

/// Centers by their length about the mean, in ascending order within a panel.
fn by_length(centers: &[f32], mean: &[f32]) -> Vec<u32> {
    let sq_length = |c: &[f32]| -> f64 { c.iter().zip(mean).map(|(c, m)| f64::from(c - m).powi(2)).sum() };
    let lengths: Vec<f64> = centers.chunks_exact(mean.len()).map(sq_length).collect();
    let mut order: Vec<u32> = (0..lengths.len() as u32).collect();
    order.sort_by(|&a, &b| lengths[a as usize].total_cmp(&lengths[b as usize]).then(a.cmp(&b)));
    order.chunks_mut(PANEL).for_each(<[u32]>::sort_unstable);
    order
}

/// `v` rounded to bf16, to nearest even. Subnormal values become zero, because units may read them as zero.
pub(super) fn bf16(v: f32) -> u16 {
    let bits = v.to_bits();
    if bits & 0x7f80_0000 == 0 { 0 } else { ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16 }
}

/// The value of a bf16.
pub(super) fn wide(v: u16) -> f32 {
    f32::from_bits(u32::from(v) << 16)
}

/// Sets byte `at` of a line.
fn set_byte(line: &mut [u32; 16], at: usize, value: i8) {
    let mut bytes = line[at / 4].to_le_bytes();
    bytes[at % 4] = value as u8;
    line[at / 4] = u32::from_le_bytes(bytes);
}

/// Sets half word `at` of a line.
fn set_half(line: &mut [u32; 16], at: usize, value: u16) {
    let keep = 0xffff << (16 * (1 - at % 2));
    line[at / 2] = line[at / 2] & keep | u32::from(value) << (16 * (at % 2));
}
