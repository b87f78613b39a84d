//! Reads the header of an `.npy` file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::MAGIC;
use crate::data::Dtype;
use crate::error::{Error, Result};

/// Longest header that is read. Headers of two-dimensional arrays of numbers take 128 bytes.
const LONGEST_HEADER: usize = 64 << 10;

/// Reads the header and the position of the first value.
pub(super) fn read(path: &Path) -> Result<(Header, u64)> {
    let refuse = |problem: String| Error::format(path, problem);
    let mut start = Vec::new();
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut read_to = |upto: usize, start: &mut Vec<u8>| {
        let more = (upto - start.len()) as u64;
        Read::by_ref(&mut file).take(more).read_to_end(start).map_err(|e| Error::io(path, e))?;
        if start.len() < upto { Err(refuse("ends within its header".into())) } else { Ok(()) }
    };
    let whole = read_to(12, &mut start);
    if !start.starts_with(MAGIC) {
        let found = start[..start.len().min(MAGIC.len())].escape_ascii();
        return Err(refuse(format!(
            "is not an .npy file: it begins with \"{found}\", not with \"\\x93NUMPY\""
        )));
    }
    whole?;
    let (before, length) = match start[6..8] {
        [1, 0] => (10, usize::from(u16::from_le_bytes([start[8], start[9]]))),
        [2 | 3, 0] => (12, u32::from_le_bytes([start[8], start[9], start[10], start[11]]) as usize),
        [major, minor] => {
            return Err(refuse(format!(
                "is .npy version {major}.{minor}; versions 1.0, 2.0 and 3.0 are read"
            )));
        }
        _ => unreachable!("two bytes"),
    };
    if length > LONGEST_HEADER {
        return Err(refuse(format!("claims a header of {length} bytes; at most {LONGEST_HEADER} are read")));
    }
    let end = before + length;
    read_to(end.max(12), &mut start)?;
    start.truncate(end);
    let header = Header::parse(&start[before..])
        .map_err(|problem| refuse(format!("has a damaged header: {problem}")))?;
    Ok((header, end as u64))
}

/// The entries of a header: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
#[derive(Debug, Default)]
pub(super) struct Header {
    pub(super) descr: String,
    pub(super) fortran: bool,
    pub(super) shape: Vec<u64>,
}

impl Header {
    /// Parses the dictionary, a literal in Python's syntax. A key that arrays do not have is an error.
    fn parse(text: &[u8]) -> Result<Self, String> {
        const TOO_LARGE: &str = "its shape is larger than any file";
        let text = std::str::from_utf8(text).map_err(|_| "it is not text")?;
        let mut rest = text.trim().strip_prefix('{').ok_or("it is not a dictionary")?.trim_start();
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        while !rest.starts_with('}') {
            let (key, after) = quoted(rest)?;
            rest = after.trim_start().strip_prefix(':').ok_or("a key without a value")?.trim_start();
            match key {
                "descr" if rest.starts_with('[') => {
                    let end = rest.find(']').ok_or("an unclosed list")?;
                    (descr, rest) = (Some(rest[..=end].to_owned()), &rest[end + 1..]);
                }
                "descr" => {
                    let (value, after) = quoted(rest)?;
                    (descr, rest) = (Some(value.to_owned()), after);
                }
                "fortran_order" => {
                    let word = if rest.starts_with("True") { "True" } else { "False" };
                    rest = rest.strip_prefix(word).ok_or("fortran_order is neither True nor False")?;
                    fortran = Some(word == "True");
                }
                "shape" => {
                    let (inside, after) = rest
                        .strip_prefix('(')
                        .and_then(|r| r.split_once(')'))
                        .ok_or("shape is not a tuple")?;
                    let lengths = inside.split(',').map(str::trim).filter(|n| !n.is_empty());
                    let lengths: Vec<u64> = lengths.map(length).collect::<Result<_, _>>()?;
                    // A length of 0 must not hide an overflow of the other lengths.
                    lengths.iter().try_fold(1u64, |all, &n| all.checked_mul(n.max(1))).ok_or(TOO_LARGE)?;
                    (shape, rest) = (Some(lengths), after);
                }
                _ => return Err(format!("an unknown key \"{}\"", key.escape_debug())),
            }
            rest = rest.trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
        }
        match (descr, fortran, shape) {
            (Some(descr), Some(fortran), Some(shape)) => Ok(Self { descr, fortran, shape }),
            _ => Err("descr, fortran_order or shape is missing".into()),
        }
    }
}

/// Splits text into the string between two quotes and the rest.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let quote = quote.ok_or_else(|| {
        let found: String = text.chars().take(1).collect();
        format!("unexpected \"{}\"", found.as_bytes().escape_ascii())
    })?;
    text[1..].split_once(quote).ok_or_else(|| "an open string".into())
}

/// Parses one length of a shape.
fn length(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err(format!("its shape has the negative length {text}"));
    }
    // Python 2 wrote long integers with an L.
    let digits = text.strip_suffix('L').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("its shape has \"{}\" instead of a length", text.escape_debug()));
    }
    digits.parse().map_err(|_| "its shape is larger than any file".into())
}

/// `(3, 4)`, as NumPy writes it.
pub(super) fn shape_text(shape: &[u64]) -> String {
    match shape {
        [n] => format!("({n},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The stored type of a description such as `<f4`: byte order, kind and number of bytes.
pub(super) fn dtype_of(descr: &str) -> Result<Dtype, String> {
    let allowed = "rows may hold bool, integers of 8 to 64 bits, float16, float32 or float64";
    if descr.starts_with('[') {
        return Err(format!("holds a structured dtype {}; {allowed}", descr.escape_debug()));
    }
    let (order, kind_and_size) = match descr.chars().next() {
        Some(order @ ('<' | '>' | '|' | '=')) => (order, &descr[1..]),
        _ => ('|', descr),
    };
    let dtype = match kind_and_size {
        "b1" => Some(Dtype::Bool),
        "u1" => Some(Dtype::U8),
        "u2" => Some(Dtype::U16),
        "u4" => Some(Dtype::U32),
        "u8" => Some(Dtype::U64),
        "i1" => Some(Dtype::I8),
        "i2" => Some(Dtype::I16),
        "i4" => Some(Dtype::I32),
        "i8" => Some(Dtype::I64),
        "f2" => Some(Dtype::F16),
        "f4" => Some(Dtype::F32),
        "f8" => Some(Dtype::F64),
        _ => None,
    };
    let Some(dtype) = dtype else {
        let kind = match kind_and_size.chars().next() {
            Some('c') => "complex numbers",
            Some('O') => "Python objects",
            Some('S' | 'U' | 'a') => "text",
            Some('M' | 'm') => "times",
            _ => "values of a type",
        };
        return Err(format!("holds {kind} ('{}') that cannot be clustered; {allowed}", descr.escape_debug()));
    };
    if order == '>' && dtype.size() > 1 {
        return Err(format!(
            "holds big-endian values ('{descr}'), only little-endian ones are read: convert them once with \
             array.astype(array.dtype.newbyteorder('<'))"
        ));
    }
    Ok(dtype)
}
