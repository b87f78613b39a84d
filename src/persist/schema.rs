//! The texts that mark a safetensors file as one of shoal: kind, format and version.
//!
//! | text | meaning |
//! |---|---|
//! | `shoal.format` | version of this table, now `"1"`; a file with a higher version returns an error |
//! | `shoal.kind` | what the file holds, for example `"kmeans-model"` |
//! | `shoal.version` | the version of shoal that wrote it |
//! | `shoal.<name>` | other texts of the kind: `params` and `fitted` are JSON |

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value};

use super::array::{Array, Number};
use super::file::{self, Opened};
use crate::error::{Error, Result};

/// The format version that is written, and the highest that can be read.
pub(crate) const FORMAT: u32 = 1;

// Kinds of files with a fitted model.
pub(crate) const KMEANS_MODEL: &str = "kmeans-model";
pub(crate) const MINIBATCH_MODEL: &str = "minibatch-kmeans-model";
pub(crate) const NESTED_MODEL: &str = "nested-kmeans-model";
pub(crate) const HIERARCHICAL_MODEL: &str = "hierarchical-kmeans-model";
pub(crate) const MIXTURE_MODEL: &str = "gaussian-mixture-model";
pub(crate) const BACKWARD_EULER_MODEL: &str = "backward-euler-kmeans-model";
pub(crate) const VARIANCE_REDUCED_MODEL: &str = "variance-reduced-kmeans-model";
pub(crate) const BALANCED_MODEL: &str = "balanced-kmeans-model";
pub(crate) const BREATHING_MODEL: &str = "breathing-kmeans-model";
pub(crate) const KMODES_MODEL: &str = "laplacian-kmodes-model";

// Kinds of files with a checkpoint of a fit.
pub(crate) const KMEANS_CHECKPOINT: &str = "kmeans-checkpoint";
pub(crate) const HIERARCHICAL_CHECKPOINT: &str = "hierarchical-kmeans-checkpoint";
pub(crate) const MINIBATCH_CHECKPOINT: &str = "minibatch-kmeans-checkpoint";
pub(crate) const NESTED_CHECKPOINT: &str = "nested-kmeans-checkpoint";
pub(crate) const MIXTURE_CHECKPOINT: &str = "gaussian-mixture-checkpoint";
pub(crate) const BACKWARD_EULER_CHECKPOINT: &str = "backward-euler-kmeans-checkpoint";
pub(crate) const VARIANCE_REDUCED_CHECKPOINT: &str = "variance-reduced-kmeans-checkpoint";
pub(crate) const BALANCED_CHECKPOINT: &str = "balanced-kmeans-checkpoint";
pub(crate) const BREATHING_CHECKPOINT: &str = "breathing-kmeans-checkpoint";
pub(crate) const KMODES_CHECKPOINT: &str = "laplacian-kmodes-checkpoint";
#[cfg_attr(not(feature = "python"), allow(dead_code, reason = "only Python stores a search"))]
pub(crate) const DUPLICATES_CHECKPOINT: &str = "duplicates-checkpoint";

// Kinds of contents with a state between two batches.
pub(crate) const MINIBATCH_STATE: &str = "minibatch-kmeans-state";
pub(crate) const NESTED_STATE: &str = "nested-kmeans-state";
pub(crate) const STREAMING_CORESET: &str = "streaming-coreset";
pub(crate) const BACKWARD_EULER_STATE: &str = "backward-euler-kmeans-state";

// Kinds of bytes for passes over partitions, and of their results.
pub(crate) const PARTIAL: &str = "distributed-partial";
pub(crate) const KMEANS_PASS: &str = "distributed-kmeans-pass";
pub(crate) const SEED_PASS: &str = "distributed-seed-pass";
pub(crate) const CORESET_PASS: &str = "distributed-coreset-pass";

const PREFIX: &str = "shoal.";
/// Texts that every file has.
const RESERVED: [&str; 3] = ["format", "kind", "version"];

/// The contents of a file: its kind, arrays and texts.
///
/// See the [module](super) for an example.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// The kind, for example `"kmeans-model"`.
    pub kind: String,
    /// Arrays by name.
    pub arrays: BTreeMap<String, Array>,
    /// Texts by name, without the prefix `shoal.`. Reading adds `"version"`, the version of shoal that wrote
    /// the file.
    pub meta: BTreeMap<String, String>,
}

impl Contents {
    /// Empty contents of a kind.
    ///
    /// ```
    /// assert!(shoal::persist::Contents::new("pair").arrays.is_empty());
    /// ```
    pub fn new(kind: &str) -> Self {
        Self { kind: kind.into(), ..Self::default() }
    }

    /// The values of an array.
    ///
    /// # Errors
    /// A text that describes the problem, if the array is missing or has another type or shape.
    ///
    /// ```
    /// use shoal::persist::{Array, Contents};
    /// let mut contents = Contents::new("pair");
    /// contents.arrays.insert("values".into(), Array::new(&[2], &[1.5f64, -2.0]).unwrap());
    /// assert_eq!(contents.values::<f64>("values", &[2]).unwrap(), [1.5, -2.0]);
    /// assert!(contents.values::<f64>("values", &[1, 2]).unwrap_err().contains("got [2]"));
    /// assert_eq!(contents.values::<f64>("others", &[2]).unwrap_err(), "lacks the array \"others\"");
    /// ```
    pub fn values<E: Number>(&self, name: &str, shape: &[usize]) -> Result<Vec<E>, String> {
        let array = self.array(name)?;
        if array.shape() != shape {
            return Err(format!("array {name:?} must have shape {shape:?}, got {:?}", array.shape()));
        }
        let wrong = || format!("array {name:?} must be of type {}, got {}", E::DTYPE, array.dtype());
        array.values().ok_or_else(wrong)
    }

    /// An array by name.
    ///
    /// # Errors
    /// A text that names the array, if it is missing.
    ///
    /// ```
    /// assert!(shoal::persist::Contents::new("pair").array("values").is_err());
    /// ```
    pub fn array(&self, name: &str) -> Result<&Array, String> {
        self.arrays.get(name).ok_or_else(|| format!("lacks the array {name:?}"))
    }

    /// Returns an error text if the contents have another kind.
    pub(crate) fn must_be(&self, kind: &str) -> Result<(), String> {
        if self.kind == kind { Ok(()) } else { Err(format!("holds a {:?}, not a {kind:?}", self.kind)) }
    }

    /// Adds the contents of `part`, with `name` and a dot as the prefix of their names.
    pub(crate) fn put(&mut self, name: &str, part: Self) {
        self.arrays.extend(part.arrays.into_iter().map(|(own, array)| (format!("{name}.{own}"), array)));
        self.meta.extend(part.meta.into_iter().map(|(own, text)| (format!("{name}.{own}"), text)));
    }

    /// The contents that were [`put`](Self::put) under `name`, if any.
    pub(crate) fn part(&self, name: &str) -> Option<Self> {
        // The names of a part are neighbors, so that reading all parts of a file takes no search through the others.
        fn of<V: Clone>(all: &BTreeMap<String, V>, prefix: &str) -> BTreeMap<String, V> {
            let own = all
                .range(prefix.to_owned()..)
                .map_while(|(full, value)| Some((full.strip_prefix(prefix)?, value)));
            own.map(|(own, value)| (own.to_owned(), value.clone())).collect()
        }
        let prefix = format!("{name}.");
        let part = Self {
            kind: self.kind.clone(),
            arrays: of(&self.arrays, &prefix),
            meta: of(&self.meta, &prefix),
        };
        (!part.arrays.is_empty() || !part.meta.is_empty()).then_some(part)
    }

    /// Parses a text that holds a JSON object.
    ///
    /// # Errors
    /// A text that describes the problem, if the text is missing or not a JSON object.
    ///
    /// ```
    /// let mut contents = shoal::persist::Contents::new("pair");
    /// contents.meta.insert("params".into(), r#"{"n": 3}"#.into());
    /// assert_eq!(contents.object("params").unwrap()["n"], 3);
    /// assert!(contents.object("fitted").is_err());
    /// ```
    pub fn object(&self, name: &str) -> Result<Map<String, Value>, String> {
        let text = self.meta.get(name).ok_or_else(|| format!("lacks the text \"{PREFIX}{name}\""))?;
        serde_json::from_str(text).map_err(|e| format!("has a damaged text \"{PREFIX}{name}\": {e}"))
    }
}

/// Writes a file. An existing file is replaced atomically. A text called `version` is replaced by the current
/// version.
///
/// # Errors
/// [`Error::Io`] if writing fails; no temporary file is left. [`Error::InvalidParam`] if a text is called
/// `format` or `kind`, or an array `__metadata__`.
///
/// See the [module](super) for an example.
pub fn write(path: impl AsRef<Path>, contents: &Contents) -> Result<()> {
    file::write(path.as_ref(), &contents.arrays, &texts_of(contents)?)
}

/// The bytes of the file that [`write()`] would write.
pub(crate) fn to_bytes(contents: &Contents) -> Result<Vec<u8>> {
    file::bytes_of(&contents.arrays, &texts_of(contents)?)
}

/// All texts of a file.
fn texts_of(contents: &Contents) -> Result<BTreeMap<String, String>> {
    let mut texts = BTreeMap::new();
    for (name, text) in &contents.meta {
        if RESERVED[..2].contains(&name.as_str()) {
            return Err(Error::param(
                "name of a text",
                format!("other than {:?} and {:?}, which every file has", RESERVED[0], RESERVED[1]),
                format!("{name:?}"),
            ));
        }
        texts.insert(format!("{PREFIX}{name}"), text.clone());
    }
    let own = [FORMAT.to_string(), contents.kind.clone(), env!("CARGO_PKG_VERSION").to_string()];
    texts.extend(RESERVED.iter().map(|name| format!("{PREFIX}{name}")).zip(own));
    Ok(texts)
}

/// Reads a file that [`write()`] or the Python package wrote.
///
/// # Errors
/// [`Error::Io`] if reading fails. [`Error::Format`], with the file name, if the file is damaged, truncated,
/// not written by shoal, or has a newer format.
///
/// See the [module](super) for an example.
pub fn read(path: impl AsRef<Path>) -> Result<Contents> {
    let path = path.as_ref();
    contents_of(path, Opened::new(path)?)
}

/// Reads the bytes of a file; errors call them `name`.
pub(crate) fn from_bytes(name: &str, bytes: &[u8]) -> Result<Contents> {
    let path = Path::new(name);
    contents_of(path, Opened::of(path, bytes, bytes.len() as u64)?)
}

fn contents_of<R: Read>(path: &Path, opened: Opened<R>) -> Result<Contents> {
    let meta: BTreeMap<String, String> = opened
        .texts()
        .filter_map(|(name, text)| Some((name.strip_prefix(PREFIX)?.to_owned(), text.to_owned())))
        .collect();
    let (kind, meta) = checked(meta).map_err(|problem| Error::format(path, problem))?;
    Ok(Contents { kind, arrays: opened.arrays()?, meta })
}

/// The kind and the remaining texts, after checking the format.
fn checked(mut meta: BTreeMap<String, String>) -> Result<(String, BTreeMap<String, String>), String> {
    let format = meta
        .remove("format")
        .ok_or("is a safetensors file, but not one of shoal: it has no \"shoal.format\"")?;
    let written_by = meta.get("version").map_or("another version", String::as_str);
    match format.parse::<u32>() {
        Ok(FORMAT) => {}
        Ok(later) if later > FORMAT => {
            return Err(format!(
                "is of format {later}, written by shoal {written_by}; this version reads formats up to {FORMAT}: update shoal"
            ));
        }
        _ => return Err(format!("is damaged: its \"shoal.format\" is {format:?}")),
    }
    let kind = meta.remove("kind").ok_or("is damaged: it has no \"shoal.kind\"")?;
    Ok((kind, meta))
}
