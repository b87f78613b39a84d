//! The error type of the crate.

use std::io;
use std::path::PathBuf;

/// The error type of all functions. Messages name the parameter or file, the value and the allowed values.
///
/// ```
/// let refused = shoal::KMeans::params(0).check(10, 2).unwrap_err();
/// assert!(refused.to_string().contains("n_clusters"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One or more parameters are invalid; all of them are listed.
    #[error("{}", .0.join("; "))]
    InvalidParam(Vec<String>),
    /// Two shapes that must agree differ.
    #[error("{0}")]
    Shape(String),
    /// A value that must be finite is NaN or infinite.
    #[error("{what} holds {value} at row {row}, column {column}: NaN and infinity are refused")]
    NotFinite {
        /// The name of the rows or values, for example `X` or `init`.
        what: &'static str,
        /// The value, as text.
        value: String,
        /// Row of the first such value.
        row: u64,
        /// Column of the first such value.
        column: usize,
    },
    /// There are no rows or no columns.
    #[error("{0}")]
    Empty(String),
    /// A source lacks the access that a method needs, or broke its contract.
    #[error("{0}")]
    Source(String),
    /// A file is damaged or has the wrong format.
    #[error("{}: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// An error of the operating system.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A result or buffer does not fit into memory.
    #[error("there is no memory for {0}")]
    Memory(String),
    /// An error of other code, unchanged: of a custom source, for example.
    #[error("{0}")]
    Foreign(Box<dyn std::error::Error + Send + Sync>),
    /// The work was interrupted.
    #[error("interrupted")]
    Interrupted,
}

/// `std::result::Result` with shoal's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps an error of other code.
    ///
    /// ```
    /// use shoal::Error;
    /// use shoal::data::{Chunks, DataSource};
    /// let broken = "five".parse::<f32>().unwrap_err();
    /// let stream = Chunks::<f32>::once(1, [Err(Error::foreign(broken))].into_iter());
    /// let failed = stream.for_each_block(1, &mut |_| unreachable!()).unwrap_err();
    /// assert_eq!(failed.to_string(), "invalid float literal");
    /// ```
    pub fn foreign(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Foreign(error.into())
    }

    /// One invalid parameter.
    pub(crate) fn param(message: impl Into<String>) -> Self {
        Self::InvalidParam(vec![message.into()])
    }

    /// An error of the operating system on `path`.
    pub(crate) fn io(path: impl Into<PathBuf>, source: io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// A file that is damaged or has the wrong format.
    pub(crate) fn format(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Format { path: path.into(), problem: problem.into() }
    }
}
