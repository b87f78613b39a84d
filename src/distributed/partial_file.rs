//! Partial results as bytes. Reading checks everything: the bytes may come from anywhere.

use serde_json::{Value, json};

use super::clusters::ClusterTotals;
use super::events::{Events, Measured};
use super::extent::names_of;
use super::numbers::{exact, exact_of, size_of_object};
use super::partial::{About, Partial};
use super::pieces::{Piece, Pieces};
use super::place::Place;
use super::seed_sums::{Draws, Votes};
use super::sums::{AnySums, Sums};
use crate::error::{Error, Result};
use crate::persist::kept::{count, flag, keep, list, text};
use crate::persist::schema::PARTIAL;
use crate::persist::{Array, Contents, from_bytes, to_bytes};

/// What messages call bytes that are read.
const NAME: &str = "the partial result";

/// Reads sums of one kind.
type Reader = fn(&Contents, u64, usize) -> Result<AnySums, String>;

/// The kinds of sums, with their names in files.
const READERS: [(&str, Reader); 5] = [
    (ClusterTotals::KIND, read::<ClusterTotals>),
    (Draws::KIND, read::<Draws>),
    (Votes::KIND, read::<Votes>),
    (Measured::KIND, read::<Measured>),
    (Events::KIND, read::<Events>),
];

fn read<S: Sums>(contents: &Contents, rows: u64, dim: usize) -> Result<AnySums, String> {
    let sums = S::of_file(contents, dim)?;
    if sums.fits(rows, dim) {
        Ok(AnySums::new(sums))
    } else {
        Err("its sums do not belong to its rows".into())
    }
}

/// Reads what [`AnySums::to_file`] wrote, of `rows` rows of `dim` values (0 if no partition has rows).
fn sums_of_file(kind: &str, contents: &Contents, rows: u64, dim: usize) -> Result<AnySums, String> {
    let known = READERS.iter().find(|(name, _)| *name == kind);
    let (_, read) = known.ok_or_else(|| format!("it holds {kind:?}, which no pass sums"))?;
    read(contents, rows, dim)
}

impl Partial {
    /// The partial result as bytes, in the safetensors format. Equal results have equal bytes.
    ///
    /// ```
    /// use shoal::{Executor, Metric, distributed::{KMeansPass, Partial, Place}};
    /// let task = KMeansPass::new(&[0.0f32, 9.0], 1, Metric::Euclidean)?;
    /// let part = task.absorb(&[[1.0f32]], Place::Partition(0), &Executor::new(Some(1))?)?;
    /// let bytes = part.to_bytes()?;
    /// assert_eq!(Partial::from_bytes(&bytes)?.to_bytes()?, bytes);
    /// assert!(Partial::from_bytes(&bytes[1..]).is_err());
    /// # Ok::<(), shoal::Error>(())
    /// ```
    ///
    /// # Errors
    /// None for results of this crate.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut contents = Contents::new(PARTIAL);
        let kind = self.sums.as_ref().map(AnySums::kind);
        let about = self.about.as_ref().map(|about| {
            json!({
                "dim": about.dim,
                "stored": about.stored,
                "partition": matches!(about.place, Place::Partition(_)),
                "place": exact(about.place.number()),
                "weighted": about.weighted,
                "sparse": about.sparse,
                "names": about.names.as_deref(),
                "zeros": about.zeros,
            })
        });
        let all = json!({
            "pass": self.pass.map(exact),
            "by_row": self.pieces.by_row,
            "kind": kind,
            "about": about,
        });
        contents.meta.insert("partial".into(), all.to_string());
        let numbers = |f: fn(&Piece) -> u64| self.pieces.list.iter().map(f).collect::<Vec<u64>>();
        let n = self.pieces.list.len();
        for (name, values) in [
            ("starts", numbers(|piece| piece.start)),
            ("rows", numbers(|piece| piece.rows)),
            ("blocks", numbers(|piece| piece.blocks)),
        ] {
            keep(&mut contents, name, Array::new(&[n], &values));
        }
        if let Some(sums) = &self.sums {
            contents.put("sums", sums.to_file());
        }
        to_bytes(&contents)
    }

    /// Reads what [`Partial::to_bytes`] wrote. Runs no code, and checks everything.
    ///
    /// # Errors
    /// [`Error::Format`] for bytes that are damaged, truncated or of another kind.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let contents = from_bytes(NAME, bytes)?;
        Self::of_contents(&contents).map_err(|problem| Error::format(NAME, problem))
    }

    fn of_contents(contents: &Contents) -> std::result::Result<Self, String> {
        contents.must_be(PARTIAL)?;
        let all = contents.object("partial")?;
        let pass =
            if all.get("pass").is_none_or(Value::is_null) { None } else { Some(exact_of(&all, "pass")?) };
        let by_row = flag(&all, "by_row")?;
        let about = match all.get("about") {
            None | Some(Value::Null) => None,
            Some(about) => {
                let about = about.as_object().ok_or("\"about\" must be an object")?;
                let dim = size_of_object(about, "dim")?;
                let number = exact_of(about, "place")?;
                let whole = flag(about, "partition")?;
                let place = if whole { Place::Partition(number) } else { Place::FirstRow(number) };
                place.check().map_err(|e| e.to_string())?;
                if whole == by_row {
                    return Err("its parts do not match each other".into());
                }
                let (weighted, zeros) = (flag(about, "weighted")?, count(about, "zeros")?);
                // Results of the first version have no names, and do not tell whether they are sparse.
                let sparse = about.contains_key("sparse") && flag(about, "sparse")?;
                let (stored, names) = (text(about, "stored")?, names_of(about, dim)?);
                Some(About { dim, stored, place, weighted, sparse, zeros, names })
            }
        };
        let dim = about.as_ref().map_or(0, |about| about.dim);
        let starts: Vec<u64> = list(contents, "starts")?;
        let n = starts.len();
        let [rows, blocks] = ["rows", "blocks"].map(|name| contents.values::<u64>(name, &[n]));
        let (rows, blocks) = (rows?, blocks?);
        let piece = |i: usize| Piece { start: starts[i], rows: rows[i], blocks: blocks[i] };
        let pieces = Pieces::of(by_row, (0..n).map(piece).collect())?;
        // `Pieces::of` bounds the sum.
        let n_rows = pieces.rows();
        let own = contents.part("sums");
        let sums = own.map(|own| sums_of_file(&text(&all, "kind")?, &own, n_rows, dim)).transpose()?;
        let known = pass.is_some() == sums.is_some() && (pass.is_some() || n == 0);
        let fits = about.as_ref().map_or(n_rows == 0, |about| n_rows > 0 && about.zeros <= n_rows);
        if !known || !fits {
            return Err("its parts do not match each other".into());
        }
        Ok(Self { pass, about, pieces, sums })
    }
}
