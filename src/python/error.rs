//! Maps errors to Python exceptions. Messages name the parameters of the Python API.

use std::io::{self, ErrorKind};
use std::path::PathBuf;

use pyo3::PyErrArguments;
use pyo3::exceptions::{PyKeyboardInterrupt, PyMemoryError, PyOSError, PyRuntimeError, PyValueError};
use pyo3::import_exception;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::error::{Error, InvalidParam};

// Both take a message that marks the names of parameters with backticks.
import_exception!(shoal._checks.marked, MarkedError);
import_exception!(shoal._checks.marked, ParameterError);

/// Parameters whose names differ, in Rust and in Python.
const NAMES: [(&str, &str); 12] = [
    ("chain", "chain_length"),
    ("covariance", "covariance_type"),
    ("oversampling", "oversampling_factor"),
    ("rng_seed", "random_state"),
    ("rounds", "n_rounds"),
    ("rows", "X"),
    ("seeding", "init"),
    ("shift", "diagonal_shift"),
    ("start_with", "start"),
    ("threads", "n_jobs"),
    ("tolerance", "tol"),
    ("weights", "sample_weight"),
];

/// Budgets of parts of a method. An estimator has a single parameter for all of them.
const BUDGETS: [&str; 4] = ["bounds_memory", "buffer_memory", "memory_limit", "responsibilities_memory"];

/// What Python calls the parameter `name`.
pub(super) fn in_python(name: &str) -> &str {
    NAMES.iter().find(|(rust, _)| *rust == name).map_or(name, |(_, python)| python)
}

/// What Rust calls the parameter that Python calls `name`.
pub(super) fn in_rust(name: &str) -> &str {
    NAMES.iter().find(|(_, python)| *python == name).map_or(name, |(rust, _)| rust)
}

/// The message of a problem, with Python's names of the parameters in backticks.
fn told(problem: &InvalidParam) -> String {
    let text = problem.to_string();
    match text.strip_prefix(problem.name) {
        Some(rest) => renamed(&format!("`{}`{rest}", problem.name)),
        None => renamed(&text),
    }
}

/// Verbs after the name of a parameter. Names of Rust may be plurals, those of Python are singular.
const VERBS: [(&str, &str); 7] = [
    ("have ", "has "),
    ("has ", "has "),
    ("hold ", "holds "),
    ("holds ", "holds "),
    ("do ", "does "),
    ("are ", "is "),
    ("must ", "must "),
];

/// A message with Python's names of parameters in backticks: the first word, and words in backticks.
fn renamed(text: &str) -> String {
    let mut text = text.to_owned();
    for budget in BUDGETS {
        text = text.replace(&format!("`{budget}`"), "`memory`");
    }
    for (rust, python) in NAMES {
        for (verb, singular) in VERBS {
            text = text.replace(&format!("`{rust}` {verb}"), &format!("`{python}` {singular}"));
        }
        text = text.replace(&format!("`{rust}`"), &format!("`{python}`"));
    }
    let Some((first, rest)) = text.split_once(' ') else { return text };
    let name = in_python(first);
    let known = VERBS.iter().find_map(|(verb, singular)| Some((singular, rest.strip_prefix(verb)?)));
    match known {
        Some((singular, rest)) if name != first => format!("`{name}` {singular}{rest}"),
        _ => text,
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::InvalidParam(problems) => {
                ParameterError::new_err(problems.iter().map(told).collect::<Vec<_>>().join("; "))
            }
            Error::Shape(_) | Error::NotFinite { .. } | Error::Empty(_) | Error::Source(_) => {
                MarkedError::new_err(renamed(&error.to_string()))
            }
            Error::Format { path, problem } => PyValueError::new_err(Named { path, problem }),
            Error::Io { path, source } => match errno(&source) {
                // Python chooses the subclass of `OSError` by the error number.
                Some((number, text)) => PyOSError::new_err((number, text, path.into_os_string())),
                None => PyOSError::new_err(format!("{}: {source}", path.display())),
            },
            Error::Foreign(error) => match error.downcast::<Self>() {
                Ok(raised) => *raised,
                Err(other) => PyRuntimeError::new_err(other.to_string()),
            },
            Error::Memory(_) => PyMemoryError::new_err(error.to_string()),
            Error::Interrupted => PyKeyboardInterrupt::new_err(()),
        }
    }
}

/// A message that starts with a file name in Python's spelling, because names need not be UTF-8.
struct Named {
    path: PathBuf,
    problem: String,
}

impl PyErrArguments for Named {
    fn arguments(self, py: Python<'_>) -> Py<PyAny> {
        let text = format!("{}: {}", self.path.display(), self.problem);
        let exact = self.path.into_os_string().into_pyobject(py);
        let told = exact.map_err(PyErr::from).and_then(|name| name.add(format!(": {}", self.problem)));
        told.unwrap_or_else(|_| PyString::new(py, &text).into_any()).unbind()
    }
}

/// Error number and text of an operating system error.
fn errno(error: &io::Error) -> Option<(i32, String)> {
    let text = error.to_string();
    // Python adds the number itself.
    let text = text.split_once(" (os error").map_or(text.as_str(), |(text, _)| text).to_owned();
    if let Some(number) = error.raw_os_error() {
        return Some((number, text));
    }
    let number = match error.kind() {
        ErrorKind::NotFound => libc::ENOENT,
        ErrorKind::PermissionDenied => libc::EACCES,
        ErrorKind::IsADirectory => libc::EISDIR,
        ErrorKind::AlreadyExists => libc::EEXIST,
        ErrorKind::StorageFull => libc::ENOSPC,
        _ => return None,
    };
    Some((number, text))
}
