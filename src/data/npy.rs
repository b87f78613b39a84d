//! NumPy's `.npy` files: memory-mapped rows, and a writer whose files appear whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::Dtype;
use super::raw::{Element, Layout, Mapped, bytes_of, file_length};
use crate::error::{Error, InvalidParam, Result};
use crate::whole_file::{Temporary, folder_of, refuse_special, sync_folder, temporary_for};

const MAGIC: &[u8] = b"\x93NUMPY";
/// Headers of two-dimensional arrays of numbers take 128 bytes; what claims to be longer than this is not one
/// of them.
const LONGEST_HEADER: usize = 64 << 10;
/// Bytes before the data of a file written here: a multiple of 64, so that rows are aligned, with room for
/// any number of rows.
const WRITTEN_HEADER: usize = 128;

/// Opens the two-dimensional array in an `.npy` file (versions 1 to 3) as rows, without reading them.
///
/// Rows in Fortran order are read as well, more slowly than in C order. See [`Mapped`] for what may happen to
/// the file meanwhile.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened; [`Error::Format`], naming the file, when it is damaged, is
/// not two-dimensional, has no rows or columns, or holds anything but little-endian numbers.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::data::{DataSource, Dtype, npy};
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("rows.npy");
/// let mut writer = npy::Writer::create(&path, Dtype::F32, 2)?;
/// writer.append_values(&[1.0f32, 2.0, 3.0, 4.0])?;
/// writer.finish()?;
///
/// let rows = npy::open(&path)?;
/// assert_eq!((DataSource::<f32>::rows(&rows), DataSource::<f32>::dim(&rows)), (Some(2), 2));
/// # Ok(())
/// # }
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Mapped> {
    let path = path.as_ref();
    file_length(path)?;
    let refuse = |problem: String| Error::format(path, problem);
    let (header, data) = read_header(path)?;
    let dtype = dtype_of(&header.descr).map_err(refuse)?;
    let shape = shape_text(&header.shape);
    let [rows, cols] = header.shape[..] else {
        let advice = "rows need 2 dimensions";
        let advice = match header.shape[..] {
            [n] => format!("{advice}: reshape it to ({n}, 1) for rows of one value, to (1, {n}) for one row"),
            _ => format!("{advice}: reshape it to (rows, columns)"),
        };
        return Err(refuse(format!("holds an array of shape {shape}; {advice}")));
    };
    if rows == 0 || cols == 0 {
        return Err(refuse(format!("holds an array of shape {shape}: nothing to work on")));
    }
    let (Ok(rows), Ok(cols)) = (usize::try_from(rows), usize::try_from(cols)) else {
        return Err(refuse(format!(
            "holds an array of shape {shape}, larger than this machine's memory can be"
        )));
    };
    let layout = if header.fortran { Layout::column_major } else { Layout::row_major }(dtype, rows, cols);
    Mapped::open(path, layout, data)
}

/// The header, and the position of the first value.
fn read_header(path: &Path) -> Result<(Header, u64)> {
    let refuse = |problem: String| Error::format(path, problem);
    let mut start = Vec::new();
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut read = |upto: usize, start: &mut Vec<u8>| {
        let more = (upto - start.len()) as u64;
        Read::by_ref(&mut file).take(more).read_to_end(start).map_err(|e| Error::io(path, e))?;
        if start.len() < upto { Err(refuse("ends within its header".into())) } else { Ok(()) }
    };
    let whole = read(12, &mut start);
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
    read(end.max(12), &mut start)?;
    start.truncate(end);
    let header = Header::parse(&start[before..])
        .map_err(|problem| refuse(format!("has a damaged header: {problem}")))?;
    Ok((header, end as u64))
}

/// What the header says: `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
#[derive(Debug, Default)]
struct Header {
    descr: String,
    fortran: bool,
    shape: Vec<u64>,
}

impl Header {
    /// Reads the dictionary, which is written in Python's syntax. Only what an array of numbers has in it is understood.
    fn parse(text: &[u8]) -> Result<Self, String> {
        const TOO_LARGE: &str = "its shape is larger than any file";
        let text = std::str::from_utf8(text).map_err(|_| "it is not text")?;
        let mut rest = text.trim().strip_prefix('{').ok_or("it is no dictionary")?.trim_start();
        let (mut descr, mut fortran, mut shape) = (None, None, None);
        while !rest.starts_with('}') {
            let (key, after) = quoted(rest)?;
            rest = after.trim_start().strip_prefix(':').ok_or("a key without a value")?.trim_start();
            match key {
                "descr" if rest.starts_with('[') => {
                    let end = rest.find(']').ok_or("an open list")?;
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
                    let (inside, after) =
                        rest.strip_prefix('(').and_then(|r| r.split_once(')')).ok_or("shape is no tuple")?;
                    let lengths = inside.split(',').map(str::trim).filter(|n| !n.is_empty());
                    let lengths: Vec<u64> = lengths.map(length).collect::<Result<_, _>>()?;
                    // A product that holds even if one of them is 0.
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

/// The text between two quotes, and what follows.
fn quoted(text: &str) -> Result<(&str, &str), String> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'));
    let quote = quote.ok_or_else(|| {
        let found: String = text.chars().take(1).collect();
        format!("unexpected \"{}\"", found.as_bytes().escape_ascii())
    })?;
    text[1..].split_once(quote).ok_or_else(|| "an open string".into())
}

/// One length of a shape.
fn length(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err(format!("its shape has the negative length {text}"));
    }
    // Python 2 wrote long integers with an L.
    let digits = text.strip_suffix('L').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("its shape has \"{}\" where a length should be", text.escape_debug()));
    }
    digits.parse().map_err(|_| "its shape is larger than any file".into())
}

/// `(3, 4)`, as NumPy writes it.
fn shape_text(shape: &[u64]) -> String {
    match shape {
        [n] => format!("({n},)"),
        _ => format!("({})", shape.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The stored type of a description such as `<f4`: byte order, kind, bytes.
fn dtype_of(descr: &str) -> Result<Dtype, String> {
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

/// Writes an `.npy` file row by row, however many rows there will be.
///
/// The file appears under its name only in [`Writer::finish`], whole and on disk; a writer that is dropped
/// before leaves nothing behind.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::data::{Dtype, npy::Writer};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("labels.npy");
/// let mut labels = Writer::create_1d(&path, Dtype::I32)?;
/// labels.append_values(&[0i32, 1])?;
/// labels.append_values(&[0i32])?;
/// assert!(!path.exists());
/// assert_eq!(labels.finish()?, 3);
/// assert!(path.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: BufWriter<Temporary>,
    dtype: Dtype,
    descr: &'static str,
    /// Columns of a two-dimensional array.
    cols: Option<usize>,
    rows: u64,
}

impl Writer {
    /// A two-dimensional array of `cols` columns.
    ///
    /// # Errors
    /// [`Error::Io`] when the folder cannot be written to, [`Error::Empty`] for 0 columns,
    /// [`Error::InvalidParam`] for `bfloat16`, which the format does not have.
    ///
    /// ```
    /// use shoal::data::{Dtype, npy::Writer};
    /// assert!(Writer::create("no/such/folder/rows.npy", Dtype::F32, 3).is_err());
    /// ```
    pub fn create(path: impl AsRef<Path>, dtype: Dtype, cols: usize) -> Result<Self> {
        if cols == 0 {
            return Err(Error::Empty("rows need at least 1 column, got 0".into()));
        }
        Self::new(path.as_ref(), dtype, Some(cols))
    }

    /// A one-dimensional array.
    ///
    /// # Errors
    /// As [`Writer::create`].
    ///
    /// ```
    /// use shoal::data::{Dtype, npy::Writer};
    /// assert!(Writer::create_1d("labels.npy", Dtype::Bf16).is_err());
    /// ```
    pub fn create_1d(path: impl AsRef<Path>, dtype: Dtype) -> Result<Self> {
        Self::new(path.as_ref(), dtype, None)
    }

    fn new(path: &Path, dtype: Dtype, cols: Option<usize>) -> Result<Self> {
        let Some(descr) = dtype.npy_descr() else {
            return Err(InvalidParam::new("dtype", "a type of the .npy format", dtype)
                .with_remedy("use float32")
                .into());
        };
        let io = |e| Error::io(path, e);
        refuse_special(path).map_err(io)?;
        let file = temporary_for(path).map_err(io)?;
        let mut file = BufWriter::with_capacity(1 << 20, file);
        file.write_all(&[0; WRITTEN_HEADER]).map_err(io)?;
        Ok(Self { path: path.to_owned(), file, dtype, descr, cols, rows: 0 })
    }

    /// Appends rows as they are stored: little-endian values, row after row.
    ///
    /// # Errors
    /// [`Error::Shape`] when `bytes` is not a whole number of rows, [`Error::Io`] when the disk is full.
    ///
    /// ```
    /// # use shoal::data::{Dtype, npy::Writer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// let mut rows = Writer::create(&path, Dtype::U16, 2).unwrap();
    /// rows.append(&[1, 0, 2, 0]).unwrap();
    /// assert!(rows.append(&[1]).is_err());
    /// ```
    pub fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let row = self.cols.unwrap_or(1).saturating_mul(self.dtype.size());
        if !bytes.len().is_multiple_of(row) {
            return Err(Error::Shape(format!("{} bytes are no rows of {row} bytes", bytes.len())));
        }
        self.file.write_all(bytes).map_err(|e| Error::io(&self.path, e))?;
        self.rows += (bytes.len() / row) as u64;
        Ok(())
    }

    /// Appends rows of values, which must be of the array's type.
    ///
    /// # Errors
    /// As [`Writer::append`], and [`Error::Shape`] for values of another type.
    ///
    /// ```
    /// # use shoal::data::{Dtype, npy::Writer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// let mut rows = Writer::create(&path, Dtype::U16, 2).unwrap();
    /// rows.append_values(&[1u16, 2]).unwrap();
    /// assert!(rows.append_values(&[1.0f32, 2.0]).is_err());
    /// ```
    pub fn append_values<E: Element>(&mut self, values: &[E]) -> Result<()> {
        if E::DTYPE != self.dtype {
            return Err(Error::Shape(format!(
                "{} values do not go into an array of {}",
                E::DTYPE,
                self.dtype
            )));
        }
        self.append(bytes_of(values))
    }

    /// Number of rows so far.
    ///
    /// ```
    /// # use shoal::data::{Dtype, npy::Writer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// assert_eq!(Writer::create(&path, Dtype::U16, 2).unwrap().rows(), 0);
    /// ```
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Gives the file its header and its name; returns the number of rows. An older file of that name is
    /// replaced.
    ///
    /// # Errors
    /// [`Error::Io`]; nothing is left behind then, and an older file is still there.
    ///
    /// ```
    /// # use shoal::data::{Dtype, npy::Writer};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("rows.npy");
    /// let rows = Writer::create(&path, Dtype::U16, 2).unwrap();
    /// assert_eq!(rows.finish().unwrap(), 0);
    /// assert_eq!(std::fs::read(&path).unwrap().len(), 128);
    /// ```
    pub fn finish(self) -> Result<u64> {
        let (header, rows) = (self.header(), self.rows);
        let Self { path, file, .. } = self;
        let store = || -> io::Result<()> {
            let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(&header)?;
            file.as_file().sync_all()?;
            file.persist(&path)?;
            sync_folder(folder_of(&path))
        };
        store().map_err(|e| Error::io(&path, e))?;
        Ok(rows)
    }

    fn header(&self) -> Vec<u8> {
        let shape = match self.cols {
            Some(cols) => format!("({}, {cols})", self.rows),
            None => format!("({},)", self.rows),
        };
        let mut header = MAGIC.to_vec();
        header.extend([1, 0]);
        header.extend(((WRITTEN_HEADER - 10) as u16).to_le_bytes());
        header.extend(
            format!("{{'descr': '{}', 'fortran_order': False, 'shape': {shape}, }}", self.descr).bytes(),
        );
        header.resize(WRITTEN_HEADER - 1, b' ');
        header.push(b'\n');
        header
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::DataSource;
    use super::*;

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
        assert_eq!(text("'<f4'", "(0, 4)"), "holds an array of shape (0, 4): nothing to work on");
        assert_eq!(text("'<f4'", "(4, 0)"), "holds an array of shape (4, 0): nothing to work on");
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
        for shape in
            ["(4294967296, 4294967296, 4)", "(0, 18446744073709551615, 9)", "(99999999999999999999, 1)"]
        {
            let text = refusal(&file(1, &dict("'<f4'", "False", shape), &[0; 16]));
            assert_eq!(text, "has a damaged header: its shape is larger than any file");
        }
        let text = refusal(&file(1, &dict("'<f8'", "False", "(4611686018427387904, 1)"), &[0; 16]));
        assert_eq!(text, "4611686018427387904 rows of 1 float64 are larger than any file");
        let text = refusal(&file(1, &dict("'<f4'", "False", "(-2, 4)"), &[0; 16]));
        assert!(text.contains("negative"), "{text}");
        let deep = "(".repeat(30_000);
        assert_eq!(refusal(&file(2, &deep, &[])), "has a damaged header: it is no dictionary");
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
    fn the_writer_refuses_what_does_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let mut writer = Writer::create(&path, Dtype::F32, 2).unwrap();
        assert_eq!(writer.append(&[0; 12]).unwrap_err().to_string(), "12 bytes are no rows of 8 bytes");
        assert_eq!(
            writer.append_values(&[1i32, 2]).unwrap_err().to_string(),
            "int32 values do not go into an array of float32"
        );
        assert!(Writer::create(&path, Dtype::F32, 0).is_err());
        assert_eq!(
            Writer::create_1d(&path, Dtype::Bf16).unwrap_err().to_string(),
            "dtype must be a type of the .npy format, got bfloat16: use float32"
        );
    }
}
