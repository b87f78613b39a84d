#![allow(unsafe_code)]

use std::fs::{self, File};
use std::ops::{ControlFlow, Range};
use std::path::Path;

use half::{bf16, f16};
use proptest::prelude::*;

use super::ahead::READ_AHEAD_STEP;
use super::*;
use crate::data::{Block, DataSource, Dtype, TileReader};
use crate::error::{Error, Result};
use crate::float::Float;
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// One value, as slowly and plainly as can be.
fn naive<T: Float>(dtype: Dtype, b: &[u8]) -> T {
    let [b2, b4, b8] = [2, 4, 8].map(|n| &b[..n.min(b.len())]);
    macro_rules! le {
        ($t:ty, $b:ident) => {
            <$t>::from_le_bytes($b.try_into().unwrap())
        };
    }
    match dtype {
        Dtype::Bool => T::from_f64(if b[0] == 0 { 0.0 } else { 1.0 }),
        Dtype::U8 => T::from_f64(f64::from(b[0])),
        Dtype::I8 => T::from_f64(f64::from(b[0] as i8)),
        Dtype::I16 => T::from_f64(f64::from(le!(i16, b2))),
        Dtype::U16 => T::from_f64(f64::from(le!(u16, b2))),
        Dtype::F16 => T::from_f64(le!(f16, b2).to_f64()),
        Dtype::Bf16 => T::from_f64(le!(bf16, b2).to_f64()),
        Dtype::F32 => T::from_f32(le!(f32, b4)),
        Dtype::I32 => T::from_f64(f64::from(le!(i32, b4))),
        Dtype::U32 => T::from_f64(f64::from(le!(u32, b4))),
        Dtype::I64 => T::from_f64(le!(i64, b8) as f64),
        Dtype::U64 => T::from_f64(le!(u64, b8) as f64),
        Dtype::F64 => T::from_f64(le!(f64, b8)),
    }
}

fn same<T: Float>(a: T, b: T) -> bool {
    a == b || (a.to_f64().is_nan() && b.to_f64().is_nan())
}

fn check<T: Float>(bytes: &[u8], offset: usize, layout: Layout, range: Range<usize>) {
    let source = RawRows::from_bytes(bytes, offset, layout).unwrap();
    // Earlier values of the scratch must not show in the tile.
    let mut scratch = vec![T::INFINITY; 3];
    let tile = source.tile(range.clone(), &mut scratch).unwrap();
    assert_eq!((tile.rows(), tile.cols()), (range.len(), layout.cols));
    let mut some = vec![T::INFINITY; 3];
    let picked: Vec<u32> = (0..range.len() as u32).filter(|i| i % 3 == 1).collect();
    let tile_of = source.tile_of(range.clone(), &picked, &mut some).unwrap();
    let mut gathered = Vec::new();
    source.gather(&range.clone().map(|r| r as u64).collect::<Vec<_>>(), &mut gathered).unwrap();
    for (i, r) in range.enumerate() {
        for c in 0..layout.cols {
            let at = r as isize * layout.row_stride + c as isize * layout.col_stride;
            let from = offset.checked_add_signed(at).unwrap();
            let expected = naive::<T>(layout.dtype, &bytes[from..from + layout.dtype.size()]);
            assert!(same(tile.row(i)[c], expected), "{layout:?} row {r} column {c}");
            let asked = picked.contains(&(i as u32));
            assert!(!asked || same(tile_of.row(i)[c], expected), "{layout:?} row {r} column {c} of some");
            assert!(same(gathered[i * layout.cols + c], expected), "{layout:?} gathered row {r} column {c}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn conversions_equal_naive_ones(
        which in 0usize..13, rows in 1usize..150, cols in 1usize..80, shift in 0usize..9, gap in 0isize..12,
        order in 0usize..6, (from, to) in (0.0..1.0f64, 0.0..=1.0f64), seed in any::<u64>(),
    ) {
        let dtype = Dtype::ALL[which];
        let size = dtype.size() as isize;
        let (n, d) = (rows as isize, cols as isize);
        let (row_stride, col_stride) = [
            (d * size, size),
            (d * size + gap, size),
            (size, n * size + gap),
            (-(d * size + gap), size),
            (d * (size + gap), size + gap),
            (d * size, -size),
        ][order];
        let layout = Layout { dtype, rows, cols, row_stride, col_stride };
        let (low, high) = layout.extent().unwrap();
        let offset = shift + low.unsigned_abs();
        let mut state = seed;
        let bytes: Vec<u8> = (0..offset + high as usize).map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        }).collect();
        let start = (from * rows as f64) as usize;
        let end = start + (to * (rows - start) as f64) as usize;
        check::<f32>(&bytes, offset, layout, start..end);
        check::<f64>(&bytes, offset, layout, start..end);
        // One byte less, and the last value is not there.
        prop_assert!(RawRows::from_bytes(&bytes[..bytes.len() - 1], offset, layout).is_err());
        if low < 0 {
            prop_assert!(RawRows::from_bytes(&bytes, low.unsigned_abs() - 1, layout).is_err());
        }
    }
}

#[test]
fn rows_of_the_compute_type_are_read_in_place() {
    let values: Vec<f32> = (0..20u16).map(f32::from).collect();
    let bytes = bytes_of(&values);
    let mut scratch = Vec::new();
    let wide = Layout { row_stride: 20, ..Layout::row_major(Dtype::F32, 4, 3) };
    let rows = RawRows::from_bytes(bytes, 0, wide).unwrap();
    let tile: MatRef<'_, f32> = rows.tile(1..4, &mut scratch).unwrap();
    assert!(std::ptr::eq(tile.data().as_ptr(), &raw const values[5]));
    assert_eq!((tile.stride(), tile.row(2)), (5, &values[15..18]));
    // Not aligned: converted.
    let odd = Layout::row_major(Dtype::F32, 4, 3);
    let rows = RawRows::from_bytes(bytes, 1, odd).unwrap();
    let tile: MatRef<'_, f32> = rows.tile(0..4, &mut scratch).unwrap();
    assert!(!bytes.as_ptr_range().contains(&tile.data().as_ptr().cast()));
}

#[test]
fn half_precision_runs_convert_every_value() {
    let bits: Vec<u16> = (0..=u16::MAX).collect();
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let layout = Layout::row_major(dtype, 1 << 10, 64);
        check::<f32>(bytes_of(&bits), 0, layout, 0..1 << 10);
    }
}

#[test]
fn refusals_of_shapes() {
    let text = |result: Result<RawRows<'_>>| result.unwrap_err().to_string();
    assert_eq!(text(RawRows::new(&[1u8, 2, 3], 2)), "3 values do not divide into rows of 2 columns");
    assert_eq!(text(RawRows::new::<u8>(&[], 0)), "rows need at least 1 column, got 0");
    let layout = Layout::row_major(Dtype::F32, 2, 2);
    assert_eq!(
        text(RawRows::from_bytes(&[0; 15], 0, layout)),
        "2 rows of 2 float32 with strides of 8 and 4 bytes from byte 0 on do not fit into 15 bytes"
    );
    for huge in [Layout::row_major(Dtype::F64, usize::MAX, 2), Layout::row_major(Dtype::F64, 2, usize::MAX)] {
        assert!(RawRows::from_bytes(&[0; 15], 0, huge).is_err());
        // SAFETY: nothing is read.
        assert!(unsafe { RawRows::from_parts(std::ptr::dangling(), huge) }.is_err());
    }
    let rows = RawRows::new(&[1u8, 2], 1).unwrap();
    assert_eq!(
        DataSource::<f32>::gather(&rows, &[0, 2], &mut Vec::new()).unwrap_err().to_string(),
        "row 2 does not exist"
    );
}

#[test]
fn files_that_cannot_be_mapped_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    let text = |path: &Path| {
        let text = open(path, Dtype::F32, 10, 3, 8).unwrap_err().to_string();
        text.strip_prefix(&format!("{}: ", path.display())).expect("the file is named").to_owned()
    };
    assert!(matches!(open(&path, Dtype::F32, 1, 1, 0), Err(Error::Io { .. })));
    assert_eq!(text(folder.path()), "is a directory, not a file of rows");
    fs::write(&path, []).unwrap();
    assert_eq!(text(&path), "is empty");
    fs::write(&path, [0; 127]).unwrap();
    assert_eq!(text(&path), "10 rows of 3 float32 need a file of 128 bytes, found 127");
    fs::write(&path, [0; 128]).unwrap();
    assert!(open(&path, Dtype::F32, 10, 3, 8).is_ok());
    assert!(open(&path, Dtype::F32, 10, 3, u64::MAX).is_err());
    assert!(open(&path, Dtype::F32, 0, 3, 8).is_err());
    let backwards = Layout { row_stride: -12, ..Layout::row_major(Dtype::F32, 10, 3) };
    assert!(Mapped::open(&path, backwards, 107).is_err());
    assert!(Mapped::open(&path, backwards, 108).is_ok());
}

#[test]
fn the_read_ahead_requests_every_byte_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    // A sparse file, which takes no space on disk.
    File::create(&path).unwrap().set_len(100 << 20).unwrap();
    for (cols, tile) in [(100, 256), (1 << 20, 1), (40 << 20, 1)] {
        let rows = open(&path, Dtype::U8, (100 << 20) / cols, cols, 0).unwrap();
        let n = rows.layout().rows;
        let mut end = 0;
        for start in (0..n).step_by(tile) {
            if let Some(due) = rows.due(&(start..n.min(start + tile))) {
                assert!(due.start <= end, "a gap before {due:?}");
                end = due.end;
            }
            assert!(end >= (start * cols + READ_AHEAD_STEP).min(n * cols), "{start} is read too late");
        }
    }
    let rows = open(&path, Dtype::U8, 100, 1 << 20, 0).unwrap();
    rows.for_each_block(1, &mut |block: Block<'_, f32>| {
        let mut scratch = Vec::new();
        assert_eq!(block.rows.tile(99..100, &mut scratch)?.row(0)[5], 0.0);
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
}

#[test]
fn a_file_whose_length_cannot_be_looked_up_ends_the_pass() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.u8");
    fs::write(&path, [7; 12]).unwrap();
    let rows = open(&path, Dtype::U8, 6, 2, 0).unwrap();
    let outcome = rows.for_each_block(2, &mut |block: Block<'_, f32>| {
        // As a stale handle of a network file system.
        let refused = rows.note_length(Err(std::io::Error::from_raw_os_error(116))).unwrap_err();
        assert!(matches!(refused, Error::Io { .. }), "{refused}");
        // From then on no tile can be read.
        block.rows.tile(0..2, &mut Vec::new())?;
        unreachable!("the tile is an error");
    });
    assert!(outcome.unwrap_err().to_string().starts_with(path.to_str().unwrap()));
    assert!(DataSource::<f32>::gather(&rows, &[0], &mut Vec::new()).is_err());
}

#[test]
fn single_rows_are_those_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows");
    let values: Vec<u16> = (0..40_000u32).map(|i| (i * 7919 % 65_521) as u16).collect();
    fs::write(&path, bytes_of(&values)).unwrap();
    // Rows of 74 bytes from byte 6 on, to the end of the file.
    let rows = open(&path, Dtype::U16, 1081, 37, 6).unwrap();
    // Nothing stays in the cache.
    *rows.leave() = Some(Leave::of(0));
    let mut buffer = RowBuf::new(37);
    for (range, picked) in [(0..1081, vec![0, 1, 2, 500, 502, 1080]), (20..90, vec![69, 3]), (7..9, vec![])] {
        // Some file systems have no such reads.
        if !rows.read_picked::<f32>(&range, &picked, &mut buffer, None).unwrap() {
            return;
        }
        for &r in &picked {
            let at = 3 + (range.start + r as usize) * 37;
            let expected: Vec<f32> = values[at..at + 37].iter().map(|&v| f32::from(v)).collect();
            assert_eq!(buffer.values[r as usize * 37..][..37], expected);
        }
    }
    // Gathered rows of a file of which only the first 30 rows stay in the cache.
    *rows.leave() = Some(Leave::of(6 + 30 * 74));
    let numbers: Vec<u64> = (0..60).map(|i| i * 18 % 1081).chain([5, 6, 7, 1080]).collect();
    let mut found = vec![0.5f32];
    rows.gather(&numbers, &mut found).unwrap();
    let expected = numbers.iter().flat_map(|&r| &values[3 + r as usize * 37..][..37]).map(|&v| f32::from(v));
    assert!(found.iter().copied().eq([0.5].into_iter().chain(expected)));
    let outside = rows.gather(&[1081; 20], &mut found).unwrap_err();
    assert_eq!(outside.to_string(), rows.gather(&[1081], &mut found).unwrap_err().to_string());
    File::options().write(true).open(&path).unwrap().set_len(70_000).unwrap();
    let refused = rows.read_picked::<f32>(&(0..1081), &[1080], &mut buffer, None).unwrap_err();
    assert!(refused.to_string().contains("was cut while it was open"), "{refused}");
}
