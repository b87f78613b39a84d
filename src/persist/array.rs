//! Arrays as files store them: a type, a shape and the bytes.

use std::fmt;
use std::sync::Arc;

use crate::data::Dtype;
use crate::data::raw::Element;
use crate::error::{Error, Result};

/// A Rust number type that arrays can store.
///
/// ```
/// use shoal::persist::Array;
/// assert_eq!(Array::new(&[3], &[1u8, 2, 3]).unwrap().values::<u8>().unwrap(), [1, 2, 3]);
/// ```
pub trait Number: Element {
    /// Appends the little-endian bytes of the value to `out`.
    fn put(self, out: &mut Vec<u8>);
    /// Reads a value from its little-endian bytes.
    ///
    /// # Panics
    /// If `bytes` does not hold exactly one value.
    fn get(bytes: &[u8]) -> Self;
}

macro_rules! number {
    ($($t:ty),*) => {$(
        impl Number for $t {
            fn put(self, out: &mut Vec<u8>) {
                out.extend(self.to_le_bytes());
            }
            fn get(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("the bytes of one value"))
            }
        }
    )*};
}
number!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

/// Numbers of one type with a shape, row-major and little-endian, as in a file.
///
/// ```
/// use shoal::{data::Dtype, persist::Array};
/// let array = Array::new(&[2, 2], &[1i32, 2, 3, 4]).unwrap();
/// assert_eq!((array.dtype(), array.shape()), (Dtype::I32, &[2, 2][..]));
/// assert!(array.values::<i64>().is_none());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    /// Shared by copies, which parts of files have.
    bytes: Arc<Vec<u8>>,
}

impl Array {
    /// Creates an array from values.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of values does not match the shape.
    ///
    /// ```
    /// use shoal::persist::Array;
    /// assert!(Array::new(&[2, 2], &[1.0f32, 2.0]).is_err());
    /// ```
    pub fn new<E: Number>(shape: &[usize], values: &[E]) -> Result<Self> {
        let mut bytes = Vec::with_capacity(size_of_val(values));
        for value in values {
            value.put(&mut bytes);
        }
        Self::from_bytes(E::DTYPE, shape, bytes)
    }

    /// Creates an array from little-endian bytes.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of bytes does not match type and shape.
    ///
    /// ```
    /// use shoal::{data::Dtype, persist::Array};
    /// let array = Array::from_bytes(Dtype::U16, &[1], vec![1, 2]).unwrap();
    /// assert_eq!(array.values::<u16>().unwrap(), [513]);
    /// ```
    pub fn from_bytes(dtype: Dtype, shape: &[usize], bytes: Vec<u8>) -> Result<Self> {
        let needed = shape.iter().try_fold(dtype.size(), |n, &side| n.checked_mul(side));
        if needed != Some(bytes.len()) {
            return Err(Error::Shape(format!(
                "a {dtype} array of shape {shape:?} cannot have {} bytes",
                bytes.len()
            )));
        }
        Ok(Self { dtype, shape: shape.to_vec(), bytes: Arc::new(bytes) })
    }

    /// The type of the values.
    ///
    /// See [`Array`] for an example.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The length of every axis. Empty for a scalar.
    ///
    /// See [`Array`] for an example.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The values as little-endian bytes.
    ///
    /// ```
    /// assert_eq!(shoal::persist::Array::new(&[2], &[1u16, 2]).unwrap().bytes(), [1, 0, 2, 0]);
    /// ```
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The values, or `None` if the array has another type.
    ///
    /// See [`Array`] for an example.
    pub fn values<E: Number>(&self) -> Option<Vec<E>> {
        (E::DTYPE == self.dtype).then(|| self.bytes.chunks_exact(size_of::<E>()).map(E::get).collect())
    }
}

impl fmt::Debug for Array {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({}, {:?})", self.dtype, self.shape)
    }
}
