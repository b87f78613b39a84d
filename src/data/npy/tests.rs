//! Tests of reading and writing `.npy` files.

use std::fs;

use proptest::prelude::*;

use super::writer::WRITTEN_HEADER;
use super::*;
use crate::data::{DataSource, Dtype};

/// An `.npy` file put together byte by byte.
fn file(version: u8, dict: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"\x93NUMPY".to_vec();
    bytes.extend([version, 0]);
    let length = (dict.len() + 1) as u32;
    bytes.extend(&length.to_le_bytes()[..if version == 1 { 2 } else { 4 }]);
    bytes.extend(dict.bytes());
    bytes.push(b'\n');
    bytes.extend(data);
    bytes
}

fn dict(descr: &str, fortran: &str, shape: &str) -> String {
    format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}")
}

fn opened(bytes: &[u8]) -> Result<Mapped> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    fs::write(&path, bytes).unwrap();
    open(path)
}

fn rows(source: &Mapped) -> Vec<f64> {
    let all: Vec<u64> = (0..DataSource::<f64>::rows(source).unwrap()).collect();
    let mut out = Vec::new();
    source.gather(&all, &mut out).unwrap();
    out
}

fn refusal(bytes: &[u8]) -> String {
    let text = opened(bytes).unwrap_err().to_string();
    text.split_once("x.npy: ").expect("the file is named").1.to_owned()
}

#[test]
fn all_versions_and_both_orders_are_read() {
    let data: Vec<u8> = [1i16, 2, 3, 4, 5, -6].iter().flat_map(|x| x.to_le_bytes()).collect();
    for version in 1..=3 {
        let c = opened(&file(version, &dict("'<i2'", "False", "(2, 3)"), &data)).unwrap();
        assert_eq!(rows(&c), [1.0, 2.0, 3.0, 4.0, 5.0, -6.0]);
        let fortran = opened(&file(version, &dict("'<i2'", "True", "(2, 3)"), &data)).unwrap();
        assert_eq!(rows(&fortran), [1.0, 3.0, 5.0, 2.0, 4.0, -6.0]);
    }
}

#[test]
fn refusals_say_what_is_wrong() {
    let data = [0u8; 64];
    let text = |descr, shape| refusal(&file(1, &dict(descr, "False", shape), &data));
    assert_eq!(
        text("'<f4'", "(16,)"),
        "holds an array of shape (16,); rows need 2 dimensions: reshape it to (16, 1) for rows of one value, to \
         (1, 16) for one row"
    );
    assert_eq!(
        text("'<f4'", "(2, 2, 4)"),
        "holds an array of shape (2, 2, 4); rows need 2 dimensions: reshape it to (rows, columns)"
    );
    assert_eq!(text("'<f4'", "(0, 4)"), "must have at least 1 row and 1 column, got shape (0, 4)");
    assert_eq!(text("'<f4'", "(4, 0)"), "must have at least 1 row and 1 column, got shape (4, 0)");
    assert!(text("'>f4'", "(4, 4)").starts_with("holds big-endian values ('>f4')"));
    assert!(text("'<c8'", "(4, 2)").starts_with("holds complex numbers ('<c8')"));
    assert!(text("'|O'", "(4, 2)").starts_with("holds Python objects ('|O')"));
    assert!(text("'<U3'", "(4, 2)").starts_with("holds text ('<U3')"));
    assert!(text("'<f16'", "(2, 2)").starts_with("holds values of a type ('<f16')"));
    assert!(text("[('a', '<f4'), ('b', '<f4')]", "(2, 2)").starts_with("holds a structured dtype"));
    let length = dict("'<f4'", "False", "(5, 4)").len() + 11;
    assert_eq!(
        text("'<f4'", "(5, 4)"),
        format!("5 rows of 4 float32 need a file of {} bytes, found {}", length + 80, length + 64)
    );
}

#[test]
fn hostile_headers_are_refused() {
    assert_eq!(refusal(b""), "is empty");
    assert_eq!(
        refusal(b"PK\x03\x04 not this"),
        "is not an .npy file: it begins with \"PK\\x03\\x04 n\", not with \"\\x93NUMPY\""
    );
    assert_eq!(refusal(b"\x93NUMPY\x01"), "ends within its header");
    assert_eq!(
        refusal(b"\x93NUMPY\x04\x00\x00\x00\x00\x00"),
        "is .npy version 4.0; versions 1.0, 2.0 and 3.0 are read"
    );
    assert_eq!(
        refusal(b"\x93NUMPY\x02\x00\xff\xff\xff\xff"),
        "claims a header of 4294967295 bytes; at most 65536 are read"
    );
    assert_eq!(refusal(b"\x93NUMPY\x01\x00\xff\xff{'descr'"), "ends within its header");
    for shape in ["(4294967296, 4294967296, 4)", "(0, 18446744073709551615, 9)", "(99999999999999999999, 1)"]
    {
        let text = refusal(&file(1, &dict("'<f4'", "False", shape), &[0; 16]));
        assert_eq!(text, "has a damaged header: its shape is larger than any file");
    }
    let text = refusal(&file(1, &dict("'<f8'", "False", "(4611686018427387904, 1)"), &[0; 16]));
    assert_eq!(text, "4611686018427387904 rows of 1 float64 are larger than any file");
    let text = refusal(&file(1, &dict("'<f4'", "False", "(-2, 4)"), &[0; 16]));
    assert!(text.contains("negative"), "{text}");
    let deep = "(".repeat(30_000);
    assert_eq!(refusal(&file(2, &deep, &[])), "has a damaged header: it is not a dictionary");
    assert!(refusal(&file(1, "{'descr': '<f4', }", &[0; 16])).contains("missing"));
    assert!(refusal(&file(1, "{\u{1}", &[0; 16])).contains("unexpected \"\\x01\""));
}

proptest! {
    #[test]
    fn damaged_files_never_panic(at in 0usize..160, byte in any::<u8>(), cut in 0usize..200) {
        let data = [1u8; 80];
        let mut bytes = file(1, &dict("'<f4'", "False", "(5, 4)"), &data);
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        if let Ok(source) = opened(&bytes) {
            let layout = source.layout();
            prop_assert_eq!(rows(&source).len(), layout.rows * layout.cols);
        }
    }

    #[test]
    fn what_is_written_is_read(n in 1usize..50, cols in 1usize..6, which in 0usize..13) {
        let dtype = Dtype::ALL[which];
        prop_assume!(dtype != Dtype::Bf16);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let bytes: Vec<u8> = (0..n * cols * dtype.size()).map(|i| (i % 2) as u8).collect();
        let mut writer = Writer::create(&path, dtype, cols).unwrap();
        for row in bytes.chunks(cols * dtype.size()) {
            writer.append(row).unwrap();
        }
        prop_assert_eq!(writer.finish().unwrap(), n as u64);
        let source = open(&path).unwrap();
        prop_assert_eq!(source.layout(), Layout::row_major(dtype, n, cols));
        prop_assert_eq!(&fs::read(&path).unwrap()[WRITTEN_HEADER..], &bytes[..]);
    }
}

#[test]
fn written_files_are_those_of_numpy() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("labels.npy");
    let mut labels = Writer::create_1d(&path, Dtype::I32).unwrap();
    labels.append_values(&[7i32, -1]).unwrap();
    labels.finish().unwrap();
    let mut expected = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    expected.extend(b"{'descr': '<i4', 'fortran_order': False, 'shape': (2,), }");
    expected.resize(127, b' ');
    expected.extend(b"\n\x07\x00\x00\x00\xff\xff\xff\xff");
    assert_eq!(fs::read(&path).unwrap(), expected);
}

#[test]
fn nothing_is_left_of_an_unfinished_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    fs::write(&path, "older").unwrap();
    let mut writer = Writer::create(&path, Dtype::F32, 2).unwrap();
    writer.append_values(&[1.0f32, 2.0]).unwrap();
    drop(writer);
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, ["x.npy"]);
    assert_eq!(fs::read(&path).unwrap(), b"older");
}

#[test]
fn every_fault_leaves_the_old_file() {
    crate::whole_file::faults::check_every_fault(|path| {
        let mut writer = Writer::create(path, Dtype::F32, 2)?;
        writer.append_values(&vec![1.0f32; 200_000])?;
        writer.append_values(&vec![2.0f32; 200_000])?;
        writer.finish().map(drop)
    });
}

#[test]
fn the_writer_refuses_what_does_not_fit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let mut writer = Writer::create(&path, Dtype::F32, 2).unwrap();
    assert_eq!(
        writer.append(&[0; 12]).unwrap_err().to_string(),
        "12 bytes do not divide into rows of 8 bytes"
    );
    assert_eq!(
        writer.append_values(&[1i32, 2]).unwrap_err().to_string(),
        "int32 values cannot be written to an array of float32"
    );
    assert!(Writer::create(&path, Dtype::F32, 0).is_err());
    assert_eq!(
        Writer::create_1d(&path, Dtype::Bf16).unwrap_err().to_string(),
        "dtype must be a type of the .npy format, got bfloat16: use float32"
    );
}
