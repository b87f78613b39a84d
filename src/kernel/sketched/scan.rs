//! Rows against groups of centers.
//!
//! With `A` the radius of a row plus its error, a center is within the radius if `D <= A + error`. With `v = square_c -
//! 2 unit_x unit_c (q.q') - 2 rest_x rest_c`, the squared distance of the stored points is `square_x + v`, so this is
//!
//! `v - error^2 - 2 A error <= A^2 - square_x`,
//!
//! a chain of three multiply-adds and one comparison per vector of centers. Every term has at most a few roundings of
//! `f32`, relative to the squared lengths of both points, `A^2` and `error^2` ([`ROUNDING`]).
#![allow(unsafe_code)]

use super::pack::{GROUP, Group, PackedSketches, Words};
use super::sketch::Sketch;
use crate::kernel::generic::simd::{Simd, Widen};
use crate::kernel::isa::Isa;
use crate::kernel::tier::{Operation, Tier, tier_of};

/// Rows in a tile.
pub(in crate::kernel) const TILE: usize = 8;

/// Rows that are compared with all groups while they are in the first-level cache.
const BLOCK: usize = 8 * TILE;

/// Limit of the relative rounding error of a comparison: it has about a dozen roundings of at most 6e-8.
pub(super) const ROUNDING: f32 = 4e-6;

/// What multiplies the whole numbers of a tile of rows and a group of centers.
pub(in crate::kernel) trait Dots {
    /// Writes the sums of products of each of `rows` and each center, plus `bias`, as `f32`. Bytes of rows have no sign,
    /// those of centers have one. Only the first `VECTORS * 16` centers need to be computed.
    fn tile<const VECTORS: usize>(
        &self,
        rows: [&[[u8; 4]]; TILE],
        centers: &[Words],
        bias: &[i32; GROUP],
        out: &mut Products,
    );
}

/// Sums of products of a tile.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(in crate::kernel) struct Products(pub(in crate::kernel) [[f32; GROUP]; TILE]);

/// Portable products.
struct Portable;

impl Dots for Portable {
    #[inline(always)]
    fn tile<const VECTORS: usize>(
        &self,
        rows: [&[[u8; 4]]; TILE],
        centers: &[Words],
        bias: &[i32; GROUP],
        out: &mut Products,
    ) {
        for (row, out) in rows.into_iter().zip(&mut out.0) {
            let mut sums = *bias;
            for (row, centers) in row.iter().zip(centers) {
                let row = row.map(i32::from);
                for (sum, center) in sums.iter_mut().zip(&centers.0) {
                    let center = center.to_le_bytes().map(|c| i32::from(c as i8));
                    *sum +=
                        (row[0] * center[0] + row[1] * center[1]) + (row[2] * center[2] + row[3] * center[3]);
                }
            }
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum as f32;
            }
        }
    }
}

/// A center that may be within the radius of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    pub(crate) row: u32,
    pub(crate) center: u32,
    /// A lower bound of the distance.
    pub(crate) bound: f32,
}

/// What a scan needs of a row, beside its bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Query {
    unit: f32,
    rest: f32,
    error: f32,
    square: f32,
    slope: f32,
    limit: f32,
}

/// Rows of a chunk that are compared with centers.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    queries: Vec<Query>,
    /// The smallest estimates so far, for [`Scan::nearest`].
    minima: Vec<Minimum>,
}

/// The smallest estimate of a row per lane, and the place of its center.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Minimum {
    value: [f32; 16],
    place: [f32; 16],
}

impl Scan {
    /// The largest radius. Beyond it, the squares of distances would overflow.
    pub(crate) const FARTHEST: f32 = 1e17;

    /// Makes room for a chunk of `n` rows.
    pub(crate) fn resize(&mut self, n: usize) {
        self.queries.resize(n, Query::default());
    }

    /// Sets the sketch of a row, and the radius within which its centers are wanted.
    pub(crate) fn set(&mut self, row: usize, sketch: &Sketch, radius: f32) {
        let reach = f64::from(radius.min(Self::FARTHEST)) + f64::from(sketch.error);
        let square = f64::from(sketch.square);
        let rounding = f64::from(ROUNDING) * (square + reach * reach);
        self.queries[row] = Query {
            unit: -2.0 * sketch.unit,
            rest: -2.0 * sketch.rest,
            error: sketch.error,
            square: sketch.square,
            slope: -2.0 * (reach * (1.0 + 1e-6)) as f32,
            limit: ((reach * reach + rounding) * (1.0 + 1e-6) - square) as f32,
        };
    }

    /// Appends every center that may be within the radius of its row: of group `g` for the first `counts[g]` of `rows`.
    /// `codes` are the bytes of all rows of the chunk.
    pub(crate) fn within(
        &self,
        packed: &PackedSketches,
        codes: &[u8],
        (rows, counts): (&[u32], &[u32]),
        hits: &mut Vec<Hit>,
    ) {
        self.within_on(Isa::active(), packed, codes, (rows, counts), hits);
    }

    pub(super) fn within_on(
        &self,
        isa: Isa,
        packed: &PackedSketches,
        codes: &[u8],
        (rows, counts): (&[u32], &[u32]),
        hits: &mut Vec<Hit>,
    ) {
        run(isa, Within { queries: &self.queries, packed, codes, rows, counts, hits });
    }

    /// Writes, per row, the center of the smallest estimated distance.
    pub(crate) fn nearest(&mut self, packed: &PackedSketches, codes: &[u8], centers: &mut Vec<u32>) {
        let nothing = Minimum { value: [f32::INFINITY; 16], place: [0.0; 16] };
        self.minima.clear();
        self.minima.resize(self.queries.len(), nothing);
        run(Isa::active(), Nearest { queries: &self.queries, packed, codes, minima: &mut self.minima });
        centers.clear();
        for minimum in &self.minima {
            let mut best = 0;
            for l in 1..16 {
                if minimum.value[l] < minimum.value[best] {
                    best = l;
                }
            }
            let place = minimum.place[best] as usize;
            centers.push(packed.centers(place / GROUP).get(place % GROUP).copied().unwrap_or(0));
        }
    }
}

/// A scan, compiled for the vectors of an instruction set and a way to multiply bytes.
pub(in crate::kernel) trait Scanning {
    /// # Safety
    /// The processor has the instruction set.
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D);
}

fn run(isa: Isa, scan: impl Scanning) {
    match isa {
        #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
        Isa::Avx512Vnni | Isa::Amx => crate::kernel::arch::vnni::scan(scan),
        _ => {
            let tier: Tier<f32> = tier_of(isa);
            tier.run(Portably(scan));
        }
    }
}

/// A scan with portable products.
struct Portably<Q>(Q);

impl<Q: Scanning> Operation<f32> for Portably<Q> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<S: Widen<T = f32>, const MR: usize, const M2: usize, const M3: usize, const NV: usize>(
        self,
    ) {
        // SAFETY: the processor has the instruction set of `S`.
        unsafe { self.0.scan::<S, _>(&Portable) }
    }
}

/// Lists centers within the radius of rows.
struct Within<'a> {
    queries: &'a [Query],
    packed: &'a PackedSketches,
    codes: &'a [u8],
    rows: &'a [u32],
    counts: &'a [u32],
    hits: &'a mut Vec<Hit>,
}

impl Scanning for Within<'_> {
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, packed, codes, rows, counts, hits } = self;
        // Room for one vector more than is found.
        let mut places = [0; GROUP + 16];
        for (first, rows) in rows.chunks(BLOCK).enumerate() {
            for (at, &count) in counts.iter().enumerate() {
                let Some(few) = (count as usize).checked_sub(first * BLOCK).filter(|&few| few > 0) else {
                    break;
                };
                let group = &packed.groups[at];
                let each = |row: u32, products: &[f32; GROUP], vectors: usize| {
                    let query = &queries[row as usize];
                    // SAFETY: the processor has the instruction set.
                    let count = unsafe { below::<S>(query, products, group, vectors, &mut places) };
                    for &l in &places[..count] {
                        let bound = query.bound(products[l as usize], group, l as usize);
                        hits.push(Hit { row, center: packed.centers(at)[l as usize], bound });
                    }
                };
                multiply(dots, packed, (codes, at), &rows[..rows.len().min(few)], each);
            }
        }
    }
}

/// Keeps the smallest estimate per row.
struct Nearest<'a> {
    queries: &'a [Query],
    packed: &'a PackedSketches,
    codes: &'a [u8],
    minima: &'a mut [Minimum],
}

impl Scanning for Nearest<'_> {
    #[inline(always)]
    unsafe fn scan<S: Simd<T = f32>, D: Dots>(self, dots: &D) {
        let Self { queries, packed, codes, minima } = self;
        let rows: Vec<u32> = (0..queries.len() as u32).collect();
        for rows in rows.chunks(BLOCK) {
            for group in 0..packed.n_groups() {
                let each = |row: u32, products: &[f32; GROUP], vectors: usize| {
                    let (query, minimum) = (&queries[row as usize], &mut minima[row as usize]);
                    // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` or 16 values.
                    unsafe {
                        for l in (0..vectors * 16).step_by(S::LANES) {
                            let (to, first) = (l % 16, (group * GROUP + l) as f32);
                            let best = minimum.value.as_mut_ptr().add(to);
                            let place = minimum.place.as_mut_ptr().add(to);
                            let ids = S::add(S::splat(first), S::iota());
                            let of = &packed.groups[group];
                            let value = value::<S>(query, products, of, &of.square, l);
                            let (value, id) = S::keep_less(S::load(best), S::load(place), value, ids);
                            S::store(best, value);
                            S::store(place, id);
                        }
                    }
                };
                multiply(dots, packed, (codes, group), rows, each);
            }
        }
    }
}

/// Calls `each` with every row, its products with the centers of a group, and how many vectors of 16 are filled.
#[inline(always)]
fn multiply<D: Dots>(
    dots: &D,
    packed: &PackedSketches,
    (codes, group): (&[u8], usize),
    rows: &[u32],
    mut each: impl FnMut(u32, &[f32; GROUP], usize),
) {
    let depth = packed.depth;
    let (codes, centers) = (codes.as_chunks::<4>().0, &packed.words[group * depth..][..depth]);
    let vectors = packed.centers(group).len().div_ceil(16);
    let mut products = Products([[0.0; GROUP]; TILE]);
    for tile in rows.chunks(TILE) {
        // A short tile repeats its last row.
        let of = std::array::from_fn(|r| &codes[tile[r.min(tile.len() - 1)] as usize * depth..][..depth]);
        let bias = &packed.groups[group].bias;
        match vectors {
            1 => dots.tile::<1>(of, centers, bias, &mut products),
            2 => dots.tile::<2>(of, centers, bias, &mut products),
            _ => dots.tile::<3>(of, centers, bias, &mut products),
        }
        for (&row, products) in tile.iter().zip(&products.0) {
            each(row, products, vectors);
        }
    }
}

/// `v + of - square` for a vector of centers, as in the description of the module.
///
/// # Safety
/// The processor has the instruction set, and `at + LANES` is at most [`GROUP`].
#[inline(always)]
unsafe fn value<S: Simd<T = f32>>(
    query: &Query,
    products: &[f32; GROUP],
    group: &Group,
    of: &[f32; GROUP],
    at: usize,
) -> S::V {
    // SAFETY: the vectors are within the arrays.
    unsafe {
        let product = S::mul(S::load(products.as_ptr().add(at)), S::load(group.unit.as_ptr().add(at)));
        let value = S::fmadd(S::splat(query.unit), product, S::load(of.as_ptr().add(at)));
        S::fmadd(S::splat(query.rest), S::load(group.rest.as_ptr().add(at)), value)
    }
}

/// Writes the places of a group whose center may be within the radius to `places`. Returns their number.
///
/// # Safety
/// The processor has the instruction set, and `vectors * 16` is at most [`GROUP`].
#[inline(always)]
unsafe fn below<S: Simd<T = f32>>(
    query: &Query,
    products: &[f32; GROUP],
    group: &Group,
    vectors: usize,
    places: &mut [u32; GROUP + 16],
) -> usize {
    let mut count = 0;
    // SAFETY: the processor has the instruction set. Vectors are within arrays of `GROUP` values.
    unsafe {
        let of = |l: usize| {
            let error = S::load(group.error.as_ptr().add(l));
            S::fmadd(S::splat(query.slope), error, value::<S>(query, products, group, &group.least, l))
        };
        let mut least = S::splat(f32::INFINITY);
        for l in (0..vectors * 16).step_by(S::LANES) {
            least = S::min(least, of(l));
        }
        // Most groups hold no such center.
        if S::count_at_most(least, query.limit) > 0 {
            for l in (0..vectors * 16).step_by(S::LANES) {
                let limit = S::splat(query.limit.next_up());
                count += S::push_less(of(l), limit, l as u32, places.as_mut_ptr().add(count));
            }
        }
    }
    count
}

impl Query {
    /// A lower bound of the distance to a center of a group.
    #[inline(always)]
    fn bound(&self, product: f32, group: &Group, l: usize) -> f32 {
        let along = self.unit * (product * group.unit[l]) + self.rest * group.rest[l];
        let squares = self.square + group.square[l];
        let apart = (along + (squares - ROUNDING * squares)).max(0.0).sqrt() * (1.0 - 1e-6);
        apart - (group.error[l] + self.error) * (1.0 + 1e-6)
    }
}
