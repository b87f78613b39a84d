//! Tests of standardized and projected rows.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::data::{Access, Chunks, Converted, DataSource, Dense, RawRows, copy, take};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::{RowBuf, Rows};

/// Copies rows without their zeros.
fn sparse_rows<T: Float>(values: &[T], cols: usize) -> RowBuf<T> {
    let mut out = RowBuf::sparse(cols);
    for row in values.chunks(cols) {
        for (column, &x) in row.iter().enumerate().filter(|(_, x)| **x != T::ZERO) {
            out.values.push(x);
            out.columns.push(column as i32);
        }
        out.end_row();
    }
    out
}

/// All rows, read by `step` at a time and then one by one in a gather; both must be bit-identical. So must the rows
/// that are read alone.
fn read<T: Float>(source: &dyn DataSource<T>, step: usize) -> Vec<T> {
    let (mut rows, mut converted, mut single) = (Vec::new(), Converted::default(), Vec::new());
    source
        .for_each_block(step, &mut |block| {
            for start in (0..block.len).step_by(step) {
                let range = start..block.len.min(start + step);
                let first = rows.len();
                let tile = match converted.read(block.rows, range.clone(), None)? {
                    Rows::Dense(tile) => tile.iter().flatten().copied().collect(),
                    Rows::Sparse(tile) => {
                        let mut all = vec![T::ZERO; tile.rows() * tile.cols()];
                        for ((columns, values), out) in tile.iter().zip(all.chunks_mut(tile.cols())) {
                            columns.iter().zip(values).for_each(|(&column, &x)| out[column as usize] = x);
                        }
                        all
                    }
                };
                rows.extend::<Vec<T>>(tile);
                if source.most_values().is_none() {
                    let last = (range.len() - 1) as u32;
                    let tile = block.rows.tile_of(range.clone(), &[last], &mut single)?;
                    assert_eq!(tile.row(last as usize), &rows[first + last as usize * source.dim()..]);
                }
            }
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    let numbers: Vec<u64> = (0..(rows.len() / source.dim()) as u64).rev().collect();
    let backwards: Vec<T> = rows.rchunks(source.dim()).flatten().copied().collect();
    assert_eq!(take(source, &numbers).unwrap(), backwards);
    let copied = copy(source, &numbers).unwrap();
    assert_eq!(copied.is_sparse(), source.most_values().is_some() && source.access() == Access::Random);
    assert_eq!(take(&copied, &(0..numbers.len() as u64).collect::<Vec<_>>()).unwrap(), backwards);
    rows
}

proptest! {
    #[test]
    fn rows_of_every_source_are_transformed_alike(
        n in 1usize..90, dim in 1usize..20, p in 1usize..20, step in 1usize..70, chunk in 1usize..40, seed in 0usize..1000,
    ) {
        let bytes: Vec<u8> = (0..n * dim).map(|i| ((i + seed) * 7919 % 256) as u8 / 128 * ((i * 31) % 251) as u8).collect();
        let floats: Vec<f32> = bytes.iter().map(|&x| f32::from(x)).collect();
        let stored = sparse_rows(&floats, dim);
        let raw = RawRows::new(&bytes, dim).unwrap();
        let dense = Dense::new(&floats, dim).unwrap();
        let stream = Chunks::replay(dim, || floats.chunks(dim * chunk).map(|c| Ok(c.to_vec().into())));
        let weighted = Weighted::new::<f32>(&dense, vec![2.0; n]).unwrap();
        let scale: Vec<f64> = (0..dim).map(|j| 0.3 + j as f64).collect();
        let mean: Vec<f64> = (0..dim).map(|j| 40.0 / (1.0 + j as f64)).collect();
        let components: Vec<f64> = (0..p * dim).map(|i| ((i * 37 + seed) % 101) as f64 / 50.0 - 1.0).collect();
        let components = MatRef::new(&components, dim);
        let sources: [(&dyn DataSource<f32>, bool); 5] =
            [(&raw, false), (&dense, false), (&stream, false), (&weighted, false), (&stored, true)];
        for (source, sparse) in sources {
            let mean = if sparse { vec![0.0; dim] } else { mean.clone() };
            let found = Standardized::new(source, &mean, &scale).unwrap();
            prop_assert_eq!(found.weights(), source.weights());
            let expected: Vec<f32> = floats
                .chunks(dim)
                .flat_map(|row| (0..dim).map(|j| ((f64::from(row[j]) - mean[j]) / scale[j]) as f32).collect::<Vec<_>>())
                .collect();
            prop_assert_eq!(read(&found, step), expected);
            let part = RowRange::new(&found, (n / 2) as u64..n as u64).unwrap();
            prop_assert_eq!(&read(&part, step)[..], &read(&found, step)[n / 2 * dim..]);
        }
        let mut first: Option<Vec<f32>> = None;
        for (source, sparse) in sources {
            let found = Projected::new(source, components, Some(&mean)).unwrap();
            prop_assert_eq!((found.dim(), found.weights(), found.most_values()), (p, source.weights(), None));
            let rows = read(&found, step);
            for (row, found) in floats.chunks(dim).zip(rows.chunks(p)) {
                for (axis, &found) in components.iter().zip(found) {
                    let term = |j: usize| (f64::from(row[j]) - mean[j]) * axis[j];
                    let expected: f64 = (0..dim).map(term).sum();
                    // Sparse rows are centered after the products.
                    let size: f64 = (0..dim).map(|j| (f64::from(row[j]).abs() + mean[j]) * axis[j].abs()).sum();
                    prop_assert!((f64::from(found) - expected).abs() <= 1e-6 * size, "{found} {expected}");
                }
            }
            // Dense rows of all sources are bit-identical.
            if !sparse {
                prop_assert_eq!(first.get_or_insert_with(|| rows.clone()), &rows);
            }
        }
        // Rows computed in `f64` take the same code.
        let wide = Projected::new::<f64>(&raw, components, Some(&mean)).unwrap();
        let (wide, narrow) = (read::<f64>(&wide, step), first.unwrap());
        for (wide, narrow) in wide.iter().zip(narrow) {
            prop_assert!((wide - f64::from(narrow)).abs() < 1e-6 * (dim * 300) as f64);
        }
    }
}

fn rows_of_every_group_are_bit_identical<T: Float>() {
    let n = 150;
    for dim in [1, 3, 64, 255, 257, 600, 1030] {
        let value = |i: usize| T::from_f64(((i * 7919 + i / 13) % 1009) as f64 / 97.0 - 4.0);
        let rows: Vec<T> = (0..n * dim).map(value).collect();
        let rows = RowBuf::of_values(rows, dim);
        for p in [1, 2, 8, 17, 67] {
            let components: Vec<f64> =
                (0..p * dim).map(|i| ((i * 31 + i / 7) % 113) as f64 / 57.0 - 0.9).collect();
            let mean: Vec<f64> = (0..dim).map(|j| j as f64 / 3.0).collect();
            for mean in [None, Some(&mean[..])] {
                let found = Projected::new(&rows, MatRef::new(&components, dim), mean).unwrap();
                let one_by_one = read::<T>(&found, 1);
                for step in [2, 5, 31, n] {
                    assert!(read::<T>(&found, step) == one_by_one, "{dim} to {p}, {step} rows at a time");
                }
                let mut tile = Vec::new();
                let picked: Vec<u32> = (0..n as u32 / 3).map(|i| 3 * i + 1).collect();
                found
                    .for_each_block(n, &mut |block| {
                        let tile = block.rows.tile_of(0..n, &picked, &mut tile)?;
                        for &r in &picked {
                            assert_eq!(tile.row(r as usize), &one_by_one[r as usize * p..][..p]);
                        }
                        Ok(ControlFlow::Continue(()))
                    })
                    .unwrap();
            }
        }
    }
}

#[test]
fn projections_do_not_depend_on_the_rows_read_together() {
    rows_of_every_group_are_bit_identical::<f32>();
    rows_of_every_group_are_bit_identical::<f64>();
}

#[test]
fn sums_of_many_columns_round_little() {
    let dim = 5000;
    let row: Vec<f32> = (0..dim).map(|j| 0.1 + (j % 7) as f32).collect();
    let axis = vec![0.1; dim];
    let found =
        read(&Projected::new(Dense::new(&row, dim).unwrap(), MatRef::new(&axis, dim), None).unwrap(), 1);
    let expected: f64 = row.iter().map(|&x| f64::from(x) * 0.1).sum();
    assert!((f64::from(found[0]) / expected - 1.0).abs() < 2e-6, "{found:?} {expected}");
}

#[test]
fn refusals_name_what_is_wrong() {
    let rows = || Dense::new(&[1.0f32, 2.0, 3.0, 4.0], 2).unwrap();
    let told = |mean: &[f64], scale: &[f64]| Standardized::new(rows(), mean, scale).unwrap_err().to_string();
    assert_eq!(told(&[0.0], &[1.0; 2]), "mean has 1 values, `rows` have 2 columns");
    assert_eq!(told(&[0.0; 2], &[1.0; 3]), "scale has 3 values, `rows` have 2 columns");
    assert_eq!(told(&[0.0, f64::NAN], &[1.0; 2]), "mean must be finite, got NaN at column 1");
    assert_eq!(told(&[0.0; 2], &[1.0, -1.0]), "scale must be finite and above 0, got -1 at column 1");
    let sparse = sparse_rows(&[0.0f32, 2.0], 2);
    let refused = Standardized::new(sparse, &[0.0, 3.0], &[1.0; 2]).unwrap_err().to_string();
    assert!(refused.starts_with("mean must be 0 for sparse rows") && refused.ends_with("got 3 at column 1"));
    let told = |components: &[f64], cols, mean: &[f64]| {
        Projected::new(rows(), MatRef::new(components, cols), Some(mean)).unwrap_err().to_string()
    };
    assert_eq!(told(&[], 2, &[0.0; 2]), "components must have at least 1 row, got 0");
    assert_eq!(told(&[1.0; 3], 3, &[0.0; 2]), "components have 3 columns, `rows` have 2");
    assert_eq!(
        told(&[1.0, f64::INFINITY], 2, &[0.0; 2]),
        "components must be finite, got inf at row 0, column 1"
    );
    assert_eq!(told(&[1.0; 2], 2, &[0.0]), "mean has 1 values, `rows` have 2 columns");
    assert_eq!(told(&[1.0; 2], 2, &[0.0, f64::NAN]), "mean must be finite, got NaN at column 1");
    let found = Projected::new(rows(), MatRef::new(&[1.0; 2], 2), None).unwrap();
    assert!(found.gather(&[0, 2], &mut vec![]).is_err());
    let once = Chunks::once(1, std::iter::once(Ok(vec![1.0f32, 2.0].into())));
    assert!(Projected::new(once, MatRef::new(&[1.0], 1), None).unwrap().gather(&[0], &mut vec![]).is_err());
}
