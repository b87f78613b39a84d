//! Files of rows.

use std::fs;
use std::path::Path;

use shoal::Executor;
use shoal::data::{AnySource, Dtype, Shards, Source, bin, check_finite, npy, raw, vecs};

use super::damage::{self, Draws};
use super::driver::Target;

/// Reads all rows in one pass, and some of them one by one.
fn read(rows: shoal::Result<impl Source>) -> Result<(), String> {
    let rows = rows.map_err(|e| e.to_string())?;
    let cx = Executor::new(Some(1)).unwrap();
    let done = match rows.any() {
        AnySource::F32(rows) => check_finite(rows, &cx).and_then(|()| {
            let last = rows.rows().map_or(0, |n| n.saturating_sub(1));
            rows.gather(&[0, last], &mut Vec::new())
        }),
        AnySource::F64(rows) => check_finite(rows, &cx).and_then(|()| rows.gather(&[0], &mut Vec::new())),
    };
    done.map_err(|e| e.to_string())
}

fn run(name: &str, file: &str, valid: Vec<Vec<u8>>, read: &dyn Fn(&Path) -> Result<(), String>) {
    let damage: fn(&mut Draws, &[u8], &[u8]) -> Vec<u8> =
        if Path::new(file).extension().is_some_and(|of| of == "npy") { damage::npy } else { damage::bytes };
    Target { name, file, valid, damage, read }.run();
}

/// An `.npy` file of a header and as many bytes of data.
fn npy_file(version: u8, header: &str, data: usize) -> Vec<u8> {
    let mut file = b"\x93NUMPY".to_vec();
    file.extend([version, 0]);
    let header = format!("{header}\n");
    if version == 1 {
        file.extend((header.len() as u16).to_le_bytes());
    } else {
        file.extend((header.len() as u32).to_le_bytes());
    }
    file.extend(header.bytes());
    file.extend((0..data).map(|i| (i % 60) as u8));
    file
}

fn npy_files() -> Vec<Vec<u8>> {
    let header = |descr: &str, fortran: &str, shape: &str| {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
    };
    vec![
        npy_file(1, &header("<f4", "False", "(30, 2)"), 240),
        npy_file(1, &header("<f8", "True", "(3, 7)"), 168),
        npy_file(2, &header("|u1", "False", "(5, 5)"), 25),
        npy_file(3, &header("<i2", "True", "(1, 6)"), 12),
        npy_file(1, &header("<f2", "False", "(8, 1)"), 16),
        npy_file(1, &header("|b1", "False", "(2, 3)"), 6),
    ]
}

#[test]
fn npy() {
    let mut files = npy_files();
    // Values of bool must be 0 or 1.
    let bools = files.last_mut().unwrap();
    let data = bools.len() - 6;
    bools[data..].fill(1);
    run("npy", "x.npy", files, &|path| read(npy::open(path)));
}

#[test]
fn shards() {
    let folder = tempfile::tempdir().unwrap();
    let first = folder.path().join("first.npy");
    fs::write(&first, &npy_files()[0]).unwrap();
    let files = vec![npy_files().swap_remove(0)];
    run("shards", "x.npy", files, &|path| read(Shards::open([first.as_path(), path, &first])));
}

#[test]
fn fvecs() {
    let row = |x: f32| [&2u32.to_le_bytes()[..], &x.to_le_bytes(), &1f32.to_le_bytes()].concat();
    let file = (0..20).flat_map(|i| row(i as f32)).collect();
    run("fvecs", "x.fvecs", vec![file], &|path| read(vecs::open(path)));
}

#[test]
fn bvecs() {
    let file = (0..20).flat_map(|i| [3, 0, 0, 0, i, 1, 2]).collect();
    run("bvecs", "x.bvecs", vec![file], &|path| read(vecs::open(path)));
}

#[test]
fn fbin() {
    let head = [10u32.to_le_bytes(), 3u32.to_le_bytes()].concat();
    let file = [head, (0..30).flat_map(|i| (i as f32).to_le_bytes()).collect()].concat();
    run("fbin", "x.fbin", vec![file], &|path| read(bin::open(path)));
}

#[test]
fn u8bin() {
    let file = [&5u32.to_le_bytes()[..], &4u32.to_le_bytes(), &[7; 20]].concat();
    run("u8bin", "x.u8bin", vec![file], &|path| read(bin::open(path)));
}

#[test]
fn raw_bytes() {
    let file = (0..60).flat_map(|i| (i as f64).to_le_bytes()).collect();
    run("raw", "x.bin", vec![file], &|path| read(raw::open(path, Dtype::F64, 20, 3, 0)));
}
