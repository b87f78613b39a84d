//! Tests of sources made from other sources.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::*;
use crate::data::{Chunks, Csr, DataSource, Dense, Index, RawRows, copy, take};
use crate::float::Float;
use crate::rows::RowBuf;

/// Reads all rows, tile by tile, and their weights, and checks the contract of blocks.
fn read<T: Float>(source: &dyn DataSource<T>, tile_rows: usize) -> (Vec<T>, Vec<f64>) {
    let (mut rows, mut weights, mut scratch, mut next, mut whole) =
        (Vec::new(), Vec::new(), Vec::new(), 0, true);
    source
        .for_each_block(tile_rows, &mut |block| {
            assert_eq!(block.first_row, next);
            assert!(whole && block.len > 0, "a block before the last is not of whole tiles");
            whole = block.len.is_multiple_of(tile_rows);
            next += block.len as u64;
            for start in (0..block.len).step_by(tile_rows) {
                let tile = block.rows.tile(start..block.len.min(start + tile_rows), &mut scratch)?;
                tile.iter().for_each(|row| rows.extend_from_slice(row));
            }
            weights.extend_from_slice(block.weights.unwrap_or_default());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
    (rows, weights)
}

proptest! {
    #[test]
    fn adapters_equal_what_they_say(
        n in 1usize..200, chunk in 1usize..40, tile in 1usize..9, a in 0usize..200, b in 0usize..200,
    ) {
        let (a, b) = (a.min(b).min(n), a.max(b).min(n));
        let values: Vec<u8> = (0..2 * n).map(|i| (i * 7 % 251) as u8).collect();
        let wide: Vec<f32> = values.iter().map(|&x| f32::from(x)).collect();
        let weights: Vec<f64> = (0..n).map(|i| (i + 2) as f64).collect();
        let raw = RawRows::new(&values, 2).unwrap();
        let stream = Chunks::replay(2, || wide.chunks(2 * chunk).map(|c| Ok(c.to_vec().into())));
        let sources: [&dyn DataSource<f32>; 2] = [&raw, &stream];
        for source in sources {
            let weighted = Weighted::new(source, &weights).unwrap();
            prop_assert_eq!(read(&weighted, tile), (wide.clone(), weights.clone()));
            let range = RowRange::new(&weighted, a as u64..b as u64).unwrap();
            prop_assert_eq!(read(&range, tile), (wide[2 * a..2 * b].to_vec(), weights[a..b].to_vec()));
            prop_assert_eq!(range.weights(), Some(&weights[a..b]));
            if b > a {
                prop_assert_eq!(take(&range, &[(b - a - 1) as u64]).unwrap(), &wide[2 * b - 2..2 * b]);
            }
        }
        let weighted = Weighted::new::<f32>(raw, &weights).unwrap();
        let order: Vec<u32> = (a as u32..n as u32).rev().chain(0..b as u32).collect();
        let permuted = Permuted::new::<f32>(&weighted, order.clone()).unwrap();
        let expected: Vec<f32> = order.iter().flat_map(|&i| wide[2 * i as usize..][..2].to_vec()).collect();
        let heavy: Vec<f64> = order.iter().map(|&i| weights[i as usize]).collect();
        prop_assert_eq!(read(&permuted, tile), (expected.clone(), heavy));
        let rows: Vec<u64> = (0..order.len() as u64).collect();
        prop_assert_eq!(take::<f32>(&permuted, &rows).unwrap(), expected);
    }

    #[test]
    fn normalized_rows_have_length_1(values in prop::collection::vec(-1e3f32..1e3, 3..60)) {
        let values = &values[..values.len() / 3 * 3];
        let dense = Normalized::new(Dense::new(values, 3).unwrap());
        let (rows, _) = read(&dense, 2);
        // Rows read in place and converted rows are bit-identical, for any tile.
        let bytes = Normalized::new::<f32>(RawRows::new(values, 3).unwrap());
        prop_assert_eq!(&read::<f32>(&bytes, 5).0, &rows);
        let (wide, _) = read::<f64>(&bytes, 5);
        for ((unit, exact), from) in rows.chunks(3).zip(wide.chunks(3)).zip(values.chunks(3)) {
            let norm = from.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt();
            for j in 0..3 {
                let expected = if norm == 0.0 { 0.0 } else { f64::from(from[j]) / norm };
                prop_assert!((f64::from(unit[j]) - expected).abs() < 1e-7);
                prop_assert!((exact[j] - expected).abs() < 1e-15);
            }
        }
    }
}

#[test]
fn rows_of_zeros_are_counted_once() {
    let values: Vec<f32> = (0..200).flat_map(|i| if i % 7 == 0 { [0.0, -0.0] } else { [3.0, 4.0] }).collect();
    let rows = Normalized::new(Dense::new(&values, 2).unwrap());
    assert_eq!(rows.zero_rows(), 0);
    let mut found = Vec::new();
    rows.gather(&[14, 3, 14, 7], &mut found).unwrap();
    assert_eq!((rows.zero_rows(), &found[..4]), (2, &[0.0, 0.0, 0.6, 0.8][..]));
    let mut copied = RowBuf::new(2);
    rows.copy(&[1, 0], &mut copied).unwrap();
    assert_eq!(rows.zero_rows(), 3);
    for tile in [1, 3, 64, 1000] {
        assert_eq!((read(&rows, tile).0.len(), rows.zero_rows()), (400, 29));
    }
}

#[test]
fn undefined_rows_are_no_rows_of_zeros() {
    // A sparse row without values is a row of zeros, unless it was not picked.
    let (starts, columns, values) = ([0i32, 1, 1, 2, 2], [0i32, 1], [2.0f32, -3.0]);
    let matrix = Csr::new((4, 2), Index::I32(&starts), Index::I32(&columns), &values).unwrap();
    let rows = Normalized::new::<f32>(matrix);
    let mut found = Vec::new();
    let mut look = |picked: &[u32]| {
        DataSource::<f32>::for_each_block(&rows, 4, &mut |block| {
            let mut scratch = RowBuf::default();
            let tile = block.rows.sparse(0..4, Some(picked), &mut scratch)?.expect("the rows are sparse");
            found.push(tile.rows());
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        rows.zero_rows()
    };
    assert_eq!([look(&[0, 2]), look(&[1, 2]), look(&[1]), look(&[3])], [0, 1, 1, 2]);
    assert_eq!(found, [4; 4]);
}

#[test]
fn sparse_rows_are_normalized_alike_however_they_are_read() {
    // Rows of many values: sums of their squares in another order would round differently.
    let (mut starts, mut columns, mut values) = (vec![0i32], Vec::new(), Vec::new());
    for i in 0..60 {
        for column in (i % 3..40).step_by(1 + i % 5) {
            columns.push(column as i32);
            values.push(0.1 + ((i * 31 + column * 17) % 97) as f64);
        }
        starts.push(columns.len() as i32);
    }
    let matrix = Csr::new((60, 40), Index::I32(&starts), Index::I32(&columns), &values).unwrap();
    let rows = Normalized::new::<f64>(matrix);
    let in_passes = read::<f64>(&rows, 7).0;
    let numbers: Vec<u64> = (0..60).collect();
    assert_eq!(take::<f64>(&rows, &numbers).unwrap(), in_passes);
    assert_eq!(read::<f64>(&copy(&rows, &numbers).unwrap(), 7).0, in_passes);
    let mut dense = RowBuf::of_values(vec![0.0; 40], 40);
    rows.copy(&numbers, &mut dense).unwrap();
    assert_eq!(dense.values[40..], in_passes);
}

#[test]
fn norms_beyond_f64_are_no_trouble() {
    for scale in [1e300, 1e-300, f64::from_bits(1) * 8.0, 1.0] {
        let rows = [3.0 * scale, 4.0 * scale, 0.0, 0.0];
        let (found, _) = read(&Normalized::new(Dense::new(&rows, 2).unwrap()), 1);
        assert!((found[0] - 0.6).abs() < 1e-15 && (found[1] - 0.8).abs() < 1e-15, "{scale}: {found:?}");
        assert_eq!(found[2..], [0.0, 0.0]);
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let rows = || Dense::new(&[1.0f32, 2.0, 3.0], 1).unwrap();
    let unit = Weighted::new(rows(), vec![1.0; 3]).unwrap();
    assert_eq!((unit.weights(), read(&unit, 1).1), (None, vec![]));
    let alike = Weighted::new(rows(), vec![2.0; 3]).unwrap();
    assert_eq!((alike.weights(), read(&alike, 1).1), (Some(&[2.0; 3][..]), vec![2.0; 3]));
    let weights = |w: Vec<f64>| Weighted::new(rows(), w).unwrap_err().to_string();
    assert_eq!(weights(vec![1.0; 2]), "weights have 2 values, `rows` have 3 rows");
    assert_eq!(weights(vec![1.0, f64::NAN, -1.0]), "weights must be finite and at least 0, got NaN at row 1");
    assert_eq!(weights(vec![0.0; 3]), "weights must be above 0 for at least one row, got zero for every row");
    assert_eq!(RowRange::new(rows(), 2..4).unwrap_err().to_string(), "rows 2..4 do not lie within 0..3");
    assert!(RowRange::new(rows(), 1..2).unwrap().gather(&[1], &mut Vec::new()).is_err());
    let stream = Chunks::once(1, std::iter::once(Ok(vec![1.0f32, 2.0].into())));
    assert_eq!(
        Permuted::new(&stream, vec![0u32]).unwrap_err().to_string(),
        "another row order needs random access: write the rows to a file and open that"
    );
    let short = Weighted::new(stream, vec![1.0]).unwrap();
    let refused = short.for_each_block(1, &mut |_| Ok(ControlFlow::Continue(()))).unwrap_err();
    assert_eq!(refused.to_string(), "weights have 1 values, `rows` have 2 rows");
}
