//! Limits of the sizes of clusters.

use std::borrow::Cow;
use std::fmt::{self, Display};

use crate::data::{DataSource, count_rows, weights_of};
use crate::error::{Error, InvalidParam, Result};
use crate::fit::{Parameter, Value, parsed};
use crate::float::Float;

/// A limit of the size of every cluster.
///
/// ```
/// use shoal::kmeans::Size;
/// assert_eq!((Size::Rows(250).to_string(), Size::TimesMean(1.5).to_string()), ("250".into(), "1.5".into()));
/// assert_eq!(("250".parse().ok(), "2.0".parse().ok()), (Some(Size::Rows(250)), Some(Size::TimesMean(2.0))));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Size {
    /// A number of rows; of rows with weights, the sum of the weights.
    Rows(u64),
    /// A multiple of the mean size. Of rows without weights, an upper limit is rounded up and a lower one down, so that
    /// `TimesMean(1.0)` can always be kept.
    TimesMean(f64),
}

crate::fit::ranged! { Size }

impl Size {
    /// The limit as a size, where `mean` is the mean size. `up` rounds up if rows have no weights, else down.
    fn of_mean(self, mean: f64, unit: bool, up: bool) -> f64 {
        match self {
            Self::Rows(rows) => rows as f64,
            Self::TimesMean(times) => {
                let size = times * mean;
                // Rounding must not move a product that should be a whole number to the next one.
                match (unit, up) {
                    (true, true) => (size * (1.0 - 1e-12)).ceil(),
                    (true, false) => (size * (1.0 + 1e-12)).floor(),
                    (false, _) => size,
                }
            }
        }
    }

    /// Whether a limit can have this value, for any rows.
    pub(super) fn is_valid(self) -> bool {
        match self {
            Self::Rows(_) => true,
            Self::TimesMean(times) => times.is_finite() && times >= 0.0,
        }
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rows(rows) => rows.fmt(f),
            Self::TimesMean(times) => write!(f, "{times:?}"),
        }
    }
}

impl Parameter for Size {
    fn from_value(name: &'static str, value: Value) -> Result<Self, InvalidParam> {
        match value {
            Value::Int(rows) if u64::try_from(rows).is_ok() => Ok(Self::Rows(rows as u64)),
            Value::Float(times) => Ok(Self::TimesMean(times)),
            other => Err(InvalidParam::new(
                name,
                "a number of rows, or a multiple of the mean size as a float",
                other,
            )),
        }
    }

    fn to_value(&self) -> Value {
        match *self {
            Self::Rows(rows) => rows.into(),
            Self::TimesMean(times) => times.into(),
        }
    }
}

parsed! { Size("size") }

/// The limits of a fit, in units of weight.
#[derive(Clone, Debug)]
pub(super) struct SizeLimits {
    /// Smallest and largest weight of a cluster.
    pub(super) least: f64,
    pub(super) most: f64,
    /// The mean weight of a cluster.
    pub(super) mean: f64,
    /// The number of clusters.
    k: usize,
    pub(super) weights: Weights,
    /// The limits as numbers of rows, if rows have equal weights.
    pub(super) in_rows: Option<(i64, i64)>,
}

/// The weights of the rows of a fit.
#[derive(Clone, Debug)]
pub(super) enum Weights {
    /// Every weight is 0 or this number. `true` marks the rows with weight; the list is empty if all rows
    /// have weight.
    Equal(f64, Vec<bool>),
    Any(Vec<f64>),
}

impl Weights {
    fn new(weights: Option<&[f64]>) -> Self {
        let Some(weights) = weights else { return Self::Equal(1.0, Vec::new()) };
        let one = weights.iter().copied().find(|&w| w > 0.0).unwrap_or(1.0);
        if !weights.iter().all(|&w| w == one || w == 0.0) {
            return Self::Any(weights.to_vec());
        }
        let all = weights.iter().all(|&w| w > 0.0);
        Self::Equal(one, if all { Vec::new() } else { weights.iter().map(|&w| w > 0.0).collect() })
    }

    /// The weight of a row.
    pub(super) fn of(&self, row: usize) -> f64 {
        match self {
            Self::Equal(weight, rows) if rows.get(row) != Some(&false) => *weight,
            Self::Equal(..) => 0.0,
            Self::Any(weights) => weights[row],
        }
    }

    /// The weights as odds of being drawn; `None` if they are equal.
    pub(super) fn odds(&self) -> Option<Cow<'_, [f64]>> {
        match self {
            Self::Equal(_, rows) if rows.is_empty() => None,
            Self::Equal(_, rows) => Some(rows.iter().map(|&row| f64::from(u8::from(row))).collect()),
            Self::Any(weights) => Some(Cow::Borrowed(weights)),
        }
    }

    /// The largest weight, or 0 if all rows with weight have the same.
    pub(super) fn heaviest(&self) -> f64 {
        match self {
            Self::Equal(..) => 0.0,
            Self::Any(weights) => weights.iter().copied().fold(0.0, f64::max),
        }
    }

    /// The weight of all rows with weight, if they have the same.
    pub(super) fn equal(&self) -> Option<f64> {
        match self {
            Self::Equal(weight, _) => Some(*weight),
            Self::Any(_) => None,
        }
    }
}

/// The limits that were asked for: the smallest and the largest size.
pub(super) type Asked = (Option<Size>, Option<Size>);

/// The limits as sizes, for `k` clusters of rows with a total weight.
fn sizes((min, max): Asked, k: usize, total: f64, unit: bool) -> (f64, f64) {
    let mean = total / k as f64;
    (
        min.map_or(0.0, |min| min.of_mean(mean, unit, false)),
        max.map_or(total, |max| max.of_mean(mean, unit, true)).min(total),
    )
}

/// The problems of limits for `k` clusters of rows with a total weight, with both sides of each inequality.
pub(super) fn problems((min, max): Asked, k: usize, total: f64, unit: bool) -> Vec<InvalidParam> {
    let (least, most) = sizes((min, max), k, total, unit);
    let clusters = k as f64;
    let all = if unit { "the number of rows" } else { "the sum of the weights" };
    // Sums of weights are rounded.
    let slack = if unit { 0.0 } else { 1e-9 * total };
    let mut problems = Vec::new();
    if let Some(max) = max
        && clusters * most < total - slack
    {
        let expected = format!("so large that `n_clusters` * `size_max` >= {total}, {all}");
        problems.push(InvalidParam::new(
            "size_max",
            expected,
            format!("{max}, where {k} * {most} = {}", clusters * most),
        ));
    }
    if let Some(min) = min
        && clusters * least > total + slack
    {
        let expected = format!("so small that `n_clusters` * `size_min` <= {total}, {all}");
        problems.push(InvalidParam::new(
            "size_min",
            expected,
            format!("{min}, where {k} * {least} = {}", clusters * least),
        ));
    }
    if let (Some(min), Some(max)) = (min, max)
        && problems.is_empty()
        && least > most
    {
        let expected = format!("at most `size_max`, {max}, which is a size of {most}");
        problems.push(InvalidParam::new("size_min", expected, format!("{min}, which is a size of {least}")));
    }
    problems
}

impl SizeLimits {
    /// The limits of `k` clusters of these rows.
    ///
    /// # Errors
    /// [`Error::InvalidParam`] for limits that no clustering keeps, and those of the source.
    pub(super) fn new<T: Float>(asked: Asked, k: usize, data: &dyn DataSource<T>) -> Result<Self> {
        let weights = Weights::new(weights_of(data)?.as_deref());
        let n = count_rows(data)? as usize;
        let total = match &weights {
            Weights::Equal(weight, rows) if rows.is_empty() => *weight * n as f64,
            _ => (0..n).map(|row| weights.of(row)).sum(),
        };
        let unit = weights.equal() == Some(1.0);
        let problems = problems(asked, k, total, unit);
        if !problems.is_empty() {
            return Err(Error::InvalidParam(problems));
        }
        let (least, most) = sizes(asked, k, total, unit);
        let limits = Self { least, most, mean: total / k as f64, k, weights, in_rows: None };
        Ok(match limits.weights.equal() {
            Some(weight) => limits.whole_rows(weight, (total / weight).round() as i64),
            None => limits,
        })
    }

    /// The share of the weight that is above the upper limits of clusters of these sizes, or that they miss to the
    /// lower limits.
    pub(super) fn excess(&self, sizes: &[f64]) -> f64 {
        let of = |&size: &f64| (size - size.clamp(self.least, self.most)).abs();
        sizes.iter().map(of).sum::<f64>() / (self.mean * self.k as f64)
    }

    /// The limits of as many clusters of a number of rows without weights, in proportion.
    pub(super) fn of_sample(&self, rows: usize) -> Self {
        let mean = rows as f64 / self.k as f64;
        let share = |limit: f64| limit / self.mean * mean;
        let weights = Weights::Equal(1.0, Vec::new());
        Self { least: share(self.least), most: share(self.most), mean, k: self.k, weights, in_rows: None }
            .whole_rows(1.0, rows as i64)
    }

    /// The limits for clusters of whole rows of this weight. Where no whole numbers keep them, they are widened by less
    /// than a row.
    fn whole_rows(self, weight: f64, rows: i64) -> Self {
        let k = self.k as i64;
        let least = (self.least / weight * (1.0 - 1e-12)).ceil() as i64;
        let most = (self.most / weight * (1.0 + 1e-12)).floor() as i64;
        let (least, most) = (least.min(rows / k), most.max((rows + k - 1) / k));
        Self {
            least: least as f64 * weight,
            most: most as f64 * weight,
            in_rows: Some((least, most)),
            ..self
        }
    }
}
