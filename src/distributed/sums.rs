//! What passes sum, for all kinds of passes.

use super::clusters::ClusterTotals;
use super::errors::of_others;
use super::events::{Events, Measured};
use super::seed_sums::{Draws, Votes};
use crate::error::Result;
use crate::persist::Contents;

/// The sums of a partition, or of several. The variants belong to different passes.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one per partial result, beside sums of k d values")]
pub(super) enum Sums {
    Clusters(ClusterTotals),
    Draws(Draws),
    Votes(Votes),
    Measured(Measured),
    Events(Events),
}

/// Calls the same function of every variant.
macro_rules! each {
    ($sums:expr, $of:ident => $body:expr) => {
        match $sums {
            Sums::Clusters($of) => $body,
            Sums::Draws($of) => $body,
            Sums::Votes($of) => $body,
            Sums::Measured($of) => $body,
            Sums::Events($of) => $body,
        }
    };
}

impl Sums {
    /// Adds the sums of the rows that follow.
    ///
    /// # Errors
    /// If the two do not have the same kind and shape, which only damaged partial results do.
    pub(super) fn add(&mut self, next: &Self) -> Result<()> {
        match (self, next) {
            (Self::Clusters(sums), Self::Clusters(next)) => sums.add(next),
            (Self::Draws(sums), Self::Draws(next)) => sums.add(next),
            (Self::Votes(sums), Self::Votes(next)) => sums.add(next),
            (Self::Measured(sums), Self::Measured(next)) => sums.add(next),
            (Self::Events(sums), Self::Events(next)) => sums.add(next),
            _ => Err(of_others()),
        }
    }

    /// The name of the kind, in files.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Clusters(_) => "clusters",
            Self::Draws(_) => "draws",
            Self::Votes(_) => "votes",
            Self::Measured(_) => "moments",
            Self::Events(_) => "events",
        }
    }

    pub(super) fn to_file(&self) -> Contents {
        let mut contents = Contents::new("");
        each!(self, sums => sums.put(&mut contents));
        contents
    }

    /// Reads what [`Sums::to_file`] wrote, of `n` rows of `dim` values (0 if no partition has rows).
    pub(super) fn of_file(kind: &str, contents: &Contents, n: u64, dim: usize) -> Result<Self, String> {
        let sums = match kind {
            "clusters" => Self::Clusters(ClusterTotals::of_file(contents)?),
            "draws" => Self::Draws(Draws::of_file(contents, dim)?),
            "votes" => Self::Votes(Votes::of_file(contents)?),
            "moments" => Self::Measured(Measured::of_file(contents)?),
            "events" => Self::Events(Events::of_file(contents, dim)?),
            _ => return Err(format!("it holds {kind:?}, which no pass sums")),
        };
        // Sums of partitions without rows know their width only from the pass.
        let fits = match &sums {
            Self::Clusters(sums) => dim == 0 || sums.dim == dim,
            Self::Draws(sums) => sums.picked.entries.len() as u64 <= n,
            Self::Votes(_) => true,
            Self::Measured(sums) => match &sums.moments {
                None => n == 0,
                Some(moments) => moments.rows() == n && (dim == 0 || moments.mean().len() == dim),
            },
            Self::Events(sums) => sums.n_rows() == Some(n),
        };
        if fits { Ok(sums) } else { Err("its sums do not belong to its rows".into()) }
    }
}
