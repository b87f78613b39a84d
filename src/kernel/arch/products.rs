//! Multiplies the whole numbers of sketches: a small trait, with an implementation for any processor.

use crate::kernel::simd::Simd;

/// Centers in a group: three vectors of the widest instruction set.
pub(crate) const GROUP: usize = 48;

/// Four bytes per center of a group: whole numbers, signed.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Words(pub(in crate::kernel) [u32; GROUP]);

/// Rows in a tile.
pub(in crate::kernel) const TILE: usize = 8;

/// The words of a tile of rows and of a group of centers, and a number that is added to the products with each center.
#[derive(Clone, Copy)]
pub(in crate::kernel) struct Operands<'a> {
    pub(in crate::kernel) rows: [&'a [[u8; 4]]; TILE],
    pub(in crate::kernel) centers: &'a [Words],
    pub(in crate::kernel) bias: &'a [i32; GROUP],
}

impl Operands<'_> {
    /// Pointers to the rows, which have as many words as the centers.
    #[inline(always)]
    pub(super) fn row_pointers(&self) -> [*const [u8; 4]; TILE] {
        assert!(self.rows.iter().all(|row| row.len() == self.centers.len()));
        self.rows.map(<[[u8; 4]]>::as_ptr)
    }
}

/// Multiplies the whole numbers of a tile of rows and a group of centers.
pub(in crate::kernel) trait Dots {
    /// Writes the sums of products of every row and center, plus the bias, as `f32`. Bytes of rows have no sign,
    /// those of centers have one. Only the first `VECTORS * 16` centers need to be computed.
    fn tile<const VECTORS: usize>(&self, of: Operands<'_>, out: &mut Products);
}

/// A value per center of a group.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Values(pub(in crate::kernel) [f32; GROUP]);

/// Sums of products of a tile.
pub(in crate::kernel) type Products = [Values; TILE];

/// Room for the sums of a tile.
pub(in crate::kernel) const NO_PRODUCTS: Products = [Values([0.0; GROUP]); TILE];

/// A scan, compiled for the vectors of an instruction set and a way to multiply bytes.
pub(in crate::kernel) trait Scanning {
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D);
}

/// Portable products.
pub(in crate::kernel) struct Portable;

impl Dots for Portable {
    #[inline(always)]
    fn tile<const VECTORS: usize>(&self, of: Operands<'_>, out: &mut Products) {
        for (row, out) in of.rows.into_iter().zip(out) {
            let mut sums = *of.bias;
            for (row, centers) in row.iter().zip(of.centers) {
                let row = row.map(i32::from);
                for (sum, center) in sums.iter_mut().zip(&centers.0) {
                    let center = center.to_le_bytes().map(|c| i32::from(c as i8));
                    *sum +=
                        (row[0] * center[0] + row[1] * center[1]) + (row[2] * center[2] + row[3] * center[3]);
                }
            }
            for (out, sum) in out.0.iter_mut().zip(sums) {
                *out = sum as f32;
            }
        }
    }
}
