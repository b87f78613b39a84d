//! The `.fbin`, `.u8bin`, `.i8bin` and `.ibin` files of the billion-scale search benchmarks: the numbers of
//! rows and columns, each a `u32`, followed by the rows without gaps.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::Dtype;
use super::raw::{Layout, Mapped, file_length, suffix_of};
use crate::error::{Error, Result};

/// Bytes before the first row.
const HEADER: u64 = 8;

/// The type of the values by the extension of the file name.
fn dtype_of(path: &Path) -> Result<Dtype> {
    match &*suffix_of(path) {
        "fbin" => Ok(Dtype::F32),
        "u8bin" => Ok(Dtype::U8),
        "i8bin" => Ok(Dtype::I8),
        "ibin" => Ok(Dtype::I32),
        _ => Err(Error::format(
            path,
            "has none of the names .fbin, .u8bin, .i8bin and .ibin, which say what it holds",
        )),
    }
}

/// Opens an `.fbin` (`f32`), `.u8bin`, `.i8bin` or `.ibin` (`i32`) file as rows, without reading them.
///
/// See [`Mapped`] for files that change while they are open.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened; [`Error::Format`], which names the file, when it is damaged
/// or has another extension.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::data::{DataSource, bin};
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("base.u8bin");
/// std::fs::write(&path, [2, 0, 0, 0, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6]).unwrap();
/// let rows = bin::open(&path)?;
/// let mut last = Vec::<f32>::new();
/// rows.gather(&[1], &mut last)?;
/// assert_eq!(last, [4.0, 5.0, 6.0]);
/// # Ok(())
/// # }
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Mapped> {
    let (layout, offset) = layout_of(path.as_ref())?;
    Mapped::open(path, layout, offset)
}

/// As [`open`], but the file may have no rows.
pub(crate) fn open_shard(path: impl AsRef<Path>) -> Result<Mapped> {
    let (layout, offset) = layout_of(path.as_ref())?;
    Mapped::open_shard(path, layout, offset)
}

/// Reads the header: the positions of the values, and that of the first one.
fn layout_of(path: &Path) -> Result<(Layout, u64)> {
    let dtype = dtype_of(path)?;
    let found = file_length(path)?;
    let mut header = [0; HEADER as usize];
    if found < HEADER {
        return Err(Error::format(path, format!("ends within its header of 8 bytes ({found} bytes)")));
    }
    File::open(path).and_then(|mut file| file.read_exact(&mut header)).map_err(|e| Error::io(path, e))?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (rows, cols) = (number(0), number(4));
    let expected = u128::from(rows) * u128::from(cols) * dtype.size() as u128 + u128::from(HEADER);
    if rows > 0 && cols > 0 && u128::from(found) > expected {
        return Err(Error::format(
            path,
            format!(
                "{rows} rows of {cols} {dtype} take {expected} bytes, found {found}: what follows is no row of it"
            ),
        ));
    }
    Ok((Layout::row_major(dtype, rows as usize, cols as usize), HEADER))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::super::DataSource;
    use super::*;

    fn file(rows: u32, cols: u32, data: &[u8]) -> Vec<u8> {
        [&rows.to_le_bytes()[..], &cols.to_le_bytes(), data].concat()
    }

    fn opened(name: &str, bytes: &[u8]) -> Result<Mapped> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        open(path)
    }

    fn values(source: &Mapped) -> Vec<f64> {
        let all: Vec<u64> = (0..DataSource::<f64>::rows(source).unwrap()).collect();
        let mut out = Vec::new();
        source.gather(&all, &mut out).unwrap();
        out
    }

    #[test]
    fn the_four_types_are_read() {
        let data: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        assert_eq!(values(&opened("x.fbin", &file(1, 2, &data)).unwrap()), [1.5, -2.0]);
        assert_eq!(values(&opened("x.u8bin", &file(2, 1, &[3, 255])).unwrap()), [3.0, 255.0]);
        assert_eq!(values(&opened("x.I8BIN", &file(2, 1, &[3, 255])).unwrap()), [3.0, -1.0]);
        assert_eq!(values(&opened("x.ibin", &file(1, 1, &[0xfe, 0xff, 0xff, 0xff])).unwrap()), [-2.0]);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        let refusal = |name: &str, bytes: &[u8]| {
            let text = opened(name, bytes).unwrap_err().to_string();
            text.split_once(&format!("{name}: ")).expect("the file is named").1.to_owned()
        };
        assert_eq!(refusal("x.fbin", b""), "is empty");
        assert_eq!(refusal("x.fbin", &[0; 7]), "ends within its header of 8 bytes (7 bytes)");
        assert_eq!(refusal("x.u8bin", &file(0, 3, &[])), "must have at least 1 row and 1 column, got 0 x 3");
        assert_eq!(refusal("x.u8bin", &file(3, 0, &[1])), "must have at least 1 row and 1 column, got 3 x 0");
        assert_eq!(
            refusal("x.u8bin", &file(2, 2, &[1, 2, 3])),
            "2 rows of 2 uint8 need a file of 12 bytes, found 11"
        );
        assert_eq!(
            refusal("x.u8bin", &file(2, 2, &[1; 5])),
            "2 rows of 2 uint8 take 12 bytes, found 13: what follows is no row of it"
        );
        assert!(refusal("x.fbin", &file(u32::MAX, u32::MAX, &[1; 5])).contains("larger than any file"));
        assert!(refusal("x.bin", &[0; 9]).contains(".fbin, .u8bin, .i8bin and .ibin"));
    }

    proptest! {
        #[test]
        fn damaged_files_are_rows_or_errors(at in 0usize..68, byte in any::<u8>(), cut in 0usize..80) {
            let mut bytes = file(5, 3, &[1; 60]);
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            if let Ok(source) = opened("x.fbin", &bytes) {
                let layout = source.layout();
                prop_assert_eq!(values(&source).len(), layout.rows * layout.cols);
            }
        }
    }
}
