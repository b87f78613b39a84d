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
///
/// ```
/// assert_eq!(shoal::persist::schema::FORMAT, 1);
/// ```
pub const FORMAT: u32 = 1;

/// The kind of a file with a fitted k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::KMEANS_MODEL, "kmeans-model");
/// ```
pub const KMEANS_MODEL: &str = "kmeans-model";

/// The kind of a file with a fitted mini-batch k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::MINIBATCH_MODEL, "minibatch-kmeans-model");
/// ```
pub const MINIBATCH_MODEL: &str = "minibatch-kmeans-model";

/// The kind of contents with the state of mini-batch k-means between two batches.
///
/// ```
/// assert_eq!(shoal::persist::schema::MINIBATCH_STATE, "minibatch-kmeans-state");
/// ```
pub const MINIBATCH_STATE: &str = "minibatch-kmeans-state";

/// The kind of a file with a fitted nested mini-batch k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::NESTED_MODEL, "nested-kmeans-model");
/// ```
pub const NESTED_MODEL: &str = "nested-kmeans-model";

/// The kind of contents with the state of nested mini-batch k-means between two calls.
///
/// ```
/// assert_eq!(shoal::persist::schema::NESTED_STATE, "nested-kmeans-state");
/// ```
pub const NESTED_STATE: &str = "nested-kmeans-state";

/// The kind of a file with a checkpoint of a k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::KMEANS_CHECKPOINT, "kmeans-checkpoint");
/// ```
pub const KMEANS_CHECKPOINT: &str = "kmeans-checkpoint";

/// The kind of a file with a fitted hierarchical k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::HIERARCHICAL_MODEL, "hierarchical-kmeans-model");
/// ```
pub const HIERARCHICAL_MODEL: &str = "hierarchical-kmeans-model";

/// The kind of a file with a checkpoint of a hierarchical k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::HIERARCHICAL_CHECKPOINT, "hierarchical-kmeans-checkpoint");
/// ```
pub const HIERARCHICAL_CHECKPOINT: &str = "hierarchical-kmeans-checkpoint";

/// The kind of a file with a checkpoint of a mini-batch k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::MINIBATCH_CHECKPOINT, "minibatch-kmeans-checkpoint");
/// ```
pub const MINIBATCH_CHECKPOINT: &str = "minibatch-kmeans-checkpoint";

/// The kind of a file with a checkpoint of a nested mini-batch k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::NESTED_CHECKPOINT, "nested-kmeans-checkpoint");
/// ```
pub const NESTED_CHECKPOINT: &str = "nested-kmeans-checkpoint";

/// The kind of a file with a fitted Gaussian mixture.
///
/// ```
/// assert_eq!(shoal::persist::schema::MIXTURE_MODEL, "gaussian-mixture-model");
/// ```
pub const MIXTURE_MODEL: &str = "gaussian-mixture-model";

/// The kind of a file with a checkpoint of a Gaussian mixture fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::MIXTURE_CHECKPOINT, "gaussian-mixture-checkpoint");
/// ```
pub const MIXTURE_CHECKPOINT: &str = "gaussian-mixture-checkpoint";

/// The kind of contents with the state of a streaming coreset.
///
/// ```
/// assert_eq!(shoal::persist::schema::STREAMING_CORESET, "streaming-coreset");
/// ```
pub const STREAMING_CORESET: &str = "streaming-coreset";

/// The kind of a file with a model fitted by stochastic backward Euler.
///
/// ```
/// assert_eq!(shoal::persist::schema::BACKWARD_EULER_MODEL, "backward-euler-kmeans-model");
/// ```
pub const BACKWARD_EULER_MODEL: &str = "backward-euler-kmeans-model";

/// The kind of contents with the state of stochastic backward Euler between two batches.
///
/// ```
/// assert_eq!(shoal::persist::schema::BACKWARD_EULER_STATE, "backward-euler-kmeans-state");
/// ```
pub const BACKWARD_EULER_STATE: &str = "backward-euler-kmeans-state";

/// The kind of a file with a checkpoint of a fit by stochastic backward Euler.
///
/// ```
/// assert_eq!(shoal::persist::schema::BACKWARD_EULER_CHECKPOINT, "backward-euler-kmeans-checkpoint");
/// ```
pub const BACKWARD_EULER_CHECKPOINT: &str = "backward-euler-kmeans-checkpoint";

/// The kind of a file with a fitted variance-reduced k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::VARIANCE_REDUCED_MODEL, "variance-reduced-kmeans-model");
/// ```
pub const VARIANCE_REDUCED_MODEL: &str = "variance-reduced-kmeans-model";

/// The kind of a file with a checkpoint of a variance-reduced k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::VARIANCE_REDUCED_CHECKPOINT, "variance-reduced-kmeans-checkpoint");
/// ```
pub const VARIANCE_REDUCED_CHECKPOINT: &str = "variance-reduced-kmeans-checkpoint";

/// The kind of a file with a fitted balanced k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::BALANCED_MODEL, "balanced-kmeans-model");
/// ```
pub const BALANCED_MODEL: &str = "balanced-kmeans-model";

/// The kind of a file with a checkpoint of a balanced k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::BALANCED_CHECKPOINT, "balanced-kmeans-checkpoint");
/// ```
pub const BALANCED_CHECKPOINT: &str = "balanced-kmeans-checkpoint";

/// The kind of a file with a fitted breathing k-means model.
///
/// ```
/// assert_eq!(shoal::persist::schema::BREATHING_MODEL, "breathing-kmeans-model");
/// ```
pub const BREATHING_MODEL: &str = "breathing-kmeans-model";

/// The kind of a file with a checkpoint of a breathing k-means fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::BREATHING_CHECKPOINT, "breathing-kmeans-checkpoint");
/// ```
pub const BREATHING_CHECKPOINT: &str = "breathing-kmeans-checkpoint";

/// The kind of a file with a fitted Laplacian K-modes model.
///
/// ```
/// assert_eq!(shoal::persist::schema::KMODES_MODEL, "laplacian-kmodes-model");
/// ```
pub const KMODES_MODEL: &str = "laplacian-kmodes-model";

/// The kind of a file with a checkpoint of a Laplacian K-modes fit.
///
/// ```
/// assert_eq!(shoal::persist::schema::KMODES_CHECKPOINT, "laplacian-kmodes-checkpoint");
/// ```
pub const KMODES_CHECKPOINT: &str = "laplacian-kmodes-checkpoint";

/// The kind of bytes with a partial result of a pass over partitions.
///
/// ```
/// assert_eq!(shoal::persist::schema::PARTIAL, "distributed-partial");
/// ```
pub const PARTIAL: &str = "distributed-partial";

/// The kind of bytes with a sweep of k-means over partitions.
///
/// ```
/// assert_eq!(shoal::persist::schema::KMEANS_PASS, "distributed-kmeans-pass");
/// ```
pub const KMEANS_PASS: &str = "distributed-kmeans-pass";

/// The kind of bytes with an epoch of mini-batch k-means over partitions.
///
/// ```
/// assert_eq!(shoal::persist::schema::MINIBATCH_PASS, "distributed-minibatch-pass");
/// ```
pub const MINIBATCH_PASS: &str = "distributed-minibatch-pass";

/// The kind of bytes with a pass of k-means|| over partitions.
///
/// ```
/// assert_eq!(shoal::persist::schema::SEED_PASS, "distributed-seed-pass");
/// ```
pub const SEED_PASS: &str = "distributed-seed-pass";

/// The kind of bytes with a pass of a lightweight coreset over partitions.
///
/// ```
/// assert_eq!(shoal::persist::schema::CORESET_PASS, "distributed-coreset-pass");
/// ```
pub const CORESET_PASS: &str = "distributed-coreset-pass";

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
