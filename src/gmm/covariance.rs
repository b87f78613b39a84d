//! The shapes of components.

use crate::names::names;

/// The shape of the components.
///
/// ```
/// use shoal::gmm::{Covariance, TruncatedGaussianMixture};
/// let rows: Vec<[f64; 1]> = (0..40).map(|i| [f64::from(i % 2) * 50.0 + f64::from(i % (3 + i % 2 * 7))]).collect();
/// let params = TruncatedGaussianMixture::params(2).covariance(Covariance::Spherical);
/// assert_eq!(params.fit(&rows).unwrap().variances().len(), 2);
/// assert_eq!((Covariance::Diag.to_string(), "spherical".parse().ok()), ("diag".to_owned(), Some(Covariance::Spherical)));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Covariance {
    /// For many components, or for clusters like those of k-means: one variance for all components, and equal
    /// weights.
    #[default]
    TiedSpherical,
    /// For clusters of different size or spread: a variance and a weight per component.
    Spherical,
    /// For densities in up to a few hundred columns: a variance per component and column, and a weight per
    /// component.
    Diag,
    /// For clusters of one elongated shape: a covariance for all components, and a weight per component. A distance
    /// takes as long as with [`Covariance::Spherical`]; a row also takes the square of the number of columns.
    Tied,
    /// For densities in up to about a hundred columns: a covariance and a weight per component. A distance, and the
    /// memory of a component, take the square of the number of columns.
    Full,
    /// For densities in many columns that vary together: a few factors, shared directions in which a component
    /// extends, plus what [`Covariance::Diag`] has. See [`MixtureParams::n_factors`](super::MixtureParams::n_factors).
    Factor,
}

names! {
    Covariance("covariance") {
        TiedSpherical = "tied_spherical",
        Spherical = "spherical",
        Diag = "diag",
        Tied = "tied",
        Full = "full",
        Factor = "factor",
    }
}

impl Covariance {
    /// Number of variances and covariances of `k` components in `dim` columns.
    pub(super) fn variances(self, k: usize, dim: usize) -> usize {
        match self {
            Self::TiedSpherical => 1,
            Self::Spherical => k,
            Self::Diag | Self::Factor => k * dim,
            Self::Tied => dim * dim,
            Self::Full => k * dim * dim,
        }
    }

    /// Whether each column has its own variance, and its own lower limit.
    pub(super) fn is_by_column(self) -> bool {
        matches!(self, Self::Diag | Self::Factor) || self.is_whole()
    }

    /// Whether there are covariances of columns.
    pub(super) fn is_whole(self) -> bool {
        matches!(self, Self::Tied | Self::Full)
    }
}
