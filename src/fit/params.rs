//! Parameters: setters, access by name, and shared checks.

use std::fmt::{self, Display};

use crate::error::{Error, InvalidParam, Result};
use crate::kernel::MAX_CENTERS;
use crate::names::Named;

/// The value of a parameter that is set by its name, for example from a configuration file.
///
/// ```
/// use shoal::{KMeans, fit::Value};
/// let mut params = KMeans::params(8);
/// for (name, value) in [("tolerance", Value::Int(0)), ("algorithm", "elkan".into())] {
///     params.set(name, value).unwrap();
/// }
/// let refused = params.set("tol", 0.1.into()).unwrap_err().to_string();
/// assert!(refused.ends_with("did you mean \"tolerance\"?"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// No value, for optional parameters.
    None,
    /// True or false.
    Bool(bool),
    /// An integer. Also valid for parameters that are real numbers.
    Int(i128),
    /// A real number.
    Float(f64),
    /// The name of an option.
    Text(String),
    /// Several numbers, for example the values of given centers, row by row.
    Floats(Vec<f64>),
}

impl Value {
    /// The value that a text stands for, as on a command line: an integer, a number, `true`, `false` or `none`.
    /// Any other text stands for itself.
    ///
    /// ```
    /// use shoal::fit::Value;
    /// assert_eq!(["3", "0.5", "auto"].map(Value::parse), [Value::Int(3), Value::Float(0.5), "auto".into()]);
    /// ```
    pub fn parse(text: &str) -> Self {
        match text {
            "none" => Self::None,
            "true" => Self::Bool(true),
            "false" => Self::Bool(false),
            _ => {
                let number = || text.parse().map(Self::Float);
                text.parse().map(Self::Int).or_else(|_| number()).unwrap_or_else(|_| text.into())
            }
        }
    }
}

impl Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::Floats(values) => write!(f, "{} numbers", values.len()),
        }
    }
}

macro_rules! value_of {
    ($($t:ty: $value:ident => $made:expr;)+) => {$(
        impl From<$t> for Value {
            fn from($value: $t) -> Self {
                $made
            }
        }
    )+};
}

value_of! {
    bool: value => Self::Bool(value);
    i32: value => Self::Int(value.into());
    i64: value => Self::Int(value.into());
    u32: value => Self::Int(value.into());
    u64: value => Self::Int(value.into());
    usize: value => Self::Int(value as i128);
    f32: value => Self::Float(value.into());
    f64: value => Self::Float(value);
    &str: value => Self::Text(value.to_owned());
    String: value => Self::Text(value);
    Vec<f64>: value => Self::Floats(value);
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::None, Into::into)
    }
}

/// The type of a parameter that can be set by name.
///
/// ```
/// use shoal::fit::{Parameter, Value};
/// assert_eq!(f64::from_value("tolerance", Value::Int(1)).unwrap(), 1.0);
/// assert_eq!(Option::<u64>::from_value("max_iter", Value::None).unwrap(), None);
/// let refused = u64::from_value("max_iter", Value::Float(0.5)).unwrap_err();
/// assert_eq!(refused.to_string(), "max_iter must be an integer of at least 0, got 0.5");
/// assert_eq!(Some(7u64).to_value(), Value::Int(7));
/// ```
pub trait Parameter: Sized {
    /// The value of the parameter `name`.
    ///
    /// # Errors
    /// [`InvalidParam`] with the expected type, for a value of another type.
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam>;

    /// The value from which [`from_value`](Self::from_value) makes this parameter.
    fn to_value(&self) -> Value;
}

/// Gives an option with a text form its `FromStr`: `parsed! { Option("option") }`.
macro_rules! parsed {
    ($option:ident($called:literal)) => {
        impl std::str::FromStr for $option {
            type Err = $crate::error::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Ok($crate::fit::Parameter::from_value($called, $crate::fit::Value::parse(text))?)
            }
        }
    };
}
pub(crate) use parsed;

macro_rules! plain_parameters {
    ($($t:ty: $expected:literal { $($pattern:pat $(if $holds:expr)? => $made:expr,)+ })+) => {$(
        impl Parameter for $t {
            fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
                match value {
                    $($pattern $(if $holds)? => Ok($made),)+
                    other => Err(InvalidParam::new(name, $expected, other)),
                }
            }

            fn to_value(&self) -> Value {
                (*self).into()
            }
        }
    )+};
}

plain_parameters! {
    bool: "true or false" { Value::Bool(value) => value, }
    u64: "an integer of at least 0" { Value::Int(value) if Self::try_from(value).is_ok() => value as Self, }
    usize: "an integer of at least 0" { Value::Int(value) if Self::try_from(value).is_ok() => value as Self, }
    f64: "a number" { Value::Float(value) => value, Value::Int(value) => value as Self, }
}

impl Parameter for Vec<f64> {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Floats(values) => Ok(values),
            other => Err(InvalidParam::new(name, "several numbers", other)),
        }
    }

    fn to_value(&self) -> Value {
        self.clone().into()
    }
}

impl<T: Parameter> Parameter for Option<T> {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        if value == Value::None {
            return Ok(None);
        }
        T::from_value(name, value).map(Some).map_err(InvalidParam::or_none)
    }

    fn to_value(&self) -> Value {
        self.as_ref().map(T::to_value).into()
    }
}

impl<T: Named> Parameter for T {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Text(text) => Self::of_name(name, &text),
            other => {
                let names: Vec<String> = Self::NAMED.iter().map(|(_, name)| format!("{name:?}")).collect();
                Err(InvalidParam::new(name, format!("one of {}", names.join(", ")), other))
            }
        }
    }

    fn to_value(&self) -> Value {
        let known = Self::NAMED.iter().find(|(value, _)| value == self);
        known.map(|&(_, name)| name).into()
    }
}

/// The parameters of a method, by their names.
///
/// ```
/// use shoal::fit::{Params, Value};
/// fn set_all<P: Params>(params: &mut P, given: &[(&str, Value)]) -> shoal::Result<()> {
///     given.iter().try_for_each(|(name, value)| params.set(name, value.clone()))
/// }
/// let mut params = shoal::KMeans::params(8);
/// set_all(&mut params, &[("n_init", 3.into()), ("metric", "cosine".into())]).unwrap();
/// assert!(set_all(&mut params, &[("n_starts", 3.into())]).is_err());
/// assert_eq!(params.get("n_init").unwrap(), Value::Int(3));
/// ```
pub trait Params: Clone + Send + Sync {
    /// The names of all parameters.
    const NAMES: &'static [&'static str];

    /// Parameters for this number of clusters, all others at their defaults.
    fn new(n_clusters: usize) -> Self;

    /// Sets the parameter called `name`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for an unknown name, and for a value of another type.
    fn set(&mut self, name: &str, value: Value) -> Result<()>;

    /// The value of the parameter called `name`.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for an unknown name.
    fn get(&self, name: &str) -> Result<Value>;

    /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] that lists every problem.
    fn check(&self, n: Option<u64>, dim: usize) -> Result<()>;

    /// The number of threads that the parameters ask for; `None` for the default.
    fn threads(&self) -> Option<usize>;
}

/// Declares the parameters of a method once: the struct, the constructor, a setter per parameter, access by
/// name, and the ranges. All methods also have the parameter `threads`.
///
/// ```ignore
/// parameters! {
///     /// The documentation of the struct.
///     KMeansParams,
///     /// The documentation of the constructor, whose argument has no setter but can be set by name.
///     KMeans::params(n_clusters) {
///         /// The documentation of the setter.
///         name: Type = default => range,
///         /// Without a range, and with a setter that takes `impl Into<Option<f64>>`.
///         name: Option<f64> as impl Into<Option<f64>> = None,
///     }
///     /// The example of `check`. Without this line, the method has a `check` of its own.
///     check;
/// }
/// ```
macro_rules! parameters {
    (
        $(#[$about_struct:meta])* $params:ident,
        $(#[$about_new:meta])* $method:ident::params($fixed:ident) {
            $($(#[$about:meta])* $name:ident: $t:ty $(as $given:ty)? = $default:expr $(=> $range:expr)?),* $(,)?
        }
        $($(#[$about_check:meta])* check;)?
    ) => {
        $(#[$about_struct])*
        #[derive(Clone, Debug)]
        pub struct $params {
            pub(crate) $fixed: usize,
            $(pub(crate) $name: $t,)*
            pub(crate) threads: Option<usize>,
        }

        impl $method {
            $(#[$about_new])*
            pub fn params($fixed: usize) -> $params {
                $params { $fixed, $($name: $default,)* threads: None }
            }
        }

        impl $params {
            /// The names of all parameters.
            pub const NAMES: &'static [&'static str] = &[stringify!($fixed), $(stringify!($name),)* "threads"];

            $($crate::fit::parameters!(@setter [$(#[$about])*] $name: $t $(as $given)?);)*

            /// Number of threads (default `None`: see [`Executor::new`](crate::Executor::new)). The result does
            /// not depend on it.
            #[doc(alias = "n_jobs")]
            #[must_use]
            pub fn threads(mut self, threads: Option<usize>) -> Self {
                self.threads = threads;
                self
            }

            /// Sets the parameter called `name`. [`NAMES`](Self::NAMES) lists the names: those of the setters
            /// and of the arguments of the constructor. See [`Value`](crate::fit::Value) for an example.
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam) for an unknown name, and for a value of
            /// another type. [`check`](Self::check) checks the ranges of all values.
            pub fn set(&mut self, name: &str, value: $crate::fit::Value) -> $crate::error::Result<()> {
                match name {
                    stringify!($fixed) => {
                        self.$fixed = $crate::fit::Parameter::from_value(stringify!($fixed), value)?;
                    }
                    $(stringify!($name) => {
                        self.$name = $crate::fit::Parameter::from_value(stringify!($name), value)?;
                    })*
                    "threads" => self.threads = $crate::fit::Parameter::from_value("threads", value)?,
                    _ => return Err($crate::names::unknown_name("parameter", name, Self::NAMES).into()),
                }
                Ok(())
            }

            /// The value of the parameter called `name`. See [`Params`](crate::fit::Params) for an example.
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam) for an unknown name.
            pub fn get(&self, name: &str) -> $crate::error::Result<$crate::fit::Value> {
                match name {
                    stringify!($fixed) => Ok($crate::fit::Parameter::to_value(&self.$fixed)),
                    $(stringify!($name) => Ok($crate::fit::Parameter::to_value(&self.$name)),)*
                    "threads" => Ok($crate::fit::Parameter::to_value(&self.threads)),
                    _ => Err($crate::names::unknown_name("parameter", name, Self::NAMES).into()),
                }
            }

            /// The problems of single parameters, for `n` rows of `dim` columns.
            fn problems(&self, n: Option<u64>, dim: usize) -> $crate::fit::Problems {
                #[allow(unused_imports)]
                use $crate::fit::{Range, at_least_1, finite_at_least_0, from_0_to_1};
                let mut problems = $crate::fit::Problems::new();
                problems.clusters(stringify!($fixed), self.$fixed, n);
                $($(problems.range(stringify!($name), self.$name, $range);)?)*
                problems.columns(dim);
                problems
            }
        }

        $($crate::fit::parameters!(@check [$(#[$about_check])*] $params);)?

        impl $crate::fit::Params for $params {
            const NAMES: &'static [&'static str] = Self::NAMES;

            fn new($fixed: usize) -> Self {
                $method::params($fixed)
            }

            fn set(&mut self, name: &str, value: $crate::fit::Value) -> $crate::error::Result<()> {
                self.set(name, value)
            }

            fn get(&self, name: &str) -> $crate::error::Result<$crate::fit::Value> {
                self.get(name)
            }

            fn check(&self, n: Option<u64>, dim: usize) -> $crate::error::Result<()> {
                self.check(n, dim)
            }

            fn threads(&self) -> Option<usize> {
                self.threads
            }
        }
    };
    (@check [$($about:tt)*] $params:ident) => {
        impl $params {
            /// Checks the parameters against data of `n` rows, if their number is known, and `dim` columns.
            ///
            $($about)*
            ///
            /// # Errors
            /// [`Error::InvalidParam`](crate::Error::InvalidParam) that lists every problem.
            pub fn check(&self, n: Option<u64>, dim: usize) -> $crate::error::Result<()> {
                self.problems(n, dim).into_result()
            }
        }
    };
    (@setter [$($about:tt)*] $name:ident: $t:ty) => {
        $($about)*
        #[must_use]
        pub fn $name(mut self, $name: $t) -> Self {
            self.$name = $name;
            self
        }
    };
    (@setter [$($about:tt)*] $name:ident: $t:ty as $given:ty) => {
        $($about)*
        #[must_use]
        pub fn $name(mut self, $name: $given) -> Self {
            self.$name = $name.into();
            self
        }
    };
}
pub(crate) use parameters;

/// The range of a parameter: a test, and the text of its error.
#[derive(Clone, Copy)]
pub(crate) struct Range<T>(pub(crate) fn(T) -> bool, pub(crate) &'static str);

pub(crate) fn at_least_1<T: PartialOrd + From<u8>>() -> Range<T> {
    Range(|value| value >= T::from(1), "at least 1")
}

pub(crate) fn finite_at_least_0() -> Range<f64> {
    Range(|value| value.is_finite() && value >= 0.0, "a finite number of at least 0")
}

pub(crate) fn from_0_to_1() -> Range<f64> {
    Range(|value| (0.0..=1.0).contains(&value), "from 0 to 1")
}

/// A parameter that can have a range. `None` is always in range.
pub(crate) trait Ranged {
    /// The type of the values in the range.
    type Value: Copy + Display;

    /// The value to test.
    fn value(self) -> Option<Self::Value>;
}

impl<T: Ranged> Ranged for Option<T> {
    type Value = T::Value;

    fn value(self) -> Option<T::Value> {
        self.and_then(T::value)
    }
}

/// Lets parameters of these types have ranges.
macro_rules! ranged {
    ($($t:ty),+) => {$(
        impl $crate::fit::Ranged for $t {
            type Value = Self;

            fn value(self) -> Option<Self> {
                Some(self)
            }
        }
    )+};
}
pub(crate) use ranged;

ranged! { u64, usize, f64 }

/// Collects all problems of a set of parameters, to report them at once.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<InvalidParam>);

impl Problems {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds the problem that `name` must be `expected`, unless `holds`.
    pub(crate) fn require(
        &mut self,
        holds: bool,
        name: &'static str,
        expected: impl Into<String>,
        got: impl Display,
    ) {
        if !holds {
            self.0.push(InvalidParam::new(name, expected, got));
        }
    }

    /// Requires a value in this range.
    pub(crate) fn range<P: Ranged>(&mut self, name: &'static str, value: P, range: Range<P::Value>) {
        if let Some(value) = value.value() {
            self.require(range.0(value), name, range.1, value);
        }
    }

    /// Requires a count of at least 1.
    pub(crate) fn at_least_1(&mut self, name: &'static str, value: u64) {
        self.range(name, value, at_least_1());
    }

    /// Requires a finite number of at least 0.
    pub(crate) fn finite_at_least_0(&mut self, name: &'static str, value: f64) {
        self.range(name, value, finite_at_least_0());
    }

    /// Requires a number of clusters that is at most [`MAX_CENTERS`] and at most the number of rows, if known.
    pub(crate) fn clusters(&mut self, name: &'static str, k: usize, n: Option<u64>) {
        if k == 0 || k > MAX_CENTERS {
            self.require(false, name, format!("in 1..={MAX_CENTERS}"), k);
        } else if let Some(n) = n {
            self.require(k as u64 <= n, name, format!("at most the number of rows, {n}"), k);
        }
    }

    /// Requires a number of neighbors that is below the number of rows, if known.
    pub(crate) fn neighbors(&mut self, m: usize, n: Option<u64>) {
        match n {
            Some(n) => {
                let allowed = format!("at least 1 and less than the number of rows, {n}");
                self.require(m > 0 && (m as u64) < n, "n_neighbors", allowed, m);
            }
            None => self.at_least_1("n_neighbors", m as u64),
        }
    }

    /// Requires at least one column.
    pub(crate) fn columns(&mut self, dim: usize) {
        self.at_least_1("columns", dim as u64);
    }

    pub(crate) fn into_result(self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::InvalidParam(self.0)) }
    }
}
