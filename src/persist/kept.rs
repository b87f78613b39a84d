//! Stores rows and numbers in [`Contents`] without loss, and reads them back.

use std::ops::Range;

use serde_json::{Map, Value};

use super::{Array, Contents, Number};
use crate::data::Dtype;
use crate::error::Result as Checked;
use crate::float::{Float, Typed, either};
use crate::matrix::MatRef;
use crate::rows::RowBuf;

/// Values in the type in which they were computed.
pub(crate) type Values = Typed<Vec<f32>, Vec<f64>>;

impl Values {
    pub(crate) fn of<T: Float>(values: &[T]) -> Self {
        if T::WIDE {
            Self::F64(values.iter().map(|v| v.to_f64()).collect())
        } else {
            Self::F32(values.iter().map(|v| v.to_f32()).collect())
        }
    }

    pub(crate) fn get<T: Float>(&self) -> Vec<T> {
        match self {
            Self::F32(values) => values.iter().map(|&v| T::from_f32(v)).collect(),
            Self::F64(values) => values.iter().map(|&v| T::from_f64(v)).collect(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        either!(self, values => values.len())
    }

    /// The first NaN or infinity, as the numbers of its row and column and its text.
    pub(crate) fn first_not_finite(&self, dim: usize) -> Option<(usize, usize, String)> {
        let found = |at: Option<(usize, usize)>, value: &dyn Fn(usize) -> String| {
            at.map(|(row, column)| (row, column, value(row * dim + column)))
        };
        either!(self, v => found(MatRef::new(v, dim).first_not_finite(), &|i| v[i].to_string()))
    }

    /// Adds values, converted to the type of the others.
    pub(crate) fn extend<T: Float>(&mut self, more: &[T]) {
        match self {
            Self::F32(values) => values.extend(more.iter().map(|v| v.to_f64() as f32)),
            Self::F64(values) => values.extend(more.iter().map(|v| v.to_f64())),
        }
    }

    /// Moves the values of another, which are of the same type, to the end.
    pub(crate) fn append(&mut self, other: &mut Self) {
        match (self, other) {
            (Self::F32(values), Self::F32(more)) => values.append(more),
            (Self::F64(values), Self::F64(more)) => values.append(more),
            (Self::F32(values), Self::F64(more)) => values.extend(more.drain(..).map(|v| v as f32)),
            (Self::F64(values), Self::F32(more)) => values.extend(more.drain(..).map(f64::from)),
        }
    }

    /// A copy of consecutive values.
    pub(crate) fn part(&self, range: Range<usize>) -> Self {
        either!(self, values => Typed(values[range].to_vec()))
    }

    /// A copy of the rows with these numbers, of `dim` values each.
    pub(crate) fn select(&self, dim: usize, rows: &[usize]) -> Self {
        fn of<E: Copy>(values: &[E], dim: usize, rows: &[usize]) -> Vec<E> {
            rows.iter().flat_map(|&row| &values[row * dim..(row + 1) * dim]).copied().collect()
        }
        either!(self, values => Typed(of(values, dim, rows)))
    }

    /// The values as an array of rows.
    pub(crate) fn array(&self, dim: usize) -> Checked<Array> {
        either!(self, values => Array::new(&[values.len() / dim.max(1), dim], values))
    }

    /// The values of a matrix of `dim` columns, of either type.
    pub(crate) fn matrix(contents: &Contents, name: &str, dim: usize) -> Result<Self, String> {
        Ok(if contents.array(name)?.dtype() == Dtype::F64 {
            Self::F64(matrix(contents, name, dim)?)
        } else {
            Self::F32(matrix(contents, name, dim)?)
        })
    }
}

/// The values of a matrix with `dim` columns, or of an empty matrix.
pub(crate) fn matrix<E: Number>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<E>, String> {
    let &[rows, cols] = contents.array(name)?.shape() else {
        return Err(format!("array {name:?} must be a matrix"));
    };
    if rows > 0 && cols != dim {
        return Err(format!("array {name:?} must have {dim} columns, got {cols}"));
    }
    contents.values(name, &[rows, cols])
}

/// Like [`matrix`], for values in the compute type.
pub(crate) fn rows<T: Float>(contents: &Contents, name: &str, dim: usize) -> Result<Vec<T>, String> {
    let values = if T::WIDE {
        Values::F64(matrix(contents, name, dim)?)
    } else {
        Values::F32(matrix(contents, name, dim)?)
    };
    Ok(values.get())
}

/// Rows of `cols` values as an array.
pub(crate) fn stored_rows<T: Float>(values: &[T], cols: usize) -> Checked<Array> {
    either!(Values::of(values), values => Array::new(&[values.len() / cols, cols], &values))
}

/// Stores dense or sparse rows. Sparse rows are stored as values, column indices and row starts.
pub(crate) fn keep_rows<T: Float>(contents: &mut Contents, name: &str, rows: &RowBuf<T>) {
    if rows.is_sparse() {
        let starts: Vec<u64> = rows.starts.iter().map(|&start| start as u64).collect();
        keep(contents, name, stored_rows(&rows.values, 1));
        keep(contents, &format!("{name}_columns"), Array::new(&[rows.columns.len()], &rows.columns));
        keep(contents, &format!("{name}_starts"), Array::new(&[starts.len()], &starts));
    } else {
        keep(contents, name, stored_rows(&rows.values, rows.cols().max(1)));
    }
}

/// Reads the rows that [`keep_rows`] stored; they have `dim` columns.
pub(crate) fn kept_rows<T: Float>(contents: &Contents, name: &str, dim: usize) -> Result<RowBuf<T>, String> {
    let mut kept = RowBuf::new(dim);
    let beginnings = format!("{name}_starts");
    if !contents.arrays.contains_key(&beginnings) {
        kept.values = rows(contents, name, dim)?;
        return Ok(kept);
    }
    kept.values = rows(contents, name, 1)?;
    kept.columns = list(contents, &format!("{name}_columns"))?;
    let starts: Vec<u64> = list(contents, &beginnings)?;
    kept.starts = starts.iter().map(|&start| usize::try_from(start).unwrap_or(usize::MAX)).collect();
    let ends = kept.starts.first() == Some(&0) && kept.starts.last() == Some(&kept.values.len());
    let whole = ends && kept.starts.is_sorted() && kept.columns.len() == kept.values.len();
    let in_order = |row: &[usize]| {
        let columns = &kept.columns[row[0]..row[1]];
        let within = columns.iter().all(|&column| column >= 0 && (column as usize) < dim);
        within && columns.is_sorted_by(|a, b| a < b)
    };
    if whole && kept.starts.windows(2).all(in_order) {
        Ok(kept)
    } else {
        Err(format!("arrays {name:?} do not match each other"))
    }
}

/// A whole number of at most `2^62`.
pub(crate) fn count(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    // Later counts are added to it.
    bits(object, name)?.checked_mul(4).map(|four| four / 4).ok_or_else(|| format!("{name:?} is too large"))
}

/// 64 bits: a seed, a fingerprint or a stored float.
pub(crate) fn bits(object: &Map<String, Value>, name: &str) -> Result<u64, String> {
    object
        .get(name)
        .and_then(Value::as_u64)
        .ok_or_else(|| format!("{name:?} must be a whole number of at least 0"))
}

/// A number stored as its bits, or `None` for `null`.
pub(crate) fn figure(object: &Map<String, Value>, name: &str) -> Result<Option<f64>, String> {
    match object.get(name) {
        Some(Value::Null) => Ok(None),
        _ => Ok(Some(f64::from_bits(bits(object, name)?))),
    }
}

/// A number stored as its bits.
pub(crate) fn number(object: &Map<String, Value>, name: &str) -> Result<f64, String> {
    Ok(f64::from_bits(bits(object, name)?))
}

pub(crate) fn flag(object: &Map<String, Value>, name: &str) -> Result<bool, String> {
    object.get(name).and_then(Value::as_bool).ok_or_else(|| format!("{name:?} must be true or false"))
}

pub(crate) fn text(object: &Map<String, Value>, name: &str) -> Result<String, String> {
    let found = object.get(name).and_then(Value::as_str);
    found.map(str::to_owned).ok_or_else(|| format!("{name:?} must be a string"))
}

/// Stores an array whose number of values is known to match its shape.
pub(crate) fn keep(contents: &mut Contents, name: &str, array: Checked<Array>) {
    contents.arrays.insert(name.into(), array.expect("as many values as the shape says"));
}

/// The values of an array of any shape, flattened.
pub(crate) fn list<E: Number>(contents: &Contents, name: &str) -> Result<Vec<E>, String> {
    let length = contents.array(name)?.shape().iter().product();
    contents.values(name, &[length])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn counts_leave_room_for_later_ones() {
        let object = json!({ "most": 1u64 << 62, "more": (1u64 << 62) + 1, "bits": u64::MAX, "less": -1 });
        let object = object.as_object().unwrap();
        // The largest product by 4 is below 2^64.
        assert_eq!(count(object, "most").unwrap_err(), "\"most\" is too large");
        assert!(count(object, "more").is_err() && count(object, "less").is_err());
        assert_eq!(count(json!({ "n": (1u64 << 62) - 1 }).as_object().unwrap(), "n"), Ok((1 << 62) - 1));
        assert_eq!(bits(object, "bits"), Ok(u64::MAX));
    }

    #[test]
    fn matrices_have_the_columns_that_are_asked_for() {
        let mut contents = Contents::new("rows");
        keep(&mut contents, "x", Array::new(&[2, 3], &[1.0f32; 6]));
        keep(&mut contents, "none", Array::new::<f32>(&[0, 9], &[]));
        keep(&mut contents, "list", Array::new(&[6], &[1.0f32; 6]));
        assert_eq!(matrix::<f32>(&contents, "x", 3).unwrap().len(), 6);
        assert_eq!(matrix::<f32>(&contents, "none", 3).unwrap(), [0.0; 0]);
        assert!(matrix::<f32>(&contents, "x", 2).unwrap_err().contains("must have 2 columns, got 3"));
        assert!(matrix::<f32>(&contents, "list", 1).unwrap_err().contains("must be a matrix"));
    }

    /// What is read from sparse rows of 4 columns with these arrays.
    fn read(values: &[f32], columns: &[i32], starts: &[u64]) -> Result<RowBuf<f32>, String> {
        let mut contents = Contents::new("rows");
        keep(&mut contents, "x", Array::new(&[values.len(), 1], values));
        keep(&mut contents, "x_columns", Array::new(&[columns.len()], columns));
        keep(&mut contents, "x_starts", Array::new(&[starts.len()], starts));
        kept_rows(&contents, "x", 4)
    }

    #[test]
    fn sparse_rows_are_checked() {
        let values = [1.0, 2.0, 3.0];
        assert_eq!(read(&values, &[0, 3, 1], &[0, 2, 3]).unwrap().len(), 2);
        for (what, columns, starts) in [
            ("a column behind the last", &[0, 4, 1][..], &[0, 2, 3][..]),
            ("a negative column", &[-1, 3, 1], &[0, 2, 3]),
            ("a column twice", &[3, 3, 1], &[0, 2, 3]),
            ("columns out of order", &[3, 0, 1], &[0, 2, 3]),
            ("too few columns", &[0, 3], &[0, 2, 3]),
            ("a start behind the first value", &[0, 3, 1], &[1, 2, 3]),
            ("an end before the last value", &[0, 3, 1], &[0, 2, 2]),
            ("an end behind the last value", &[0, 3, 1], &[0, 2, 4]),
            ("descending starts", &[0, 3, 1], &[0, 3, 2, 3]),
            ("no starts", &[0, 3, 1], &[]),
        ] {
            assert!(read(&values, columns, starts).is_err(), "{what}");
        }
    }
}
