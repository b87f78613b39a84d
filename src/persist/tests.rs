use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use tempfile::TempDir;

use super::{Array, Contents, read, write};
use crate::data::Dtype;
use crate::error::Error;

/// A temporary folder and a file path in it.
fn place() -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    (folder, path)
}

fn small() -> Contents {
    let mut contents = Contents::new("pair");
    contents.arrays.insert("wide".into(), Array::new(&[2, 1], &[1.5f64, -2.0]).unwrap());
    contents.arrays.insert("bytes".into(), Array::new(&[3], &[1u8, 2, 3]).unwrap());
    contents.arrays.insert("narrow".into(), Array::new(&[1, 2], &[0.5f32, f32::NAN]).unwrap());
    contents.arrays.insert("none".into(), Array::new::<i64>(&[0, 4], &[]).unwrap());
    contents.arrays.insert("one".into(), Array::new(&[], &[7i32]).unwrap());
    contents.meta.insert("params".into(), r#"{"n":2,"name":"é\n\""}"#.into());
    contents
}

/// The contents with the text that reading adds.
fn read_back(mut contents: Contents) -> Contents {
    contents.meta.insert("version".into(), env!("CARGO_PKG_VERSION").into());
    contents
}

/// The bytes of a file with this header and data.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend(header.bytes());
    bytes.extend(data);
    bytes
}

/// The error text for a file with these bytes.
fn refusal(bytes: &[u8]) -> String {
    let (_folder, path) = place();
    fs::write(&path, bytes).unwrap();
    problem(&path)
}

fn problem(path: &Path) -> String {
    let refused = read(path).unwrap_err();
    assert!(matches!(refused, Error::Format { .. }), "{refused:?}");
    refused.to_string().split_once("x.safetensors: ").expect("the file is named").1.to_owned()
}

/// The texts of a valid file, as the start of a header.
const TEXTS: &str = r#"{"__metadata__":{"shoal.format":"1","shoal.kind":"pair","shoal.version":"0.1.0"}"#;

fn with_entry(entry: &str, data: &[u8]) -> Vec<u8> {
    file(&format!("{TEXTS},{entry}}}"), data)
}

#[test]
fn what_is_written_is_read() {
    let (_folder, path) = place();
    write(&path, &small()).unwrap();
    assert_eq!(read(&path).unwrap(), read_back(small()));
    // Writing the contents again gives identical bytes.
    let first = fs::read(&path).unwrap();
    write(&path, &read(&path).unwrap()).unwrap();
    assert_eq!(fs::read(&path).unwrap(), first);
}

#[test]
fn the_file_is_one_that_others_read() {
    let (_folder, path) = place();
    write(&path, &small()).unwrap();
    let bytes = fs::read(&path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let wide = tensors.tensor("wide").unwrap();
    assert_eq!((wide.dtype(), wide.shape()), (safetensors::Dtype::F64, &[2, 1][..]));
    assert_eq!(wide.data(), [1.5f64, -2.0].map(f64::to_le_bytes).concat());
    // Every array is aligned to its value size.
    for (name, tensor) in tensors.iter() {
        let at = tensor.data().as_ptr() as usize - bytes.as_ptr() as usize;
        assert!(
            tensor.data().is_empty() || at.is_multiple_of(tensor.dtype().bitsize() / 8),
            "{name} at {at}"
        );
    }
}

#[test]
fn every_type_goes_there_and_back() {
    let (_folder, path) = place();
    let mut contents = Contents::new("types");
    for dtype in Dtype::ALL {
        let bytes = (0..6 * dtype.size() as u8).map(|i| i % 2).collect();
        contents.arrays.insert(dtype.to_string(), Array::from_bytes(dtype, &[2, 3], bytes).unwrap());
    }
    write(&path, &contents).unwrap();
    assert_eq!(read(&path).unwrap().arrays, contents.arrays);
}

#[test]
fn every_truncation_is_refused() {
    let (_folder, path) = place();
    write(&path, &small()).unwrap();
    let whole = fs::read(&path).unwrap();
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        problem(&path);
    }
    let longer = [&whole[..], &[0]].concat();
    assert!(refusal(&longer).contains("its arrays take 31 bytes, but 32 follow the header"));
}

#[test]
fn hostile_files_are_refused() {
    assert_eq!(refusal(b""), "is not a safetensors file: it holds 0 bytes");
    assert!(refusal(b"\x93NUMPY\x01\x00v\x00{'descr'").starts_with("is not a safetensors file, or damaged"));
    assert!(refusal(&u64::MAX.to_le_bytes()).contains("at most 100000000 bytes, got 18446744073709551615"));
    assert_eq!(
        refusal(&[0, 0, 0, 2, 0, 0, 0, 0, b'{', b'}']),
        "is truncated, or not a safetensors file: its header should have 33554432 bytes, but 2 follow"
    );
    assert!(refusal(&file("", b"")).starts_with("has a damaged header"));
    assert!(refusal(&file("{}", b"")).contains("not one of shoal"));
    assert!(refusal(&file("\u{7f}{", b"")).starts_with("has a damaged header"));
    assert!(refusal(&file(&"[".repeat(100_000), b"")).starts_with("has a damaged header"));
    let deep = format!("{TEXTS},\"x\":{}", "{\"a\":".repeat(100_000));
    assert!(refusal(&file(&deep, b"")).starts_with("has a damaged header"));
    let entries = [
        // Overlapping, with a gap, out of bounds, reversed.
        r#""a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}"#,
        r#""a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}"#,
        r#""a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}"#,
        r#""a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}"#,
        r#""a":{"dtype":"U8","shape":[999999999999],"data_offsets":[0,999999999999]}"#,
        // Shapes that do not match the bytes, are negative, or overflow.
        r#""a":{"dtype":"F32","shape":[8],"data_offsets":[0,8]}"#,
        r#""a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}"#,
        r#""a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8]}"#,
        r#""a":{"dtype":"U8","shape":[18446744073709551615,2],"data_offsets":[0,18446744073709551615]}"#,
        r#""a":{"dtype":"F64","shape":[2305843009213693953],"data_offsets":[0,8]}"#,
        // Unknown or unsupported types.
        r#""a":{"dtype":"F128","shape":[1],"data_offsets":[0,8]}"#,
        r#""a":{"dtype":"C64","shape":[1],"data_offsets":[0,8]}"#,
        r#""a":{"dtype":"F4","shape":[16],"data_offsets":[0,8]}"#,
        // Not an entry, and a duplicate name.
        r#""a":[]"#,
        r#""a":{"dtype":"U8","shape":[8]}"#,
        r#""a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}"#,
        "\"__metadata__\":{}",
        "\"a\":{",
    ];
    for entry in entries {
        refusal(&with_entry(entry, &[0; 8]));
    }
    assert_eq!(
        refusal(&with_entry(entries[4], &[0; 8])),
        "is truncated: its arrays take 999999999999 bytes, but 8 follow the header"
    );
    assert_eq!(refusal(&with_entry(entries[11], &[0; 8])), "array \"a\" has the unsupported type C64");
}

#[test]
fn foreign_and_later_files_are_told_apart() {
    let header = |texts: &str| refusal(&file(&format!("{{\"__metadata__\":{{{texts}}}}}"), b""));
    assert!(header("\"format\":\"pt\"").contains("not one of shoal"));
    assert_eq!(
        header(r#""shoal.format":"2","shoal.version":"9.9.9""#),
        "is of format 2, written by shoal 9.9.9; this version reads formats up to 1: update shoal"
    );
    assert_eq!(header(r#""shoal.format":"0""#), "is damaged: its \"shoal.format\" is \"0\"");
    assert_eq!(header(r#""shoal.format":"one""#), "is damaged: its \"shoal.format\" is \"one\"");
    assert_eq!(header(r#""shoal.format":"1""#), "is damaged: it has no \"shoal.kind\"");
    assert!(header(r#""shoal.format":1"#).starts_with("has a damaged header"));
}

#[test]
fn what_is_no_file_is_an_error_of_the_system() {
    let (folder, path) = place();
    assert!(matches!(read(&path).unwrap_err(), Error::Io { .. }));
    assert!(read(folder.path()).unwrap_err().to_string().ends_with("is a directory, not a file"));
    assert!(matches!(write(folder.path().join("no/such/folder/x"), &small()).unwrap_err(), Error::Io { .. }));
    assert!(matches!(write(folder.path(), &small()).unwrap_err(), Error::Io { .. }));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn names_that_files_need_are_refused() {
    let (folder, path) = place();
    for name in ["format", "kind"] {
        let mut contents = small();
        contents.meta.insert(name.into(), "x".into());
        assert!(matches!(write(&path, &contents).unwrap_err(), Error::InvalidParam(_)));
    }
    let mut contents = small();
    contents.arrays.insert("__metadata__".into(), Array::new(&[1], &[1u8]).unwrap());
    assert!(matches!(write(&path, &contents).unwrap_err(), Error::InvalidParam(_)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_older_file_is_replaced_and_nothing_else_is_left() {
    let (folder, path) = place();
    fs::write(&path, "older").unwrap();
    let older = fs::File::open(&path).unwrap();
    write(&path, &small()).unwrap();
    let names: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, ["x.safetensors"]);
    // The older file was not modified: a process that has it open still reads the old bytes.
    assert_eq!(std::io::read_to_string(older).unwrap(), "older");
}

/// Environment variable that turns a run of this test into the process to be killed.
#[cfg(unix)]
const VICTIM: &str = "SHOAL_TEST_PERSIST_VICTIM";

/// Kills a process that writes one file repeatedly, at many moments. The file must be complete every time.
#[test]
#[cfg(unix)]
fn a_kill_leaves_a_whole_file() {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    let version = |i: f64| {
        let mut contents = Contents::new("pair");
        contents.arrays.insert("values".into(), Array::new(&[100_000], &vec![i; 100_000]).unwrap());
        contents
    };
    if let Some(path) = std::env::var_os(VICTIM) {
        for i in 0..=u32::MAX {
            write(&path, &version(f64::from(i))).unwrap();
        }
    }
    let (_folder, path) = place();
    for moment in 0..8u64 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "persist::tests::a_kill_leaves_a_whole_file"])
            .env(VICTIM, &path)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        while !path.exists() && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_micros(3_100 * moment));
        victim.kill().unwrap();
        victim.wait().unwrap();
        let values = read(&path).unwrap().arrays["values"].values::<f64>().unwrap();
        assert!(values.len() == 100_000 && values.iter().all(|&v| v == values[0]));
    }
}

#[test]
fn every_fault_leaves_the_old_file() {
    let mut contents = small();
    contents.arrays.insert("long".into(), Array::new(&[200_000], &vec![0.5f64; 200_000]).unwrap());
    crate::whole_file::faults::check_every_fault(|path| write(path, &contents));
}

proptest! {
    #[test]
    fn flipped_bytes_never_panic(flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let (_folder, path) = place();
        write(&path, &small()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        fs::write(&path, &bytes).unwrap();
        match read(&path) {
            Ok(contents) => prop_assert!(contents.arrays.values().map(|a| a.bytes().len()).sum::<usize>() < bytes.len()),
            Err(e) => prop_assert!(matches!(e, Error::Format { .. }), "{:?}", e),
        }
    }

    #[test]
    fn any_contents_go_there_and_back(
        arrays in prop::collection::btree_map("[ -~]{1,9}", (0usize..13, prop::collection::vec(0usize..4, 0..4)), 0..5),
        meta in prop::collection::btree_map("[a-e]{1,4}", ".{0,20}", 0..4),
    ) {
        let arrays: BTreeMap<_, _> = arrays
            .into_iter()
            .map(|(name, (which, shape))| {
                let dtype = Dtype::ALL[which];
                let length = shape.iter().product::<usize>() * dtype.size();
                (name, Array::from_bytes(dtype, &shape, vec![1; length]).unwrap())
            })
            .collect();
        let contents = Contents { kind: "any".into(), arrays, meta };
        let (_folder, path) = place();
        write(&path, &contents).unwrap();
        prop_assert_eq!(read(&path).unwrap(), read_back(contents));
    }
}

#[test]
fn arrays_lie_aligned_behind_a_padded_header() {
    let (_folder, path) = place();
    for length in 0..9 {
        let mut contents = small();
        contents.meta.insert("text".into(), "x".repeat(length));
        write(&path, &contents).unwrap();
        let bytes = fs::read(&path).unwrap();
        let header = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        assert_eq!(header % 8, 0);
        let header: serde_json::Value = serde_json::from_slice(&bytes[8..][..header]).unwrap();
        for (name, array) in &contents.arrays {
            let first = header[name]["data_offsets"][0].as_u64().unwrap();
            assert!(first.is_multiple_of(array.dtype().size() as u64), "{name}");
        }
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_told() {
    let bytes = super::to_bytes(&small()).unwrap();
    let opened = super::file::Opened::of(Path::new("x"), &bytes[..bytes.len() - 1], bytes.len() as u64);
    let refused = opened.unwrap().arrays().unwrap_err().to_string();
    assert!(refused.contains("was truncated during reading"), "{refused}");
}

#[cfg(unix)]
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets of this kind")]
fn a_socket_is_not_replaced() {
    let (_folder, path) = place();
    let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(write(&path, &small()).unwrap_err().to_string().contains("no file can replace"));
    assert!(!fs::metadata(&path).unwrap().is_file());
}

#[test]
fn an_array_has_as_many_values_as_its_shape_says() {
    for values in [&[1u16, 2, 3][..], &[1, 2, 3, 4, 5]] {
        assert!(matches!(Array::new(&[2, 2], values), Err(Error::Shape(_))));
    }
    assert!(matches!(Array::from_bytes(Dtype::U16, &[1], vec![1]), Err(Error::Shape(_))));
    assert!(Array::from_bytes(Dtype::U16, &[usize::MAX, 2], Vec::new()).is_err());
    let array = Array::new(&[2, 2], &[1u16, 2, 3, 4]).unwrap();
    assert_eq!((array.values::<u16>(), array.values::<i16>()), (Some(vec![1, 2, 3, 4]), None));
}

#[test]
fn contents_are_of_one_kind_and_shape() {
    let contents = small();
    assert!(contents.must_be("pair").is_ok());
    assert!(contents.must_be("trio").unwrap_err().contains("holds a \"pair\", not a \"trio\""));
    assert!(contents.values::<f64>("wide", &[2, 1]).is_ok());
    for shape in [&[2][..], &[1, 2], &[3, 1]] {
        assert!(contents.values::<f64>("wide", shape).unwrap_err().contains("must have shape"));
    }
}

#[test]
fn a_part_may_have_only_arrays_or_only_texts() {
    let (mut arrays, mut texts) = (Contents::new("pair"), Contents::new("pair"));
    arrays.arrays.insert("one".into(), Array::new(&[1], &[7i32]).unwrap());
    texts.meta.insert("state".into(), "{}".into());
    let mut whole = Contents::new("pair");
    whole.put("a", arrays.clone());
    whole.put("t", texts.clone());
    assert_eq!((whole.part("a"), whole.part("t"), whole.part("s")), (Some(arrays), Some(texts), None));
}
