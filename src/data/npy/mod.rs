//! NumPy's `.npy` files: memory-mapped rows, and a writer that creates files atomically.

mod header;
#[cfg(test)]
mod tests;
mod writer;

use std::path::Path;

use super::raw::{Layout, Mapped, file_length};
use crate::error::{Error, Result};

pub use writer::Writer;

/// The bytes that every `.npy` file begins with.
const MAGIC: &[u8] = b"\x93NUMPY";

/// Opens the two-dimensional array in an `.npy` file (versions 1 to 3) as rows, without reading them.
///
/// Rows in Fortran order are read more slowly than rows in C order. See [`Mapped`] for files that change
/// while they are open.
///
/// # Errors
/// [`Error::Io`] when the file cannot be opened; [`Error::Format`], which names the file, when it is damaged,
/// is not two-dimensional, has no rows or columns, or holds anything but little-endian numbers.
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
    let opened = open_shard(&path)?;
    let Layout { rows, cols, .. } = opened.layout();
    if rows == 0 { Err(no_rows(path.as_ref(), &format!("({rows}, {cols})"))) } else { Ok(opened) }
}

/// As [`open`], but the file may have no rows.
pub(crate) fn open_shard(path: impl AsRef<Path>) -> Result<Mapped> {
    let path = path.as_ref();
    file_length(path)?;
    let refuse = |problem: String| Error::format(path, problem);
    let (header, data) = header::read(path)?;
    let dtype = header::dtype_of(&header.descr).map_err(refuse)?;
    let shape = header::shape_text(&header.shape);
    let [rows, cols] = header.shape[..] else {
        let advice = "rows need 2 dimensions";
        let advice = match header.shape[..] {
            [n] => format!("{advice}: reshape it to ({n}, 1) for rows of one value, to (1, {n}) for one row"),
            _ => format!("{advice}: reshape it to (rows, columns)"),
        };
        return Err(refuse(format!("holds an array of shape {shape}; {advice}")));
    };
    if cols == 0 {
        return Err(no_rows(path, &shape));
    }
    let (Ok(rows), Ok(cols)) = (usize::try_from(rows), usize::try_from(cols)) else {
        return Err(refuse(format!(
            "holds an array of shape {shape}, larger than this machine's memory can be"
        )));
    };
    let layout = if header.fortran { Layout::column_major } else { Layout::row_major }(dtype, rows, cols);
    Mapped::open_shard(path, layout, data)
}

fn no_rows(path: &Path, shape: &str) -> Error {
    Error::format(path, format!("must have at least 1 row and 1 column, got shape {shape}"))
}
