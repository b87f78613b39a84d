//! Writes `.npy` files.

use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::MAGIC;
use crate::data::Dtype;
use crate::data::raw::{Element, bytes_of};
use crate::error::{Error, InvalidParam, Result};
use crate::whole_file::{Temporary, refuse_special, temporary_for};

/// Bytes before the data of a written file: a multiple of 64, which aligns rows, with room for any number of rows.
pub(super) const WRITTEN_HEADER: usize = 128;

/// Writes an `.npy` file row by row; the number of rows need not be known.
///
/// The rows go to a temporary file, which [`Writer::finish`] renames atomically. A writer that is dropped
/// before leaves no file.
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
    /// [`Error::InvalidParam`] for `bfloat16`, which the format does not support.
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

    /// Appends rows as bytes: little-endian values, row after row.
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
            return Err(Error::Shape(format!(
                "{} bytes do not divide into rows of {row} bytes",
                bytes.len()
            )));
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
                "{} values cannot be written to an array of {}",
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

    /// Writes the header, renames the file, and returns the number of rows. An existing file of the same name
    /// is replaced.
    ///
    /// # Errors
    /// [`Error::Io`]; no file is left then, and an existing file is unchanged.
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
            file.finish(&path)
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
