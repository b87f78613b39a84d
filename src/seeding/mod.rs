//! Seeding: chooses the first centers.

mod afkmc2;
mod near;
mod odds;
mod partition;
mod plus_plus;
mod random;
mod scalable;
mod seeds;
mod sensitivity;
mod sketched;
mod tile_sums;
mod tree;

use std::fmt::{self, Display};
use std::str::FromStr;

use afkmc2::afk_mc2;
pub(crate) use odds::Odds;
pub(crate) use partition::{Start, partition};
use plus_plus::plus_plus;
use random::random;
pub(crate) use random::{draw, sample_rows};
use scalable::{Rounds, parallel};
pub use seeds::Seeds;
pub(crate) use seeds::enough_rows;
use seeds::{finite_or_first_bad, known};
pub use sensitivity::sensitivity_coreset;
use sensitivity::{BRIEF_ROWS, PartLimits, coreset_within};
use tree::tree;
pub(crate) use tree::{Clusters, Grown, Growth, Nodes, packed};

use crate::data::{DataSource, Weighted, weights_of};
use crate::error::{Error, InvalidParam, Result};
use crate::fit::{Parameter, Problems, Value};
use crate::kernel::Compute;
use crate::names::unknown_name;
use crate::parallel::Executor;
use crate::rng::{Purpose, Rng};
use crate::rows::RowBuf;

/// Most rows on which `Seeding::Auto` runs greedy k-means++ for `k` centers. It computes up to `k (2 + ln k)` distances
/// per row. With more rows, fits after k-means|| end as low, in less time.
fn greedy_seeding_rows(k: usize) -> u64 {
    // On up to 50,000 rows, fits after k-means|| end 0.3 to 2.9% higher with 100 clusters and up to 0.5% with 1,000
    // (`init.py`).
    (32 * k as u64).max(65_536)
}

/// The rounds of k-means|| for methods whose fits read few rows (`rare.py`): three
/// distances per row and center in four passes. With half a candidate, some of many equal groups far from each other
/// get no center: mini-batches then end at about twice the inertia. With 2 and 5, seeding takes twice as long, and ends
/// as low.
const BRIEF_ROUNDS: Rounds = Rounds { oversampling: 1.0, rounds: 3 };

/// Centers from which `Seeding::Auto` draws only [`BRIEF_ROUNDS`]: greedy k-means++ on all rows, or among ten
/// candidates per center, would take longer than the sweeps.
const BRIEF_CENTERS: usize = 4000;

/// Rows of the coreset that more rows are seeded on, for `k` centers: as many as greedy k-means++ takes without one,
/// and for thousands of centers only a few per center, because they are copied (`rare.py`, "kmeans, parts").
fn coreset_seeding_rows(k: usize) -> u64 {
    greedy_seeding_rows(k).min((4 * k as u64).max(131_072))
}

/// The method that chooses the first centers.
///
/// ```
/// let model = shoal::KMeans::params(2).seeding(shoal::Seeding::Random).fit(&[[0.0f32], [0.1], [9.0], [9.1]]).unwrap();
/// assert_eq!(model.n_clusters(), 2);
/// assert_eq!("k-means++".parse::<shoal::Seeding>().unwrap(), shoal::Seeding::PlusPlus { greedy: true });
/// assert!("kmeans++".parse::<shoal::Seeding>().unwrap_err().to_string().ends_with("did you mean \"k-means++\"?"));
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub enum Seeding {
    /// The default, which looks at all rows. For fewer than 4,000 centers it is greedy k-means++ if there are few rows,
    /// else k-means|| with the defaults of [`Seeding::from_str`]. For more centers it is k-means|| with an oversampling
    /// of 1 and 3 rounds. On more than 67,108,864 rows it is greedy k-means++, or such k-means||, on a
    /// [`sensitivity_coreset`], which takes at most 1 GiB.
    #[default]
    Auto,
    /// For the fastest start: distinct rows, drawn by weight.
    Random,
    /// For the best start at small `k`: k-means++ (Arthur and Vassilvitskii, 2007). Each new center is a row
    /// drawn by squared distance, or with `greedy` the best of `2 + ln k` such rows.
    PlusPlus {
        /// Draw several candidates per center.
        greedy: bool,
    },
    /// For many clusters and many rows: AFK-MC2 (Bachem, Lucic, Hassani and Krause, 2016). It gives about as
    /// good a start as plain k-means++ with a fraction of its distances, from one pass over the rows and a
    /// chain of candidates per center. A longer chain is closer to k-means++: 20 candidates are enough for
    /// most data, 200 for nearly all.
    AfkMc2 {
        /// Number of candidates per center, at least 1.
        chain: usize,
    },
    /// To read no more rows than the candidates: like [`Seeding::AfkMc2`], but candidates are drawn by weight
    /// alone (K-MC2). Suitable only for data without outliers.
    KMc2 {
        /// Number of candidates per center, at least 1.
        chain: usize,
    },
    /// For rows that are expensive to read, or many threads: k-means|| (Bahmani, Moseley, Vattani, Kumar and
    /// Vassilvitskii, 2012). It gives good starts from a few passes, and computes many distances with the
    /// kernels.
    Parallel {
        /// Number of rows added per round, as a multiple of the number of centers. Finite and above 0; usual
        /// values are 0.5 to 10.
        oversampling: f64,
        /// Number of rounds, at least 1.
        rounds: usize,
    },
    /// For thousands of centers, if single rows can be read: the means of the leaves of a tree of small k-means
    /// fits, as in [`HierarchicalKMeans`](crate::HierarchicalKMeans). It takes less time than a sweep, and the
    /// centers have already moved to the means of their rows.
    Hierarchical,
    /// Known centers: `k` rows of values, one after the other.
    Given(Vec<f64>),
}

impl Display for Seeding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Seeding {
    type Err = Error;

    /// The seeding with this name and default parameters: 200 candidates per center for chains, an
    /// oversampling of 2 and 5 rounds for k-means||.
    fn from_str(name: &str) -> Result<Self> {
        Ok(Self::of_name("seeding", name)?)
    }
}

impl Parameter for Seeding {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Text(text) => Self::of_name(name, &text),
            Value::Floats(centers) => Ok(Self::Given(centers)),
            other => Err(InvalidParam::new(name, "the name of a seeding, or centers", other)),
        }
    }

    fn to_value(&self) -> Value {
        match self {
            Self::Given(centers) => centers.clone().into(),
            named => named.name().into(),
        }
    }
}

/// Candidates per center of seedings by chains that are chosen by their name.
const CHAIN: usize = 200;

impl Seeding {
    /// The number of `n_init` starts that give different results: given centers are used once.
    pub(crate) fn n_starts(&self, n_init: u64) -> u64 {
        if matches!(self, Self::Given(_)) { 1 } else { n_init }
    }

    /// k-means|| with its default parameters.
    const PARALLEL: Self = Self::Parallel { oversampling: 2.0, rounds: 5 };

    /// k-means|| in the time of labeling all rows about three times.
    const BRIEF: Self =
        Self::Parallel { oversampling: BRIEF_ROUNDS.oversampling, rounds: BRIEF_ROUNDS.rounds };

    /// The names of the seedings that need no centers.
    const NAMED: [(&'static str, Self); 8] = [
        ("auto", Self::Auto),
        ("random", Self::Random),
        ("k-means++", Self::PlusPlus { greedy: true }),
        ("plain-k-means++", Self::PlusPlus { greedy: false }),
        ("afk-mc2", Self::AfkMc2 { chain: CHAIN }),
        ("k-mc2", Self::KMc2 { chain: CHAIN }),
        ("k-means||", Self::PARALLEL),
        ("hierarchical", Self::Hierarchical),
    ];

    /// The name of the seeding, without its parameters.
    fn name(&self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Random => "random",
            Self::PlusPlus { greedy: true } => "k-means++",
            Self::PlusPlus { greedy: false } => "plain-k-means++",
            Self::AfkMc2 { .. } => "afk-mc2",
            Self::KMc2 { .. } => "k-mc2",
            Self::Parallel { .. } => "k-means||",
            Self::Hierarchical => "hierarchical",
            Self::Given(_) => "given",
        }
    }

    /// The seeding called `name`, for the parameter `option`.
    fn of_name(option: &'static str, name: &str) -> Result<Self, InvalidParam> {
        match Self::NAMED.into_iter().find(|(known, _)| *known == name) {
            Some((_, seeding)) => Ok(seeding),
            None => Err(unknown_name(option, name, &Self::NAMED.map(|(known, _)| known))),
        }
    }

    /// Chooses the first `k` centers for `data`. Each `start` draws different rows.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] if there are fewer rows than `k`, or given centers do not match.
    /// [`Error::Source`] if the source can be read only once. Errors of the source.
    pub fn choose<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        seed: u64,
        start: u64,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        let rng = &mut Rng::keyed(seed, Purpose::Seeding, start);
        self.choose_within(data, k, rng, None, PartLimits::default(), cx)
    }

    /// Like [`Seeding::choose`], for methods whose fits read few rows: [`Seeding::Auto`] is greedy k-means++ on at most
    /// `most` rows. On more rows it is k-means|| with few candidates, which takes about as long as labeling all rows
    /// three times. So does the coreset for more than [`BRIEF_ROWS`] rows.
    pub(crate) fn choose_briefly<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        seed: u64,
        start: u64,
        most: u64,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        let rng = &mut Rng::keyed(seed, Purpose::Seeding, start);
        self.choose_within(data, k, rng, Some(most), PartLimits::default(), cx)
    }

    /// [`Seeding::choose_briefly`] with the `most` rows of greedy k-means++, or [`Seeding::choose`] without, with these
    /// `limits`.
    fn choose_within<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        rng: &mut Rng,
        most: Option<u64>,
        limits: PartLimits,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        if *self != Self::Auto {
            return self.of_rows(data, k, rng, cx);
        }
        // Samples would miss rare groups.
        let n = known(data, k)?;
        let chosen = if n > limits.rows {
            return Self::of_coreset(data, k, rng, limits, cx);
        } else if most.map_or(k >= BRIEF_CENTERS, |most| n > most) {
            &Self::BRIEF
        } else if most.is_none() && n > greedy_seeding_rows(k) {
            &Self::PARALLEL
        } else {
            self
        };
        chosen.of_rows(data, k, rng, cx)
    }

    /// Chooses centers from a coreset of all rows, for sources whose distances would take too much memory.
    fn of_coreset<T: Compute>(
        data: &dyn DataSource<T>,
        k: usize,
        rng: &mut Rng,
        limits: PartLimits,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        let _phase = cx.phase("seeding", 0);
        let m = coreset_seeding_rows(k) as usize;
        let (coreset, n_distances) = coreset_within(data, k, m, rng.bits(), limits, cx)?;
        let seeding = if k < BRIEF_CENTERS { Self::PlusPlus { greedy: true } } else { Self::BRIEF };
        let mut seeds = seeding.of_all(&coreset.weighted()?, k, rng, cx)?;
        for row in &mut seeds.rows {
            *row = coreset.rows[*row as usize];
        }
        seeds.method = format!("{} on a coreset of {} rows", seeds.method, coreset.rows.len());
        seeds.n_distances += n_distances;
        Ok(seeds)
    }

    /// Returns an error that lists all parameters outside their range.
    fn check(&self) -> Result<()> {
        let mut problems = Problems::new();
        match *self {
            Self::AfkMc2 { chain } | Self::KMc2 { chain } => problems.at_least_1("chain", chain as u64),
            Self::Parallel { oversampling, rounds } => {
                let fits = oversampling.is_finite() && oversampling > 0.0;
                problems.require(fits, "oversampling", "finite and above 0", oversampling);
                problems.at_least_1("rounds", rounds as u64);
            }
            _ => {}
        }
        problems.into_result()
    }

    /// Upper limit of the state for `n` rows, in bytes per row.
    pub(crate) fn bytes_per_row(&self, n: u64) -> usize {
        match self {
            // The state of a part.
            Self::Auto if n > BRIEF_ROWS => (16 * BRIEF_ROWS).div_ceil(n) as usize,
            Self::PlusPlus { .. } | Self::Parallel { .. } | Self::Auto => 16,
            // The odds. If chains find no center, 16 bytes more.
            Self::AfkMc2 { .. } => 9,
            // Old and new nodes, and row numbers by node.
            Self::Hierarchical => 24,
            _ => 0,
        }
    }

    /// Like [`Seeding::choose`], but [`Seeding::Auto`] is greedy k-means++.
    fn of_rows<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        rng: &mut Rng,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        let _phase = cx.phase("seeding", 0);
        if let Self::Given(centers) = self {
            let d = data.dim();
            if centers.len() != k * d {
                return Err(Error::Shape(format!(
                    "seeding must give {k} centers of {d} values, got {} values",
                    centers.len()
                )));
            }
            let centers: Vec<T> = centers.iter().map(|&x| T::from_f64(x)).collect();
            if let Some((row, column)) = crate::matrix::MatRef::new(&centers, d).first_not_finite() {
                return Err(Error::not_finite("seeding", centers[row * d + column], row as u64, column));
            }
            return Ok(Seeds { centers, rows: Vec::new(), method: "given".into(), n_distances: 0 });
        }
        self.check()?;
        self.of_all(data, k, rng, cx)
    }

    /// Like [`Seeding::choose`], on a random sample of at most `sample` rows, for every seeding method.
    pub(crate) fn choose_of_sample<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        seed: u64,
        start: u64,
        sample: u64,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        let rng = &mut Rng::keyed(seed, Purpose::Seeding, start);
        if matches!(self, Self::Given(_)) || known(data, k)? <= sample {
            return self.of_rows(data, k, rng, cx);
        }
        self.check()?;
        let _phase = cx.phase("seeding", 0);
        self.of_sample(data, k, sample, rng, cx)
    }

    /// Chooses centers from all rows.
    fn of_all<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        rng: &mut Rng,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        match *self {
            Self::Random => {
                let seeds = random(data, k, rng)?;
                finite_or_first_bad(&seeds.centers, data, cx)?;
                Ok(seeds)
            }
            Self::PlusPlus { greedy } => plus_plus(data, k, greedy, rng, cx),
            Self::AfkMc2 { chain } => afk_mc2(data, k, chain, true, rng, cx),
            Self::KMc2 { chain } => afk_mc2(data, k, chain, false, rng, cx),
            Self::Parallel { oversampling, rounds } => {
                parallel(data, k, Rounds { oversampling, rounds }, rng, cx)
            }
            Self::Hierarchical => tree(data, k, rng, cx),
            Self::Auto | Self::Given(_) => plus_plus(data, k, true, rng, cx),
        }
    }

    /// Chooses centers from `sample` random rows, fewer than there are rows.
    fn of_sample<T: Compute>(
        &self,
        data: &dyn DataSource<T>,
        k: usize,
        sample: u64,
        rng: &mut Rng,
        cx: &Executor,
    ) -> Result<Seeds<T>> {
        let Sample { rows, weights, indices } = draw_sample(data, k, sample, rng)?;
        finite_or_first_bad(&rows.values, data, cx)?;
        let mut seeds = match weights {
            Some(weights) => self.of_all(&Weighted::new::<T>(&rows, weights)?, k, rng, cx)?,
            None => self.of_all(&rows, k, rng, cx)?,
        };
        for row in &mut seeds.rows {
            *row = indices[*row as usize];
        }
        seeds.method = format!("{} on {} sampled rows", seeds.method, indices.len());
        Ok(seeds)
    }
}

/// A random sample of rows.
pub(crate) struct Sample<T> {
    /// Copies of the rows.
    pub(crate) rows: RowBuf<T>,
    /// Their weights. `None` if rows were drawn by weight and count equally.
    pub(crate) weights: Option<Vec<f64>>,
    /// The row numbers, ascending.
    pub(crate) indices: Vec<u64>,
}

/// Copies `sample` random rows, drawn by weight. If fewer rows have a weight above 0, copies all of them,
/// with their weights.
pub(crate) fn draw_sample<T: Compute>(
    data: &dyn DataSource<T>,
    k: usize,
    sample: u64,
    rng: &mut Rng,
) -> Result<Sample<T>> {
    let n = known(data, k)?;
    let weights = weights_of(data)?;
    let heavy = weights.as_deref().map(|w| (0..n).filter(|&i| w[i as usize] > 0.0).collect::<Vec<_>>());
    // Rows of weight 0 are candidates only if there are too few others.
    let few = heavy.filter(|heavy| heavy.len() as u64 <= sample && heavy.len() >= k);
    let all = few.is_some();
    let mut drawn = few.unwrap_or_else(|| random::draw(n, weights.as_deref(), sample as usize, rng));
    drawn.sort_unstable();
    let rows = crate::data::copy(data, &drawn)?;
    let weights = weights.filter(|_| all).map(|w| drawn.iter().map(|&row| w[row as usize]).collect());
    Ok(Sample { rows, weights, indices: drawn })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Dense;

    #[test]
    fn too_many_rows_are_seeded_on_a_coreset_of_all() {
        // Six groups, of which the last has 1 row in 1000.
        let values: Vec<f64> = (0..200_000)
            .map(|i| f64::from(if i % 1000 == 999 { 900 } else { i % 5 * 100 } + i % 7))
            .collect();
        let (data, cx) = (Dense::new(&values, 1).unwrap(), Executor::new(Some(2)).unwrap());
        let chosen = |seeding: Seeding, rows: u64, brief: bool| {
            let (rng, limits) =
                (&mut Rng::keyed(3, Purpose::Seeding, 0), PartLimits { rows, bytes: 8 << 12 });
            let most = brief.then_some(400);
            let seeds = seeding.choose_within::<f64>(&data, 6, rng, most, limits, &cx).unwrap();
            let of_rows: Vec<f64> = seeds.rows.iter().map(|&row| values[row as usize]).collect();
            assert_eq!(seeds.centers, of_rows);
            seeds
        };
        for brief in [false, true] {
            let seeds = chosen(Seeding::Auto, 199_999, brief);
            assert_eq!(seeds.method, "k-means++ on a coreset of 65536 rows");
            let mut groups: Vec<u32> = seeds.centers.iter().map(|x| *x as u32 / 100).collect();
            groups.sort_unstable();
            assert_eq!(groups, [0, 1, 2, 3, 4, 9]);
            assert!(seeds.n_distances > 200_000);
            assert_eq!(chosen(Seeding::Auto, 200_000, brief).method, "k-means||");
            let named = chosen(Seeding::PlusPlus { greedy: true }, 199_999, brief);
            assert_eq!(named.method, "k-means++");
        }
        // The state of a part, which is at most 1 GiB.
        assert_eq!(Seeding::Auto.bytes_per_row(BRIEF_ROWS), 16);
        assert_eq!(Seeding::Auto.bytes_per_row(1_000_000_000), 2);
        assert_eq!(Seeding::PlusPlus { greedy: true }.bytes_per_row(1_000_000_000), 16);
    }
}
