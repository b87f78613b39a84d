//! Files of fitted models: what is loaded labels rows, and is saved and loaded again.

use std::fs;
use std::path::Path;

use shoal::gmm::Covariance;
use shoal::kmodes::{KModesModel, LaplacianKModes};
use shoal::persist;
use shoal::{
    BackwardEuler, Breathing, GaussianMixture, HierarchicalKMeans, KMeans, KMeansModel, Metric, MiniBatch,
    NestedMiniBatch, Result, TruncatedGaussianMixture, VarianceReduced,
};

use super::damage;
use super::driver::Target;

/// Rows around four corners.
pub(crate) fn rows() -> Vec<[f32; 2]> {
    let noise = |i: usize| (i * i % 97) as f32 / 97.0;
    (0..60).map(|i| [(i % 2 * 5) as f32 + noise(i), (i / 2 % 2 * 5) as f32 + noise(i + 31)]).collect()
}

/// As [`rows`], of the other compute type and with another number of columns.
pub(crate) fn wide_rows() -> Vec<[f64; 3]> {
    rows().iter().map(|&[x, y]| [f64::from(x), f64::from(y), f64::from(x * y)]).collect()
}

/// The bytes of what `save` writes.
pub(crate) fn saved(save: impl FnOnce(&Path) -> Result<()>) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    save(&path).unwrap();
    fs::read(path).unwrap()
}

fn run(name: &str, valid: Vec<Vec<u8>>, read: &dyn Fn(&Path) -> Result<()>) {
    let read = |path: &Path| read(path).map_err(|e| e.to_string());
    Target { name, file: "x.safetensors", valid, damage: damage::parts, read: &read }.run();
}

#[test]
fn safetensors() {
    let model = KMeans::params(3).fit(&rows()).unwrap();
    run("safetensors", vec![saved(|path| model.save(path))], &|path| persist::read(path).map(drop));
}

#[test]
fn centers() {
    let (rows, wide) = (rows(), wide_rows());
    let models = [
        KMeans::params(3).fit(&rows),
        KMeans::params(4).metric(Metric::Cosine).fit(&wide),
        MiniBatch::params(3).batch_size(20).fit(&rows),
        NestedMiniBatch::params(3).batch_size(20).fit(&wide),
        BackwardEuler::params(3).batch_size(20).max_iter(4).fit(&rows),
        VarianceReduced::params(3).fit(&rows),
        Breathing::params(4).m(1).fit(&rows),
        HierarchicalKMeans::params(5).fit(&rows),
    ];
    let valid = models.map(|model| saved(|path| model.unwrap().save(path))).to_vec();
    run("centers", valid, &|path| {
        let model = KMeansModel::load(path)?.with_threads(Some(1));
        model.save(path)?;
        let again = KMeansModel::load(path)?;
        assert_eq!(again.centers::<f64>(), model.centers::<f64>());
        if model.dim() == 2 { model.nearest(&rows, 1) } else { model.nearest(&wide, 1) }?;
        if model.dim() == 2 { model.predict(&rows) } else { model.predict(&wide) }.map(drop)
    });
}

#[test]
fn mixtures() {
    let (rows, wide) = (rows(), wide_rows());
    let params = TruncatedGaussianMixture::params(4).n_active(2).max_iter(5);
    let models = [
        params.clone().fit(&rows),
        params.clone().covariance(Covariance::Diag).fit(&rows),
        params.covariance(Covariance::Spherical).fit(&wide),
    ];
    let valid = models.map(|model| saved(|path| model.unwrap().save(path))).to_vec();
    run("mixtures", valid, &|path| {
        let model = GaussianMixture::load(path)?.with_threads(Some(1));
        if model.dim() == 2 {
            model.log_densities(&rows)?;
            model.shares(&rows).map(drop)
        } else {
            model.score(&wide)?;
            model.predict(&wide).map(drop)
        }
    });
}

#[test]
fn modes() {
    let (rows, wide) = (rows(), wide_rows());
    let models = [
        LaplacianKModes::params(3).fit(&rows),
        LaplacianKModes::params(3).responsibilities_memory(Some(1000)).fit(&rows),
        LaplacianKModes::params(2).fit(&wide),
    ];
    let valid = models.map(|model| saved(|path| model.unwrap().save(path))).to_vec();
    run("modes", valid, &|path| {
        let model = KModesModel::load(path)?.with_threads(Some(1));
        let few = &rows[..9];
        if model.dim() == 2 { model.predict(few, &rows) } else { model.predict(&wide, &wide) }.map(drop)
    });
}
