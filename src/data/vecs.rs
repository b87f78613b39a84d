//! The `.fvecs`, `.bvecs` and `.ivecs` files of the TEXMEX collections: each row is preceded by its length, an `i32`.
//!
//! All rows must have the same length. Opening a file checks 64 rows spread over it, and a pass checks every
//! row that it reads: a file of hundreds of gigabytes opens at once, and a damaged row is an error of the
//! pass that reads it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use super::Dtype;
use super::raw::{Layout, Mapped, file_length, suffix_of};
use crate::error::{Error, Result};

/// Bytes of the length before a row.
const PREFIX: u64 = 4;
/// Number of rows that are checked when a file is opened, to detect truncated and concatenated files.
const SAMPLED_ROWS: u64 = 64;

/// The type of the values by the extension of the file name.
fn dtype_of(path: &Path) -> Result<Dtype> {
    match &*suffix_of(path) {
        "fvecs" => Ok(Dtype::F32),
        "bvecs" => Ok(Dtype::U8),
        "ivecs" => Ok(Dtype::I32),
        _ => Err(Error::format(
            path,
            "has none of the names .fvecs, .bvecs and .ivecs, which say what it holds",
        )),
    }
}

/// Opens an `.fvecs` (`f32`), `.bvecs` (`u8`) or `.ivecs` (`i32`) file as rows, without reading them all.
///
/// See [`Mapped`] for files that change while they are open. A row whose length differs from the first row's
/// is an error of the pass that reads it.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened; [`Error::Format`], which names the file, when it is damaged
/// or has another extension.
///
/// ```
/// # fn main() -> shoal::Result<()> {
/// use shoal::data::{DataSource, vecs};
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("base.bvecs");
/// std::fs::write(&path, [2, 0, 0, 0, 7, 8, 2, 0, 0, 0, 9, 10]).unwrap();
/// let rows = vecs::open(&path)?;
/// let mut last = Vec::<f32>::new();
/// rows.gather(&[1], &mut last)?;
/// assert_eq!(last, [9.0, 10.0]);
/// # Ok(())
/// # }
/// ```
pub fn open(path: impl AsRef<Path>) -> Result<Mapped> {
    let path = path.as_ref();
    let dtype = dtype_of(path)?;
    let length = file_length(path)?;
    let refuse = |problem: String| Error::format(path, problem);
    let mut file = File::open(path).map_err(|e| Error::io(path, e))?;
    let mut prefix = |at: u64| -> Result<i32> {
        let mut bytes = [0; PREFIX as usize];
        file.seek(SeekFrom::Start(at))
            .and_then(|_| file.read_exact(&mut bytes))
            .map_err(|e| Error::io(path, e))?;
        Ok(i32::from_le_bytes(bytes))
    };
    if length < PREFIX {
        return Err(refuse(format!("ends within the length of its first row ({length} bytes)")));
    }
    let d = prefix(0)?;
    let cols = u64::try_from(d)
        .ok()
        .filter(|&cols| cols > 0)
        .ok_or_else(|| refuse(format!("begins with a row of length {d}: rows need at least 1 column")))?;
    let stride = PREFIX + cols * dtype.size() as u64;
    if stride > length {
        return Err(refuse(format!(
            "is truncated or not in this format: its first row claims {cols} {dtype}, which take {stride} bytes with their \
             length, and it has {length}"
        )));
    }
    if !length.is_multiple_of(stride) {
        return Err(refuse(format!(
            "is truncated, or its rows differ in length: {length} bytes are not a whole number of rows of {cols} {dtype} \
             ({stride} bytes each)"
        )));
    }
    let rows = length / stride;
    let last = SAMPLED_ROWS.min(rows) - 1;
    for i in 1..=last {
        // Spread over the whole file, including the last row.
        let row = (u128::from(i) * u128::from(rows - 1) / u128::from(last)) as u64;
        let found = prefix(row * stride)?;
        if found != d {
            return Err(Mapped::other_length(path, row, found, d));
        }
    }
    let (Ok(rows), Ok(cols)) = (usize::try_from(rows), usize::try_from(cols)) else {
        return Err(refuse(format!(
            "{rows} rows of {cols} {dtype} are larger than this machine's memory can be"
        )));
    };
    let layout = Layout { row_stride: stride as isize, ..Layout::row_major(dtype, rows, cols) };
    Mapped::open(path, layout, PREFIX).map(Mapped::led_by_lengths)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::ops::ControlFlow;

    use proptest::prelude::*;

    use super::super::{DataSource, Permuted, Subset};
    use super::*;

    /// A file written by the definition of the format, independent of the code of this crate.
    fn file<const N: usize>(rows: &[&[[u8; N]]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in rows {
            bytes.extend((row.len() as i32).to_le_bytes());
            row.iter().for_each(|value| bytes.extend(value));
        }
        bytes
    }

    fn opened(name: &str, bytes: &[u8]) -> (tempfile::TempDir, Result<Mapped>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let rows = open(path);
        (folder, rows)
    }

    fn all(source: &dyn DataSource<f64>) -> Result<Vec<f64>> {
        let (mut seen, mut scratch) = (Vec::new(), Vec::new());
        source.for_each_block(8, &mut |block| {
            block.rows.tile(0..block.len, &mut scratch)?.iter().for_each(|row| seen.extend_from_slice(row));
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(seen)
    }

    fn refusal(name: &str, bytes: &[u8]) -> String {
        let text = opened(name, bytes).1.unwrap_err().to_string();
        text.split_once(&format!("{name}: ")).expect("the file is named").1.to_owned()
    }

    #[test]
    fn the_three_types_are_read() {
        let floats = [1.5f32, -2.0, 3.0, 4.0].map(f32::to_le_bytes);
        let (_folder, rows) = opened("x.fvecs", &file(&[&floats[..2], &floats[2..]]));
        assert_eq!(all(&rows.unwrap()).unwrap(), [1.5, -2.0, 3.0, 4.0]);
        let (_folder, rows) = opened("x.BVECS", &file(&[&[[7u8], [255], [0]]]));
        let rows = rows.unwrap();
        assert_eq!((rows.layout().rows, rows.layout().cols, rows.layout().dtype), (1, 3, Dtype::U8));
        assert_eq!(all(&rows).unwrap(), [7.0, 255.0, 0.0]);
        let ints = [5i32, -6].map(i32::to_le_bytes);
        let (_folder, rows) = opened("x.ivecs", &file(&[&ints[..1], &ints[1..]]));
        assert_eq!(all(&rows.unwrap()).unwrap(), [5.0, -6.0]);
    }

    #[test]
    fn refusals_say_what_is_wrong() {
        assert_eq!(refusal("x.bvecs", b""), "is empty");
        assert_eq!(refusal("x.bvecs", &[1, 0, 0]), "ends within the length of its first row (3 bytes)");
        for d in [0i32, -1, i32::MIN] {
            let text = refusal("x.fvecs", &[&d.to_le_bytes()[..], &[0; 8]].concat());
            assert_eq!(text, format!("begins with a row of length {d}: rows need at least 1 column"));
        }
        assert_eq!(
            refusal("x.fvecs", &[0xff, 0xff, 0xff, 0x7f, 0, 0]),
            "is truncated or not in this format: its first row claims 2147483647 float32, which take 8589934592 bytes with \
             their length, and it has 6"
        );
        assert_eq!(
            refusal("x.bvecs", &[2, 0, 0, 0, 1, 2, 3]),
            "is truncated, or its rows differ in length: 7 bytes are not a whole number of rows of 2 uint8 (6 bytes each)"
        );
        assert_eq!(
            refusal(
                "x.bvecs",
                &file(&[&[[1u8], [2]], &[[1], [2]], &[[3], [2], [0], [0], [0], [0], [0], [0]]])
            ),
            "has rows of different lengths: row 2 has 8 columns, the first one has 2"
        );
        assert!(refusal("x.vecs", &[0; 8]).contains(".fvecs, .bvecs and .ivecs"));
    }

    #[test]
    fn a_row_between_those_looked_at_fails_whatever_reads_it() {
        let mut bytes = file(&vec![&[[1u8], [2]][..]; 1000]);
        bytes[6 * 501] = 3;
        let (_folder, rows) = opened("x.bvecs", &bytes);
        let rows = rows.unwrap();
        let text = "has rows of different lengths: row 501 has 3 columns, the first one has 2";
        let gathered = DataSource::<f32>::gather(&rows, &[0, 501], &mut Vec::new());
        assert!(gathered.unwrap_err().to_string().ends_with(text));
        assert!(DataSource::<f32>::gather(&rows, &[500, 502], &mut Vec::new()).is_ok());
        for order in [vec![3u32, 501], (0..1000).collect()] {
            let permuted = Permuted::new::<f64>(&rows, order.clone()).unwrap();
            assert!(all(&permuted).unwrap_err().to_string().ends_with(text));
            let order: Vec<u64> = order.into_iter().map(u64::from).collect();
            assert!(all(&Subset::new(&rows, &order)).unwrap_err().to_string().ends_with(text));
        }
        assert!(all(&rows).unwrap_err().to_string().ends_with(text));
    }

    proptest! {
        #[test]
        fn damaged_files_are_rows_or_errors(at in 0usize..400, byte in any::<u8>(), cut in 0usize..400, which in 0usize..3) {
            let name = ["x.fvecs", "x.bvecs", "x.ivecs"][which];
            let row = [[1u8; 4]; 3];
            let mut bytes = if which == 1 { file(&[&[[1u8]; 12][..]; 25]) } else { file(&[&row[..]; 25]) };
            let at = at % bytes.len();
            bytes[at] = byte;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let (_folder, rows) = opened(name, &bytes);
            if let Ok(rows) = rows {
                let layout = rows.layout();
                if let Ok(values) = all(&rows) {
                    prop_assert_eq!(values.len(), layout.rows * layout.cols);
                }
            }
        }
    }
}
