//! The errors of the crate.

use std::fmt::{self, Display};
use std::io;
use std::path::PathBuf;

/// An error of shoal. Messages name the parameter or file, what is allowed and what was given.
///
/// ```
/// let refused = shoal::KMeans::params(8).n_init(0).check(Some(5), 2).unwrap_err();
/// let text = "n_clusters must be at most the number of rows, 5, got 8; n_init must be at least 1, got 0";
/// assert_eq!(refused.to_string(), text);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One or more parameters are outside their range; all of them are listed.
    #[error("{}", listed(.0))]
    InvalidParam(Vec<InvalidParam>),
    /// Two things that must have the same shape differ.
    #[error("{0}")]
    Shape(String),
    /// A value that must be finite is NaN or infinite.
    #[error("{what} must be finite, got {value} at row {row}, column {column}{}", in_file(file.as_ref()))]
    NotFinite {
        /// What held the value, for example `rows` or `seeding`.
        what: &'static str,
        /// The value seen, as text.
        value: String,
        /// Row of the first such value.
        row: u64,
        /// Column of the first such value.
        column: usize,
        /// The file that holds the row and the number of the row there, if the rows come from several files.
        file: Option<(PathBuf, u64)>,
    },
    /// There are no rows.
    #[error("{0}")]
    Empty(String),
    /// A source does not provide what the method needs.
    #[error("{0}")]
    Source(String),
    /// A file is not of the expected format.
    #[error("{}: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// An operation on a file failed.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// Memory cannot be allocated.
    #[error("there is no memory for {0}")]
    Memory(String),
    /// An error of other code, for example of an iterator that yields rows.
    /// [`source`](std::error::Error::source) returns it too.
    #[error("{0}")]
    Foreign(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The work was interrupted through [`Interrupt`](crate::Interrupt).
    #[error("interrupted")]
    Interrupted,
}

/// A parameter outside its range.
///
/// ```
/// let shoal::Error::InvalidParam(wrong) = shoal::KMeans::params(2).max_iter(0).check(None, 3).unwrap_err() else { panic!() };
/// assert_eq!((wrong[0].name, &wrong[0].expected[..], &wrong[0].got[..]), ("max_iter", "at least 1", "0"));
/// assert_eq!(wrong[0].to_string(), "max_iter must be at least 1, got 0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvalidParam {
    /// The parameter.
    pub name: &'static str,
    /// What is allowed: it follows "must be".
    pub expected: String,
    /// What was given, as text.
    pub got: String,
    /// What to do instead, if there is something to say.
    pub remedy: Option<String>,
}

impl InvalidParam {
    pub(crate) fn new(name: &'static str, expected: impl Into<String>, got: impl Display) -> Self {
        Self { name, expected: expected.into(), got: got.to_string(), remedy: None }
    }

    /// The same, with what to do instead.
    #[must_use]
    pub(crate) fn with_remedy(self, remedy: impl Into<String>) -> Self {
        Self { remedy: Some(remedy.into()), ..self }
    }

    /// The same for a parameter that may be left out.
    #[must_use]
    pub(crate) fn or_none(self) -> Self {
        Self { expected: format!("{}, or none", self.expected), ..self }
    }
}

impl Display for InvalidParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, expected, got, remedy } = self;
        write!(f, "{name} must be {expected}, got {got}")?;
        remedy.iter().try_for_each(|remedy| write!(f, ": {remedy}"))
    }
}

impl std::error::Error for InvalidParam {}

impl From<InvalidParam> for Error {
    fn from(problem: InvalidParam) -> Self {
        Self::InvalidParam(vec![problem])
    }
}

/// All problems in one line.
fn listed(problems: &[InvalidParam]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Names a row of a file after the row of the whole source; an empty text without a file.
fn in_file(file: Option<&(PathBuf, u64)>) -> String {
    file.map(|(path, row)| format!(" (row {row} of {})", path.display())).unwrap_or_default()
}

/// `std::result::Result` with shoal's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error for a value of a row that is not finite.
    pub(crate) fn not_finite(what: &'static str, value: impl Display, row: u64, column: usize) -> Self {
        Self::NotFinite { what, value: value.to_string(), row, column, file: None }
    }

    /// The same error for a source that has these rows among others, as row `number(row)`.
    #[must_use]
    pub(crate) fn renumbered(mut self, number: impl FnOnce(u64) -> u64) -> Self {
        if let Self::NotFinite { what: "rows", row, .. } = &mut self {
            *row = number(*row);
        }
        self
    }

    /// The error for a source without rows.
    pub(crate) fn no_rows() -> Self {
        Self::Empty("`rows` hold no rows".into())
    }

    /// The error for a model before the first step.
    pub(crate) fn no_step() -> Self {
        Self::Source("a model needs at least one step: advance the run first".into())
    }

    /// Wraps an error of other code, so that a source of rows can return it.
    ///
    /// ```
    /// use shoal::Error;
    /// use shoal::data::{Chunks, DataSource};
    /// let broken = "five".parse::<f32>().unwrap_err();
    /// let stream = Chunks::<f32>::once(1, [Err(Error::foreign(broken))].into_iter());
    /// let failed = stream.for_each_block(1, &mut |_| unreachable!()).unwrap_err();
    /// assert_eq!(failed.to_string(), "invalid float literal");
    /// let cause = std::error::Error::source(&failed).unwrap();
    /// assert!(cause.is::<std::num::ParseFloatError>());
    /// ```
    pub fn foreign(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Foreign(error.into())
    }

    /// One invalid parameter.
    pub(crate) fn param(name: &'static str, expected: impl Into<String>, got: impl Display) -> Self {
        InvalidParam::new(name, expected, got).into()
    }

    /// A failed operation on the file `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// A file that is not of the expected format.
    pub(crate) fn format(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Format { path: path.into(), problem: problem.into() }
    }
}
