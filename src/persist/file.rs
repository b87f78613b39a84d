//! Reads and writes safetensors files: validates every claim on reading, replaces files atomically on
//! writing.
//!
//! Layout: the length of the header (8 bytes), the header (JSON: type, shape and offsets of every array, and
//! texts), then the arrays.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype as Stored, Metadata};
use serde_json::{Map, Value, json};

use super::array::Array;
use crate::data::Dtype;
use crate::error::{Error, Result};
use crate::whole_file::{refuse_special, temporary_for};

/// Longest header that the format allows, in bytes.
const LONGEST_HEADER: u64 = 100_000_000;
/// The header key of the texts.
const TEXTS: &str = "__metadata__";

/// Every supported type with its name in files.
const DTYPES: [(Dtype, Stored, &str); 13] = [
    (Dtype::Bool, Stored::BOOL, "BOOL"),
    (Dtype::U8, Stored::U8, "U8"),
    (Dtype::I8, Stored::I8, "I8"),
    (Dtype::I16, Stored::I16, "I16"),
    (Dtype::U16, Stored::U16, "U16"),
    (Dtype::F16, Stored::F16, "F16"),
    (Dtype::Bf16, Stored::BF16, "BF16"),
    (Dtype::F32, Stored::F32, "F32"),
    (Dtype::I32, Stored::I32, "I32"),
    (Dtype::U32, Stored::U32, "U32"),
    (Dtype::I64, Stored::I64, "I64"),
    (Dtype::U64, Stored::U64, "U64"),
    (Dtype::F64, Stored::F64, "F64"),
];

/// Where an array is in a file.
#[cfg(feature = "python")]
#[derive(Debug)]
pub(crate) struct ArrayLayout {
    pub(crate) name: String,
    /// `None` for a type that is not supported.
    pub(crate) dtype: Option<Dtype>,
    pub(crate) shape: Vec<usize>,
    /// Position of the first byte.
    pub(crate) first: u64,
}

/// An open file, or bytes in memory, whose header was checked against the length. The arrays are not read yet.
#[derive(Debug)]
pub(super) struct Opened<R> {
    path: PathBuf,
    input: R,
    header: Metadata,
}

/// Where the arrays of a file are.
///
/// # Errors
/// [`Error::Io`]; [`Error::Format`] for a damaged header.
#[cfg(feature = "python")]
pub(crate) fn array_layouts(path: &Path) -> Result<Vec<ArrayLayout>> {
    Opened::new(path)?.layouts()
}

impl Opened<File> {
    pub(super) fn new(path: &Path) -> Result<Self> {
        let refuse = |problem: String| Error::format(path, problem);
        let io = |e| Error::io(path, e);
        // Check before opening: opening a named pipe would block until a writer appears.
        let found = fs::metadata(path).map_err(io)?;
        if found.is_dir() {
            return Err(io(io::Error::new(io::ErrorKind::IsADirectory, "is a directory, not a file")));
        }
        if !found.is_file() {
            return Err(refuse("is not a regular file".into()));
        }
        let file = File::open(path).map_err(io)?;
        let length = file.metadata().map_err(io)?.len();
        Self::of(path, file, length)
    }

    /// Where every array is, in file order.
    #[cfg(feature = "python")]
    pub(super) fn layouts(&self) -> Result<Vec<ArrayLayout>> {
        let refuse = |problem: String| Error::format(&self.path, problem);
        // The arrays are the end of the file.
        let length = self.input.metadata().map_err(|e| Error::io(&self.path, e))?.len();
        let Some(begin) = length.checked_sub(self.header.data_len() as u64) else {
            return Err(refuse("was truncated during reading".into()));
        };
        let layout = |name: String| {
            let info = self.header.info(&name).ok_or_else(|| refuse(format!("lacks the array {name:?}")))?;
            let dtype = DTYPES.iter().find(|(_, stored, _)| *stored == info.dtype).map(|&(dtype, ..)| dtype);
            let first = begin + info.data_offsets.0 as u64;
            Ok(ArrayLayout { name, dtype, shape: info.shape.clone(), first })
        };
        self.header.offset_keys().into_iter().map(layout).collect()
    }
}

impl<R: Read> Opened<R> {
    /// Reads the header of an input of `length` bytes, which errors call `path`.
    pub(super) fn of(path: &Path, mut input: R, length: u64) -> Result<Self> {
        let refuse = |problem: String| Error::format(path, problem);
        let io = |e| Error::io(path, e);
        if length < 8 {
            return Err(refuse(format!("is not a safetensors file: it holds {length} bytes")));
        }
        let mut first = [0; 8];
        input.read_exact(&mut first).map_err(io)?;
        let claimed = u64::from_le_bytes(first);
        if claimed > LONGEST_HEADER {
            return Err(refuse(format!(
                "is not a safetensors file, or damaged: its header must have at most {LONGEST_HEADER} bytes, got {claimed}"
            )));
        }
        if claimed > length - 8 {
            return Err(refuse(format!(
                "is truncated, or not a safetensors file: its header should have {claimed} bytes, but {} follow",
                length - 8
            )));
        }
        let mut text = vec![0; claimed as usize];
        input.read_exact(&mut text).map_err(io)?;
        let header: Metadata =
            serde_json::from_slice(&text).map_err(|e| refuse(format!("has a damaged header: {e}")))?;
        let (claimed, there) = (header.data_len() as u64, length - 8 - claimed);
        if claimed != there {
            let what = if claimed > there { "is truncated" } else { "is damaged" };
            return Err(refuse(format!(
                "{what}: its arrays take {claimed} bytes, but {there} follow the header"
            )));
        }
        Ok(Self { path: path.to_owned(), input, header })
    }

    /// The texts of the header.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.header.metadata().iter().flatten().map(|(name, text)| (name.as_str(), text.as_str()))
    }

    pub(super) fn arrays(mut self) -> Result<BTreeMap<String, Array>> {
        let refuse = |problem: String| Error::format(&self.path, problem);
        let mut arrays = BTreeMap::new();
        // In file order, so that the reads are sequential.
        for name in self.header.offset_keys() {
            let info = self.header.info(&name).ok_or_else(|| refuse(format!("lacks the array {name:?}")))?;
            let Some(&(dtype, ..)) = DTYPES.iter().find(|(_, stored, _)| *stored == info.dtype) else {
                return Err(refuse(format!("array {name:?} has the unsupported type {}", info.dtype)));
            };
            let length = info.data_offsets.1 - info.data_offsets.0;
            let mut bytes = Vec::new();
            bytes.try_reserve_exact(length).map_err(|_| {
                refuse(format!("array {name:?} does not fit into memory: it takes {length} bytes"))
            })?;
            let read = (&mut self.input).take(length as u64).read_to_end(&mut bytes);
            if read.map_err(|e| Error::io(&self.path, e))? != length {
                return Err(refuse("was truncated during reading".into()));
            }
            let array = Array::from_bytes(dtype, &info.shape, bytes).map_err(|e| refuse(e.to_string()))?;
            arrays.insert(name, array);
        }
        Ok(arrays)
    }
}

/// Arrays and texts in the order of a file.
struct LaidOut<'a> {
    header: Vec<u8>,
    order: Vec<&'a Array>,
}

impl LaidOut<'_> {
    fn put(&self, out: &mut impl Write) -> io::Result<()> {
        out.write_all(&(self.header.len() as u64).to_le_bytes())?;
        out.write_all(&self.header)?;
        self.order.iter().try_for_each(|array| out.write_all(array.bytes()))
    }
}

fn laid_out<'a>(
    arrays: &'a BTreeMap<String, Array>,
    texts: &BTreeMap<String, String>,
) -> Result<LaidOut<'a>> {
    if arrays.contains_key(TEXTS) {
        return Err(Error::param("name of an array", format!("other than {TEXTS:?}"), format!("{TEXTS:?}")));
    }
    // Widest values first, so that all arrays are aligned in a mapped file. The order depends only on the
    // contents.
    let mut order: Vec<(&String, &Array)> = arrays.iter().collect();
    order.sort_by_key(|(_, array)| std::cmp::Reverse(array.dtype().size()));
    let mut header = Map::new();
    header.insert(TEXTS.into(), json!(texts));
    let mut end = 0;
    for (name, array) in &order {
        let start = end;
        end += array.bytes().len();
        let entry =
            json!({ "dtype": name_of(array.dtype()), "shape": array.shape(), "data_offsets": [start, end] });
        header.insert((*name).clone(), entry);
    }
    let mut header = Value::Object(header).to_string().into_bytes();
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() as u64 > LONGEST_HEADER {
        return Err(Error::param(
            "names and texts of a file",
            format!("at most {LONGEST_HEADER} bytes"),
            format!("{} bytes", header.len()),
        ));
    }
    Ok(LaidOut { header, order: order.into_iter().map(|(_, array)| array).collect() })
}

/// The bytes of a file with these arrays and texts.
pub(super) fn bytes_of(
    arrays: &BTreeMap<String, Array>,
    texts: &BTreeMap<String, String>,
) -> Result<Vec<u8>> {
    let laid_out = laid_out(arrays, texts)?;
    let mut bytes = Vec::new();
    laid_out.put(&mut bytes).map_err(|e| Error::io("bytes in memory", e))?;
    Ok(bytes)
}

/// Writes arrays and texts to `path`. An existing file is replaced atomically.
pub(super) fn write(
    path: &Path,
    arrays: &BTreeMap<String, Array>,
    texts: &BTreeMap<String, String>,
) -> Result<()> {
    let laid_out = laid_out(arrays, texts)?;
    let store = || -> io::Result<()> {
        refuse_special(path)?;
        let mut file = BufWriter::with_capacity(1 << 20, temporary_for(path)?);
        laid_out.put(&mut file)?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.finish(path)
    };
    store().map_err(|e| Error::io(path, e))
}

fn name_of(dtype: Dtype) -> &'static str {
    DTYPES.iter().find(|(known, ..)| *known == dtype).map_or("", |(.., name)| name)
}
