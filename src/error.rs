//! This module knows every way in which shoal can fail.

use std::io;
use std::path::PathBuf;

/// What went wrong. Messages name the parameter or file, what was given and what is allowed.
///
/// ```
/// let refused = shoal::KMeans::params(0).check(10, 2).unwrap_err();
/// assert!(refused.to_string().contains("n_clusters"));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One or more parameters are outside their range; all of them are listed.
    #[error("{}", .0.join("; "))]
    InvalidParam(Vec<String>),
    /// Two things that must have the same shape have not.
    #[error("{0}")]
    Shape(String),
    /// A value that must be finite is NaN or infinite.
    #[error("{what} holds {value} at row {row}, column {column}: NaN and infinity are refused")]
    NotFinite {
        /// What held the value, for example `X` or `init`.
        what: &'static str,
        /// The value seen, as text.
        value: String,
        /// Row of the first such value.
        row: u64,
        /// Column of the first such value.
        column: usize,
    },
    /// There is nothing to work on.
    #[error("{0}")]
    Empty(String),
    /// A source cannot do what the method needs of it.
    #[error("{0}")]
    Source(String),
    /// A file is not what it should be.
    #[error("{}: {problem}", .path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system refused.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's own error.
        source: io::Error,
    },
    /// Something is larger than the memory there is.
    #[error("there is no memory for {0}")]
    Memory(String),
    /// What code that shoal does not know said, as it was: a maker of rows, for example.
    #[error("{0}")]
    Foreign(Box<dyn std::error::Error + Send + Sync>),
    /// The work was interrupted from outside.
    #[error("interrupted")]
    Interrupted,
}

/// `std::result::Result` with shoal's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of somebody else's code, to be handed through.
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

    /// A file that is not what it should be.
    pub(crate) fn format(path: impl Into<PathBuf>, problem: impl Into<String>) -> Self {
        Self::Format { path: path.into(), problem: problem.into() }
    }
}
