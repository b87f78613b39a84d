//! The state of a solver in a file. [`stored_fields!`] lists its fields once, for writing and for reading.

use serde_json::{Map, Value};

use super::kept::{
    bits, count, figure, flag, keep, keep_rows, kept_rows, list, number, rows, stored_rows, text,
};
use super::{Array, Contents, Number};
use crate::error::Error;
use crate::float::Float;
use crate::names::Named;
use crate::rows::RowBuf;

/// The text with the numbers of a state.
const NUMBERS: &str = "state";

/// The type of a field: a number, a text or a list of numbers.
pub(crate) trait Field: Sized {
    fn put(&self, name: &str, to: &mut StateWriter);

    /// Reads the field. The error says what is wrong.
    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String>;
}

/// Writes the two methods `put_fields` and `get_fields` of a state from one list of its fields. A field that is called
/// `name` in files and `part.field` in the state is listed as `name = part.field`.
macro_rules! stored_fields {
    ($($name:ident $(= $first:ident $(.$rest:ident)*)?),* $(,)?) => {
        /// Writes the listed fields.
        pub(crate) fn put_fields(&self, to: &mut $crate::persist::state::StateWriter) {
            $($crate::persist::state::stored_fields!(@put self to $name $($first $(.$rest)*)?);)*
        }

        /// Reads the listed fields. The error says what is wrong.
        pub(crate) fn get_fields(&mut self, from: &$crate::persist::state::StateReader<'_>) -> Result<(), String> {
            $($crate::persist::state::stored_fields!(@get self from $name $($first $(.$rest)*)?);)*
            Ok(())
        }
    };
    (@put $self:ident $to:ident $name:ident) => { $to.put(stringify!($name), &$self.$name) };
    (@put $self:ident $to:ident $name:ident $($path:tt)+) => { $to.put(stringify!($name), &$self.$($path)+) };
    (@get $self:ident $from:ident $name:ident) => { $self.$name = $from.get(stringify!($name))? };
    (@get $self:ident $from:ident $name:ident $($path:tt)+) => { $self.$($path)+ = $from.get(stringify!($name))? };
}
pub(crate) use stored_fields;

/// A state that is being written.
pub(crate) struct StateWriter {
    pub(crate) contents: Contents,
    numbers: Map<String, Value>,
}

impl StateWriter {
    pub(crate) fn new(kind: &str) -> Self {
        Self { contents: Contents::new(kind), numbers: Map::new() }
    }

    pub(crate) fn put(&mut self, name: &str, field: &impl Field) {
        field.put(name, self);
    }

    /// Writes a number or a text.
    pub(crate) fn put_value(&mut self, name: &str, value: impl Into<Value>) {
        self.numbers.insert(name.into(), value.into());
    }

    /// Writes a list of numbers.
    pub(crate) fn put_list<E: Number>(&mut self, name: &str, values: &[E]) {
        keep(&mut self.contents, name, Array::new(&[values.len()], values));
    }

    /// Writes a matrix of `dim` columns. It may be empty, and `dim` 0.
    pub(crate) fn put_matrix<T: Float>(&mut self, name: &str, values: &[T], dim: usize) {
        keep(&mut self.contents, name, stored_rows(values, dim.max(1)));
    }

    /// Writes dense or sparse rows.
    pub(crate) fn put_rows<T: Float>(&mut self, name: &str, rows: &RowBuf<T>) {
        keep_rows(&mut self.contents, name, rows);
    }

    pub(crate) fn finish(mut self) -> Contents {
        self.contents.meta.insert(NUMBERS.into(), Value::Object(self.numbers).to_string());
        self.contents
    }
}

/// A state that is being read.
pub(crate) struct StateReader<'a> {
    pub(crate) contents: &'a Contents,
    numbers: Map<String, Value>,
}

impl<'a> StateReader<'a> {
    /// The error says what is wrong with the text that holds the numbers.
    pub(crate) fn new(contents: &'a Contents) -> Result<Self, String> {
        Ok(Self { contents, numbers: contents.object(NUMBERS)? })
    }

    /// Reads a field. The error says what is wrong.
    pub(crate) fn get<F: Field>(&self, name: &str) -> Result<F, String> {
        F::get(name, self)
    }

    /// A number or a text, or `None` for `null` or a missing one.
    pub(crate) fn value(&self, name: &str) -> Option<&Value> {
        self.numbers.get(name).filter(|value| !value.is_null())
    }

    /// The seed of a random generator: any 64 bits.
    pub(crate) fn seed(&self) -> Result<u64, String> {
        bits(&self.numbers, "seed")
    }

    /// A list of numbers that are finite and at least 0.
    pub(crate) fn weights(&self, name: &str) -> Result<Vec<f64>, String> {
        let values: Vec<f64> = self.get(name)?;
        if are_weights(&values) {
            Ok(values)
        } else {
            Err(format!("its {name:?} are negative or not finite"))
        }
    }

    /// A matrix of `dim` columns, or an empty one.
    pub(crate) fn matrix<T: Float>(&self, name: &str, dim: usize) -> Result<Vec<T>, String> {
        rows(self.contents, name, dim)
    }

    /// As [`StateReader::matrix`], with an error if a value is NaN or infinite.
    pub(crate) fn finite_matrix<T: Float>(&self, name: &str, dim: usize) -> Result<Vec<T>, String> {
        let values: Vec<T> = self.matrix(name, dim)?;
        let finite = values.iter().all(|x| x.finite());
        if finite { Ok(values) } else { Err(format!("its {name:?} are not finite")) }
    }

    /// `k` finite centers of `dim` columns.
    pub(crate) fn centers<T: Float>(&self, name: &str, k: usize, dim: usize) -> Result<Vec<T>, String> {
        let centers: Vec<T> = self.finite_matrix(name, dim)?;
        match centers.len() / dim.max(1) {
            held if held == k => Ok(centers),
            held => Err(format!("it holds {held} centers, but n_clusters={k}")),
        }
    }

    /// The rows that [`StateWriter::put_rows`] wrote.
    pub(crate) fn rows<T: Float>(&self, name: &str, dim: usize) -> Result<RowBuf<T>, String> {
        kept_rows(self.contents, name, dim)
    }
}

/// Whether all values are finite and at least 0.
pub(crate) fn are_weights(values: &[f64]) -> bool {
    values.iter().all(|x| x.is_finite() && *x >= 0.0)
}

/// Types that are stored as a JSON value: how a value is written, and the function that reads it.
macro_rules! value_fields {
    ($($field:ty: |$value:ident| $write:expr, $read:expr;)*) => {$(
        impl Field for $field {
            fn put(&self, name: &str, to: &mut StateWriter) {
                let $value = self;
                to.put_value(name, $write);
            }

            fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
                $read(&from.numbers, name)
            }
        }
    )*};
}

value_fields! {
    bool: |flag| *flag, flag;
    String: |text| text.as_str(), text;
    // Limited, because later counts are added to it.
    u64: |count| *count, count;
    u32: |count| *count, small;
    usize: |count| *count, small;
    // As bits, so that a resumed fit is bit-identical, and for NaN and infinity.
    f64: |number| number.to_bits(), number;
    Option<f64>: |number| number.map(f64::to_bits), figure;
}

/// A count of a type that holds fewer values than `u64`.
fn small<N: TryFrom<u64>>(object: &Map<String, Value>, name: &str) -> Result<N, String> {
    N::try_from(count(object, name)?).map_err(|_| format!("its {name:?} is too large"))
}

impl<N: Named> Field for N {
    fn put(&self, name: &str, to: &mut StateWriter) {
        let own = N::NAMED.iter().find(|(value, _)| value == self);
        to.put_value(name, own.map(|&(_, known)| known));
    }

    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
        N::of_name(N::OPTION, &from.get::<String>(name)?).map_err(|e| Error::from(e).to_string())
    }
}

/// The seconds of three phases.
impl Field for [f64; 3] {
    fn put(&self, name: &str, to: &mut StateWriter) {
        to.put_value(name, &self[..]);
    }

    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
        let mut seconds = [0.0; 3];
        for (at, seconds) in seconds.iter_mut().enumerate() {
            let stored = from.value(name).and_then(|all| all.get(at)).and_then(Value::as_f64);
            *seconds = stored.filter(|&s| s >= 0.0).ok_or_else(|| format!("its {name:?} are missing"))?;
        }
        Ok(seconds)
    }
}

impl<E: Number> Field for Vec<E> {
    fn put(&self, name: &str, to: &mut StateWriter) {
        to.put_list(name, self);
    }

    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
        list(from.contents, name)
    }
}

impl Field for Vec<bool> {
    fn put(&self, name: &str, to: &mut StateWriter) {
        to.put(name, &self.iter().map(|&set| u8::from(set)).collect::<Vec<_>>());
    }

    fn get(name: &str, from: &StateReader<'_>) -> Result<Self, String> {
        Ok(from.get::<Vec<u8>>(name)?.into_iter().map(|set| set != 0).collect())
    }
}
