//! Random damage of bytes, and of the parts of a file of arrays and texts.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Random numbers (SplitMix64).
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, or 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// A place in `0..=n`, often near one of the ends.
    fn place(&mut self, n: usize) -> usize {
        match self.below(4) {
            0 => self.below(n.min(64) + 1),
            1 => n - self.below(n.min(64) + 1),
            _ => self.below(n + 1),
        }
    }

    fn range(&mut self, n: usize) -> std::ops::Range<usize> {
        let from = self.place(n);
        from..(from + 1 + self.below(40)).min(n)
    }
}

/// Numbers at the limits of types.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    3,
    255,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 53,
    1 << 62,
    i64::MAX as u64,
    u64::MAX,
];

/// Floating-point values at the limits.
const FIGURES: [f64; 16] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-45,
    1e-38,
    1e30,
    3.4e38,
    -3.4e38,
    1e-310,
    1e200,
    1.7e308,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
];

/// What may stand for a number in a text.
const TEXTS: [&str; 18] = [
    "0",
    "1",
    "-1",
    "7",
    "0.5",
    "99999",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "1e999",
    "null",
    "true",
    "\"x\"",
    "[]",
    "{}",
];

/// Replaces a run of digits.
fn replace_digits(draws: &mut Draws, data: &mut Vec<u8>) {
    let starts: Vec<usize> = (0..data.len())
        .filter(|&i| data[i].is_ascii_digit() && (i == 0 || !data[i - 1].is_ascii_digit()))
        .collect();
    if starts.is_empty() {
        return;
    }
    let from = *draws.of(&starts);
    let length = data[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    data.splice(from..from + length, draws.of(&TEXTS).bytes());
}

/// Bytes with one to four pieces of damage.
pub(crate) fn bytes(draws: &mut Draws, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = input.to_vec();
    for _ in 0..=draws.below(4) {
        let n = data.len();
        let range = draws.range(n);
        match draws.below(9) {
            0 if n > 0 => {
                let at = draws.place(n - 1);
                data[at] ^= 1 << draws.below(8);
            }
            1 if n > 0 => {
                let at = draws.place(n - 1);
                data[at] = draws.next() as u8;
            }
            2 => data.truncate(range.start),
            3 => {
                let number = draws.of(&NUMBERS).to_le_bytes();
                let width = *draws.of(&[1, 2, 4, 8]);
                for (place, byte) in data[range.start..].iter_mut().zip(&number[..width]) {
                    *place = *byte;
                }
            }
            4 => drop(data.drain(range)),
            5 => {
                let copy = data[range.clone()].to_vec();
                data.splice(range.start..range.start, copy);
            }
            6 => {
                let piece = draws.range(other.len());
                data.splice(range, other[piece].iter().copied());
            }
            7 => replace_digits(draws, &mut data),
            _ => data.extend((0..draws.below(20)).map(|_| 0)),
        }
    }
    data
}

/// The length of a type of values.
fn width(dtype: &str) -> usize {
    match dtype {
        "F64" | "I64" | "U64" => 8,
        "F32" | "I32" | "U32" => 4,
        "F16" | "BF16" | "I16" | "U16" => 2,
        _ => 1,
    }
}

const DTYPES: [&str; 13] =
    ["F64", "I64", "U64", "F32", "I32", "U32", "F16", "BF16", "I16", "U16", "I8", "U8", "BOOL"];

#[derive(Clone)]
struct Array {
    dtype: String,
    shape: Vec<u64>,
    bytes: Vec<u8>,
}

/// The parts of a safetensors file.
struct Parts {
    texts: BTreeMap<String, String>,
    arrays: BTreeMap<String, Array>,
}

impl Parts {
    /// The parts of a file that has not been damaged beyond reading.
    fn of(file: &[u8]) -> Option<Self> {
        let length = usize::try_from(u64::from_le_bytes(file.get(..8)?.try_into().ok()?)).ok()?;
        let data = file.get(8usize.checked_add(length)?..)?;
        let header: Map<String, Value> = serde_json::from_slice(&file[8..8 + length]).ok()?;
        let mut parts = Self { texts: BTreeMap::new(), arrays: BTreeMap::new() };
        for (name, entry) in header {
            if name == "__metadata__" {
                parts.texts = serde_json::from_value(entry).ok()?;
                continue;
            }
            let [from, to]: [usize; 2] = serde_json::from_value(entry["data_offsets"].clone()).ok()?;
            let shape = serde_json::from_value(entry["shape"].clone()).ok()?;
            let bytes = data.get(from..to)?.to_vec();
            parts.arrays.insert(name, Array { dtype: entry["dtype"].as_str()?.into(), shape, bytes });
        }
        Some(parts)
    }

    fn file(&self) -> Vec<u8> {
        let mut header = Map::from_iter([("__metadata__".into(), json!(self.texts))]);
        let mut data = Vec::new();
        for (name, Array { dtype, shape, bytes }) in &self.arrays {
            let from = data.len();
            data.extend(bytes);
            let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, data.len()] });
            header.insert(name.clone(), entry);
        }
        let header = Value::Object(header).to_string();
        [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &data].concat()
    }
}

impl Array {
    fn values(&self) -> u64 {
        self.shape.iter().fold(1, |n, &extent| n.saturating_mul(extent))
    }

    /// Replaces a value.
    fn replace(&mut self, draws: &mut Draws) {
        let size = width(&self.dtype);
        if self.bytes.len() < size {
            return;
        }
        let at = draws.place(self.bytes.len() / size - 1) * size;
        let place = &mut self.bytes[at..at + size];
        let figure = *draws.of(&FIGURES);
        match (draws.below(3), &*self.dtype) {
            (0, _) => place[draws.below(size)] ^= 1 << draws.below(8),
            (_, "F64") => place.copy_from_slice(&figure.to_le_bytes()),
            (_, "F32") => place.copy_from_slice(&(figure as f32).to_le_bytes()),
            _ => place.copy_from_slice(&draws.of(&NUMBERS).to_le_bytes()[..size]),
        }
    }

    /// Changes the shape, and mostly the number of values with it.
    fn reshape(&mut self, draws: &mut Draws) {
        match draws.below(5) {
            0 => self.shape.reverse(),
            1 => self.shape = vec![self.values()],
            2 => self.shape.push(1),
            _ => {
                let at = draws.below(self.shape.len());
                let Some(extent) = self.shape.get_mut(at) else { return };
                *extent = match draws.below(5) {
                    0 => extent.saturating_sub(1),
                    1 => extent.saturating_add(1),
                    2 => 0,
                    3 => *extent / 2,
                    _ => extent.saturating_mul(2),
                };
            }
        }
        let length = self.values().saturating_mul(width(&self.dtype) as u64);
        if length < 1 << 16 && draws.below(8) > 0 {
            self.bytes.resize(length as usize, 0);
        }
    }
}

/// Damages an array or a text.
fn part(draws: &mut Draws, parts: &mut Parts, other: Option<&Parts>) {
    let names: Vec<String> = parts.arrays.keys().cloned().collect();
    let texts: Vec<String> = parts.texts.keys().cloned().collect();
    if names.is_empty() || texts.is_empty() {
        return;
    }
    let (name, key) = (draws.of(&names), draws.of(&texts));
    let array = parts.arrays.get_mut(name).expect("one of the names");
    let text = parts.texts.get_mut(key).expect("one of the keys");
    match draws.below(12) {
        0..3 => array.replace(draws),
        3 => (0..=draws.below(30)).for_each(|_| array.replace(draws)),
        4 => array.reshape(draws),
        5 => {
            let same: Vec<_> = DTYPES.iter().filter(|new| width(new) == width(&array.dtype)).collect();
            array.dtype = (*draws.of(&same)).to_string();
        }
        6 => {
            let removed = parts.arrays.remove(name).expect("one of the names");
            if draws.below(2) == 0 {
                parts.arrays.insert(draws.of(&names).clone(), removed);
            }
        }
        7 => {
            let Some(found) = other.and_then(|other| other.arrays.get(name)) else { return };
            array.clone_from(found);
        }
        8..10 => {
            let mut bytes = std::mem::take(text).into_bytes();
            replace_digits(draws, &mut bytes);
            *text = String::from_utf8_lossy(&bytes).into_owned();
        }
        10 => {
            let Some(found) = other.and_then(|other| other.texts.get(key)) else { return };
            text.clone_from(found);
        }
        _ => {
            if draws.below(2) == 0 {
                parts.texts.remove(key);
            } else {
                *text = String::from_utf8_lossy(&bytes(draws, text.as_bytes(), b"null")).into_owned();
            }
        }
    }
}

/// A file of arrays and texts with damaged parts, or with damaged bytes.
pub(crate) fn parts(draws: &mut Draws, input: &[u8], other: &[u8]) -> Vec<u8> {
    let Some(mut parts) = Parts::of(input).filter(|_| draws.below(10) > 0) else {
        return bytes(draws, input, other);
    };
    let other = Parts::of(other);
    for _ in 0..=draws.below(3) {
        part(draws, &mut parts, other.as_ref());
    }
    parts.file()
}

/// An `.npy` file with damaged bytes; the length of its header is mostly right.
pub(crate) fn npy(draws: &mut Draws, input: &[u8], other: &[u8]) -> Vec<u8> {
    let mut data = bytes(draws, input, other);
    if let Some(end) = data.iter().position(|&byte| byte == b'\n')
        && (10..1 << 16).contains(&end)
        && draws.below(4) > 0
    {
        data[8..10].copy_from_slice(&((end - 9) as u16).to_le_bytes());
    }
    data
}

#[test]
fn parts_go_there_and_back() {
    let text = BTreeMap::from([("shoal.kind".to_owned(), "pair".to_owned())]);
    let array = Array { dtype: "F32".into(), shape: vec![1, 2], bytes: vec![7; 8] };
    let file = Parts { texts: text, arrays: BTreeMap::from([("x".to_owned(), array)]) }.file();
    assert_eq!(Parts::of(&file).unwrap().file(), file);
    assert!(Parts::of(&file[..file.len() - 1]).is_none());
}
