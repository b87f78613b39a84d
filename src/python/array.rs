//! NumPy arrays: reads rows in place and returns results without copying.
#![expect(unsafe_code, reason = "rows are read where NumPy keeps them")]

use numpy::{
    Element, PyArray1, PyArray2, PyArrayDescrMethods, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArray, PyUntypedArrayMethods,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use crate::data::raw::Layout;
use crate::data::{Csr, Dtype, Index, RawRows};
use crate::persist::kept::Values;

/// A two-dimensional array with any strides, kept alive and read in place.
pub(super) struct Array {
    /// Valid as long as `owner`: only borrowed for as long as `self` is.
    rows: RawRows<'static>,
    owner: Py<PyUntypedArray>,
}

impl Array {
    pub(super) fn new(array: &Bound<'_, PyUntypedArray>) -> PyResult<Self> {
        let dtype = dtype_of(array)?;
        let (&[rows, cols], &[row_stride, col_stride]) = (array.shape(), array.strides()) else {
            return Err(PyValueError::new_err(format!("X must be 2-D, got {}-D", array.ndim())));
        };
        let layout = Layout { dtype, rows, cols, row_stride, col_stride };
        // SAFETY: `as_array_ptr` points to a live array object. Its `data` points to the first value, and its
        // shape and strides describe where the others are, all within one buffer that lives as long as the
        // array, which `owner` keeps alive. NumPy cannot resize the memory while there are references to it.
        // NumPy cannot prevent writes: not writing during a call is a documented duty of the caller, as for
        // every library that reads arrays without holding the interpreter.
        let rows =
            unsafe { RawRows::from_parts((*array.as_array_ptr()).fields.data.cast_const().cast(), layout) }?;
        Ok(Self { rows, owner: array.clone().unbind() })
    }

    pub(super) fn rows(&self) -> &RawRows<'_> {
        &self.rows
    }

    pub(super) fn owner<'py>(&self, py: Python<'py>) -> &Bound<'py, PyUntypedArray> {
        self.owner.bind(py)
    }
}

/// The three arrays of a compressed sparse matrix, kept alive and read in place.
pub(super) struct SparseArray {
    /// Valid as long as the owners: only borrowed for as long as `self` is.
    rows: Csr<'static>,
    /// `indptr`, `indices` and `data`.
    owners: [Py<PyUntypedArray>; 3],
}

impl SparseArray {
    pub(super) fn new(
        shape: (usize, usize),
        [indptr, indices, values]: [&Bound<'_, PyUntypedArray>; 3],
    ) -> PyResult<Self> {
        let (&[stored], &[stride]) = (values.shape(), values.strides()) else {
            return Err(PyValueError::new_err(format!("data must be 1-D, got {}-D", values.ndim())));
        };
        let dtype = dtype_of(values)?;
        let layout =
            Layout { dtype, rows: stored, cols: 1, row_stride: stride, col_stride: dtype.size() as isize };
        // SAFETY: `as_array_ptr` points to a live 1-D array object. `data` points to its first value, and
        // `stride` says where the others are, within one buffer that `owners` keeps alive. NumPy cannot
        // resize the memory while there are references to it.
        let of_values =
            unsafe { RawRows::from_parts((*values.as_array_ptr()).fields.data.cast_const().cast(), layout) }?;
        let rows = Csr::of_raw(shape, index_of("indptr", indptr)?, index_of("indices", indices)?, of_values)?;
        let owners = [indptr, indices, values].map(|array| array.clone().unbind());
        Ok(Self { rows, owners })
    }

    pub(super) fn rows(&self) -> &Csr<'_> {
        &self.rows
    }

    pub(super) fn values(&self) -> Layout {
        self.rows.values().layout()
    }

    /// `indptr`, `indices` and `data`.
    pub(super) fn owners<'py>(&self, py: Python<'py>) -> [&Bound<'py, PyUntypedArray>; 3] {
        self.owners.each_ref().map(|owner| owner.bind(py))
    }
}

/// An index array, read in place: valid as long as the array.
fn index_of(name: &str, array: &Bound<'_, PyUntypedArray>) -> PyResult<Index<'static>> {
    fn values<T>(array: &Bound<'_, PyUntypedArray>) -> Option<&'static [T]> {
        let (&[n], &[stride]) = (array.shape(), array.strides()) else { return None };
        // SAFETY: `as_array_ptr` points to a live array object.
        let first = unsafe { (*array.as_array_ptr()).fields.data.cast_const().cast::<T>() };
        if n == 0 {
            return Some(&[]);
        }
        let touching = n == 1 || stride == size_of::<T>() as isize;
        // SAFETY: the array has `n` contiguous values of the size of `T`, an integer type without invalid bit
        // patterns, starting at `first`. The owner keeps the array alive for as long as the slice is used.
        // NumPy cannot resize the memory while there are references to it.
        (touching && first.is_aligned()).then(|| unsafe { std::slice::from_raw_parts(first, n) })
    }
    let descr = array.dtype();
    let found = match (descr.kind(), descr.itemsize(), descr.is_native_byteorder()) {
        (b'i', 4, Some(true)) => values::<i32>(array).map(Index::from),
        (b'i', 8, Some(true)) => values::<i64>(array).map(Index::from),
        _ => None,
    };
    let refused = || PyTypeError::new_err(format!("{name} must be contiguous int32 or int64, got {descr}"));
    found.ok_or_else(refused)
}

/// The storage type of an array.
fn dtype_of(array: &Bound<'_, PyUntypedArray>) -> PyResult<Dtype> {
    let descr = array.dtype();
    let refused = || {
        let known = Dtype::ALL.map(Dtype::name).join(", ");
        PyTypeError::new_err(format!(
            "X must hold numbers of type {known}, in native byte order, got {descr}"
        ))
    };
    if descr.is_native_byteorder() == Some(false) {
        return Err(refused());
    }
    Ok(match (descr.kind(), descr.itemsize()) {
        (b'b', 1) => Dtype::Bool,
        (b'u', 1) => Dtype::U8,
        (b'i', 1) => Dtype::I8,
        (b'i', 2) => Dtype::I16,
        (b'u', 2) => Dtype::U16,
        (b'f', 2) => Dtype::F16,
        (b'f', 4) => Dtype::F32,
        (b'i', 4) => Dtype::I32,
        (b'u', 4) => Dtype::U32,
        (b'i', 8) => Dtype::I64,
        (b'u', 8) => Dtype::U64,
        (b'f', 8) => Dtype::F64,
        // NumPy has no such type: `shoal._rows.bfloat16` marks the bits with the name of the field.
        (b'V', 2) if descr.names() == Some(vec![Dtype::Bf16.name().to_owned()]) => Dtype::Bf16,
        _ => return Err(refused()),
    })
}

/// Centers in one of the two compute types, row by row.
pub(super) type Centers = Values;

impl Centers {
    /// Copies a two-dimensional array with `cols` columns.
    pub(super) fn new(array: &Bound<'_, PyAny>, cols: usize) -> PyResult<Self> {
        fn copied<T: Element + Copy>(array: &PyReadonlyArray2<'_, T>) -> (Vec<T>, usize) {
            (array.as_array().iter().copied().collect(), array.shape()[1])
        }
        let (centers, found) = if let Ok(array) = array.extract::<PyReadonlyArray2<'_, f32>>() {
            let (values, found) = copied(&array);
            (Self::F32(values), found)
        } else if let Ok(array) = array.extract::<PyReadonlyArray2<'_, f64>>() {
            let (values, found) = copied(&array);
            (Self::F64(values), found)
        } else {
            return Err(PyTypeError::new_err("centers must be a 2-D array of float32 or float64"));
        };
        if found != cols {
            return Err(PyValueError::new_err(format!("centers have {found} columns, X has {cols}")));
        }
        Ok(centers)
    }

    pub(super) fn into_f64(self) -> Vec<f64> {
        match self {
            Self::F32(values) => values.into_iter().map(f64::from).collect(),
            Self::F64(values) => values,
        }
    }
}

/// Copies a one-dimensional array.
pub(super) fn vector<T: Element + Copy>(array: &PyReadonlyArray1<'_, T>) -> Vec<T> {
    array.as_array().iter().copied().collect()
}

/// A one-dimensional array that takes over the values without a copy.
pub(super) fn array1<T: Element>(py: Python<'_>, values: Vec<T>) -> Bound<'_, PyAny> {
    PyArray1::from_vec(py, values).into_any()
}

/// A two-dimensional array that takes over the values without a copy.
pub(super) fn array2<T: Element>(py: Python<'_>, values: Vec<T>, cols: usize) -> PyResult<Bound<'_, PyAny>> {
    let rows = values.len() / cols.max(1);
    let array: Bound<'_, PyArray2<T>> = PyArray1::from_vec(py, values).reshape([rows, cols])?;
    Ok(array.into_any())
}

/// Copies labels. Negative ones become large ones, which no pass accepts.
pub(super) fn unsigned(labels: &PyReadonlyArray1<'_, i32>) -> Vec<u32> {
    vector(labels).into_iter().map(i32::cast_unsigned).collect()
}

/// Labels as `int32`, the type that Python returns.
pub(super) fn signed(labels: Vec<u32>) -> Vec<i32> {
    // Collects in place: the types have the same size.
    labels.into_iter().map(u32::cast_signed).collect()
}
