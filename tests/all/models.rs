//! Files of fitted models: round trips, damaged files, and the arrays that the Python package reads.

use std::fs;
use std::path::{Path, PathBuf};

use shoal::data::{Dtype, Normalized};
use shoal::gmm::Covariance;
use shoal::kmodes::{Affinity, KModesModel, LaplacianKModes, ModeUpdate};
use shoal::persist::{self, Array, Contents};
use shoal::{Error, GaussianMixture, KMeans, KMeansModel, Metric, Result, TruncatedGaussianMixture};
use tempfile::TempDir;

const ROWS: [[f32; 2]; 4] = [[0.0, 0.1], [0.3, 0.0], [7.0, 7.7], [7.3, 7.1]];

/// Reads the file as one kind of model, and returns the problem.
type Load = fn(&Path) -> Result<()>;

const KMEANS: Load = |path| KMeansModel::load(path).map(drop);
const MIXTURE: Load = |path| GaussianMixture::load(path).map(drop);
const KMODES: Load = |path| KModesModel::load(path).map(drop);

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    (folder, path)
}

/// Forty rows around two corners, which K-modes and mixtures can tell apart.
fn corners() -> Vec<[f64; 2]> {
    (0..40).map(|i| [f64::from(i % 2), f64::from(1 - i % 2) + f64::from(i) * 1e-3]).collect()
}

fn kmeans() -> KMeansModel {
    KMeans::params(2).fit(&ROWS).unwrap()
}

fn mixture(covariance: Covariance) -> GaussianMixture {
    TruncatedGaussianMixture::params(3).n_active(2).covariance(covariance).fit(&corners()).unwrap()
}

/// K-modes with all responsibilities, or with the two largest per row.
fn kmodes(k: usize, memory: Option<u64>) -> KModesModel {
    LaplacianKModes::params(k).responsibilities_memory(memory).fit(&corners()).unwrap()
}

fn problem(path: &Path, load: Load) -> String {
    let refused = load(path).unwrap_err();
    assert!(matches!(refused, Error::Format { .. }), "{refused:?}");
    refused.to_string().split_once("safetensors: ").expect("the file is named").1.to_owned()
}

/// The problem of a sound file after a change.
struct Damage {
    sound: Contents,
    path: PathBuf,
    load: Load,
}

impl Damage {
    fn of(path: &Path, load: Load) -> Self {
        Self { sound: persist::read(path).unwrap(), path: path.to_owned(), load }
    }

    fn by(&self, change: impl Fn(&mut Contents)) -> String {
        let mut contents = self.sound.clone();
        change(&mut contents);
        persist::write(&self.path, &contents).unwrap();
        problem(&self.path, self.load)
    }

    fn array(&self, name: &str, array: &Array) -> String {
        self.by(|contents| drop(contents.arrays.insert(name.into(), array.clone())))
    }

    fn text(&self, name: &str, from: &str, to: &str) -> String {
        self.by(|contents| {
            let text = contents.meta[name].replacen(from, to, 1);
            assert_ne!(text, contents.meta[name]);
            contents.meta.insert(name.into(), text);
        })
    }

    /// Removes each array and each text, and changes the type and the shape of each array.
    fn everywhere(&self) {
        for (name, array) in &self.sound.arrays {
            if ["history", "responsibilities_rest"].contains(&&**name) {
                continue;
            }
            self.by(|contents| drop(contents.arrays.remove(name)));
            self.array(name, &Array::new(&[2, 1, 1], &[1u8, 1]).unwrap());
            self.array(name, &Array::new(array.shape(), &vec![1u8; array.shape().iter().product()]).unwrap());
        }
        for name in ["params", "fitted"] {
            self.by(|contents| drop(contents.meta.remove(name)));
            self.text(name, "{", "[");
        }
    }
}

fn every_truncation_is_refused(path: &Path, load: Load) {
    let whole = fs::read(path).unwrap();
    for length in 0..whole.len() {
        fs::write(path, &whole[..length]).unwrap();
        problem(path, load);
    }
    fs::write(path, whole).unwrap();
}

/// Names, types and numbers of dimensions of the arrays of a file.
fn arrays(path: &Path) -> Vec<(String, Dtype, usize)> {
    let contents = persist::read(path).unwrap();
    contents.arrays.iter().map(|(name, array)| (name.clone(), array.dtype(), array.shape().len())).collect()
}

fn named(arrays: &[(&str, Dtype, usize)]) -> Vec<(String, Dtype, usize)> {
    arrays.iter().map(|&(name, dtype, dims)| (name.into(), dtype, dims)).collect()
}

#[test]
fn a_kmeans_model_is_loaded_as_it_was_saved() {
    let (_folder, path) = folder();
    let model = kmeans();
    model.save(&path).unwrap();
    let again = KMeansModel::load(&path).unwrap();
    assert_eq!((again.centers::<f32>(), again.dim()), (model.centers(), 2));
    assert_eq!(again.metric(), Metric::Euclidean);
    assert_eq!((again.cluster_weights(), again.n_iter()), (model.cluster_weights(), model.n_iter()));
    assert_eq!((again.seeded_by(), again.algorithm()), (model.seeded_by(), model.algorithm()));
    assert_eq!(again.inertia().to_bits(), model.inertia().to_bits());
    assert_eq!(again.timings().sweeps.to_bits(), model.timings().sweeps.to_bits());
    assert_eq!(again.labels(), [0; 0]);
    let wide = [[1.0f64, 0.1], [0.3, 1.0], [7.0, 0.7]];
    let wide = KMeans::params(2).metric(Metric::Cosine).fit(&wide).unwrap();
    wide.save(&path).unwrap();
    let again = KMeansModel::load(&path).unwrap();
    assert_eq!((again.centers::<f64>(), again.metric()), (wide.centers(), Metric::Cosine));
}

#[test]
fn every_center_based_kind_is_loaded_as_python_writes_it() {
    let (_folder, path) = folder();
    let others = [
        ("minibatch-kmeans-model", r#""batch_size":1024"#),
        ("nested-kmeans-model", r#""rho":100.0"#),
        ("backward-euler-kmeans-model", r#""step_size":1.0"#),
        ("variance-reduced-kmeans-model", r#""learning_rate":"auto""#),
        ("breathing-kmeans-model", r#""m":5"#),
        ("balanced-kmeans-model", r#""size_max":1.1"#),
    ];
    for (kind, param) in others {
        let mut contents = Contents::new(kind);
        let centers = Array::new(&[2, 2], &[0.0f32, 0.1, 7.0, 7.7]).unwrap();
        contents.arrays.insert("cluster_centers".into(), centers);
        contents.arrays.insert("counts".into(), Array::new(&[2], &[3.0f64, 1.0]).unwrap());
        contents.arrays.insert("history".into(), Array::new(&[1, 8], &[0.0f64; 8]).unwrap());
        contents.meta.insert("params".into(), format!(r#"{{"n_clusters":2,"init":"auto",{param}}}"#));
        let fitted = r#"{"n_iter":5,"inertia":null,"init":"k-means++","stop_reason":"tolerance",
            "stop_reasons":["tolerance"],"feature_names":["a","b"],
            "timings":{"seeding":0.5,"sweeps":0.25,"final":0}}"#;
        contents.meta.insert("fitted".into(), fitted.into());
        persist::write(&path, &contents).unwrap();
        let model = KMeansModel::load(&path).unwrap();
        assert_eq!(model.predict(&ROWS).unwrap(), [0, 0, 1, 1]);
        assert_eq!((model.cluster_weights(), model.n_iter()), (&[3.0, 1.0][..], 5));
        assert!(model.inertia().is_nan() && model.algorithm().is_empty());
        assert_eq!(model.timings().sweeps, 0.25);
    }
}

#[test]
fn a_mixture_is_loaded_as_it_was_saved() {
    let (_folder, path) = folder();
    for covariance in [Covariance::TiedSpherical, Covariance::Spherical, Covariance::Diag, Covariance::Factor]
    {
        let (rows, model) = (corners(), mixture(covariance));
        model.save(&path).unwrap();
        let again = GaussianMixture::load(&path).unwrap();
        assert_eq!((again.means::<f64>(), again.dim()), (model.means(), 2));
        assert_eq!((again.covariance(), again.variances()), (covariance, model.variances()));
        assert_eq!((again.n_factors(), again.loadings()), (model.n_factors(), model.loadings()));
        assert_eq!(again.n_factors(), usize::from(covariance == Covariance::Factor));
        assert_eq!((again.weights(), again.cluster_weights()), (model.weights(), model.cluster_weights()));
        assert_eq!((again.lower_bounds(), again.n_iter()), (model.lower_bounds(), model.n_iter()));
        assert_eq!((again.converged(), again.seeded_by()), (model.converged(), model.seeded_by()));
        assert_eq!(again.timings().seeding.to_bits(), model.timings().seeding.to_bits());
        assert!(again.inertia().is_nan());
        assert_eq!(again.shares(&rows).unwrap(), model.shares(&rows).unwrap());
        assert_eq!(again.log_densities(&rows).unwrap(), model.log_densities(&rows).unwrap());
    }
    let narrow = TruncatedGaussianMixture::params(2).fit(&ROWS).unwrap();
    narrow.save(&path).unwrap();
    let again = GaussianMixture::load(&path).unwrap();
    assert_eq!(again.score(&ROWS).unwrap().to_bits(), narrow.score(&ROWS).unwrap().to_bits());
    assert_eq!(arrays(&path)[0], ("cluster_centers".into(), Dtype::F32, 2));
}

#[test]
fn a_cosine_mixture_scores_rows_of_any_length() {
    let (_folder, path) = folder();
    let rows = corners();
    let longer: Vec<[f64; 2]> = rows.iter().map(|row| row.map(|x| 8.0 * x)).collect();
    let model = TruncatedGaussianMixture::params(2).metric(Metric::Cosine).fit(&rows).unwrap();
    model.save(&path).unwrap();
    let again = GaussianMixture::load(&path).unwrap();
    let unit = TruncatedGaussianMixture::params(2).fit(Normalized::new(&rows)).unwrap();
    for (model, rows) in [(&model, &longer), (&again, &rows), (&again, &longer)] {
        assert_eq!(model.predict(rows).unwrap(), unit.predict(Normalized::new(&rows)).unwrap());
        assert_eq!(model.log_densities(rows).unwrap(), unit.log_densities(Normalized::new(&rows)).unwrap());
    }
}

#[test]
fn a_k_modes_model_is_loaded_as_it_was_saved() {
    let (_folder, path) = folder();
    let rows = corners();
    let new: Vec<[f64; 2]> = (0..9).map(|i| [f64::from(i) / 8.0, f64::from(i % 4) / 3.0]).collect();
    let mean_shift = LaplacianKModes::params(2).mode_update(ModeUpdate::MeanShift).gaussian(true).fit(&rows);
    let columns: Vec<u32> = (0..40).map(|i| (i + 2) % 40).collect();
    let ring = Affinity::symmetrized(&(0..=40).collect::<Vec<_>>(), &columns, &[0.5; 40]).unwrap();
    let mut given = LaplacianKModes::params(2).n_neighbors(1).start_with(&rows, ring).unwrap();
    while given.advance(&rows).unwrap().is_some() {}
    // The memory limit keeps two responsibilities of a row.
    for model in [kmodes(2, None), kmodes(5, Some(1)), mean_shift.unwrap(), given.into_model()] {
        model.save(&path).unwrap();
        let again = KModesModel::load(&path).unwrap();
        assert_eq!((again.modes::<f64>(), again.mode_rows()), (model.modes(), model.mode_rows()));
        assert_eq!((again.labels(), again.energies()), (model.labels(), model.energies()));
        assert_eq!((again.n_iter(), again.seeded_by()), (model.n_iter(), model.seeded_by()));
        assert_eq!(again.affinity(), model.affinity());
        assert_eq!(again.bandwidth().to_bits(), model.bandwidth().to_bits());
        assert_eq!(again.laplacian_weight().to_bits(), model.laplacian_weight().to_bits());
        assert_eq!(again.predict(&new, &rows).unwrap(), model.predict(&new, &rows).unwrap());
        let first = fs::read(&path).unwrap();
        again.save(&path).unwrap();
        assert!(fs::read(&path).unwrap() == first, "a loaded model must be saved as it was");
    }
}

#[test]
fn files_hold_the_arrays_that_python_writes() {
    let (_folder, path) = folder();
    kmeans().save(&path).unwrap();
    let (f32, f64) = (Dtype::F32, Dtype::F64);
    assert_eq!(arrays(&path), named(&[("cluster_centers", f32, 2), ("counts", f64, 1), ("history", f64, 2)]));
    mixture(Covariance::Diag).save(&path).unwrap();
    let mixture = [
        ("cluster_centers", f64, 2),
        ("counts", f64, 1),
        ("history", f64, 2),
        ("lower_bounds", f64, 1),
        ("neighbors", Dtype::I32, 2),
        ("variances", f64, 1),
        ("weights", f64, 1),
    ];
    assert_eq!(arrays(&path), named(&mixture));
    self::mixture(Covariance::Factor).save(&path).unwrap();
    let with_factors = [&mixture[..3], &[("loadings", f64, 1)], &mixture[3..]].concat();
    assert_eq!(arrays(&path), named(&with_factors));
    kmodes(2, None).save(&path).unwrap();
    let mut kmodes_arrays = vec![
        ("affinity_columns", Dtype::I32, 1),
        ("affinity_starts", Dtype::I64, 1),
        ("affinity_weights", f64, 1),
        ("energies", f64, 1),
        ("history", f64, 2),
        ("labels", Dtype::I32, 1),
        ("loops", Dtype::I64, 1),
        ("mode_indices", Dtype::I64, 1),
        ("modes", f64, 2),
        ("responsibilities", f64, 2),
        ("watched", f64, 1),
    ];
    assert_eq!(arrays(&path), named(&kmodes_arrays));
    kmodes(5, Some(1)).save(&path).unwrap();
    kmodes_arrays.push(("responsibilities_clusters", Dtype::I32, 1));
    // Only Rust writes this array, and Python ignores it.
    kmodes_arrays.push(("responsibilities_rest", f64, 2));
    kmodes_arrays.sort_unstable_by_key(|array| array.0);
    assert_eq!(arrays(&path), named(&kmodes_arrays));
}

#[test]
fn truncated_models_are_refused() {
    let (_folder, path) = folder();
    kmeans().save(&path).unwrap();
    every_truncation_is_refused(&path, KMEANS);
    mixture(Covariance::Spherical).save(&path).unwrap();
    every_truncation_is_refused(&path, MIXTURE);
    kmodes(5, Some(1)).save(&path).unwrap();
    every_truncation_is_refused(&path, KMODES);
}

#[test]
fn damaged_kmeans_models_are_refused() {
    let (_folder, path) = folder();
    kmeans().save(&path).unwrap();
    let damage = Damage::of(&path, KMEANS);
    damage.everywhere();
    assert_eq!(damage.by(|c| c.kind = "coreset".into()), "holds a \"coreset\", not a \"kmeans-model\"");
    assert_eq!(
        damage.by(|c| drop(c.arrays.remove("cluster_centers"))),
        "lacks the array \"cluster_centers\""
    );
    assert_eq!(damage.by(|c| drop(c.arrays.remove("counts"))), "lacks the array \"counts\"");
    assert_eq!(damage.by(|c| drop(c.meta.remove("params"))), "lacks the text \"shoal.params\"");
    let centers = |values: &[f32], shape: &[usize]| {
        damage.array("cluster_centers", &Array::new(shape, values).unwrap())
    };
    assert_eq!(centers(&[1.0, f32::NAN, 2.0, 3.0], &[2, 2]), "center 0 holds NaN at column 1");
    assert_eq!(centers(&[1.0, 2.0, 2.0, f32::INFINITY], &[2, 2]), "center 1 holds inf at column 1");
    assert_eq!(centers(&[1.0; 4], &[4]), "array \"cluster_centers\" must be a matrix");
    assert!(centers(&[], &[2, 0]).starts_with("has 2 centers of 0 columns"));
    assert!(centers(&[], &[0, 2]).starts_with("has 0 centers of 2 columns"));
    assert_eq!(centers(&[1.0; 6], &[3, 2]), "holds 3 centers, but its \"n_clusters\" says 2");
    assert_eq!(
        damage.array("cluster_centers", &Array::new(&[2, 2], &[1i64, 2, 3, 4]).unwrap()),
        "array \"cluster_centers\" must be of type float64, got int64"
    );
    assert_eq!(
        damage.array("counts", &Array::new(&[3], &[1.0f64; 3]).unwrap()),
        "array \"counts\" must have shape [2], got [3]"
    );
    assert_eq!(
        damage.array("counts", &Array::new(&[2], &[1.0f32; 2]).unwrap()),
        "array \"counts\" must be of type float64, got float32"
    );
    assert_eq!(
        damage.array("counts", &Array::new(&[2], &[1.0f64, -1.0]).unwrap()),
        "has a cluster of weight -1"
    );
    assert_eq!(
        damage.text("params", ":2", ":1000000000000"),
        "holds 2 centers, but its \"n_clusters\" says 1000000000000"
    );
    assert_eq!(damage.text("params", ":2", ":-1"), "holds 2 centers, but its \"n_clusters\" says -1");
    assert_eq!(
        damage.text("params", "euclidean", "manhattan"),
        "has a metric that this version does not support"
    );
    assert!(damage.text("params", "{", "[").starts_with("has a damaged text \"shoal.params\""));
    assert_eq!(
        damage.text("fitted", "\"n_iter\":", "\"n_iter\":-"),
        "\"n_iter\" must be a whole number of at least 0"
    );
    assert_eq!(
        damage.text("fitted", "\"inertia\":", "\"inertia\":-"),
        "\"inertia\" must be a finite number of at least 0"
    );
    assert_eq!(damage.text("fitted", "timings", "times"), "\"timings\" are missing");
}

#[test]
fn damaged_mixtures_are_refused() {
    let (_folder, path) = folder();
    mixture(Covariance::Spherical).save(&path).unwrap();
    let damage = Damage::of(&path, MIXTURE);
    damage.everywhere();
    assert_eq!(
        damage.by(|c| c.kind = "kmeans-model".into()),
        "holds a \"kmeans-model\", not a \"gaussian-mixture-model\""
    );
    let list = |name: &str, values: &[f64]| damage.array(name, &Array::new(&[values.len()], values).unwrap());
    assert_eq!(list("variances", &[1.0, 0.0, 1.0]), "variances do not match 3 components of 2 columns");
    assert_eq!(list("variances", &[1.0]), "variances do not match 3 components of 2 columns");
    assert_eq!(list("variances", &[1.0, f64::NAN, 1.0]), "array \"variances\" holds NaN");
    assert_eq!(list("weights", &[0.5, 0.5]), "has 2 weights for 3 components");
    assert_eq!(list("weights", &[0.0; 3]), "weights do not match 3 components of 2 columns");
    assert_eq!(list("weights", &[-0.5, 1.0, 0.5]), "weights do not match 3 components of 2 columns");
    assert_eq!(list("counts", &[-0.5, 1.0, 0.5]), "has a cluster of weight -0.5");
    let bounds = "must have a lower bound for each of its iterations, and at least one";
    assert_eq!(
        (list("lower_bounds", &[]), list("lower_bounds", &vec![1.0; 9999])),
        (bounds.into(), bounds.into())
    );
    for ids in [[0, 1, 1, 2, 2, 3], [0, 1, 1, 2, 2, -1], [0, 0, 1, 2, 2, 1], [1, 0, 1, 2, 2, 1]] {
        assert_eq!(
            damage.array("neighbors", &Array::new(&[3, 2], &ids).unwrap()),
            "neighbors do not match 3 components of 2 columns"
        );
    }
    damage.array("neighbors", &Array::new::<i32>(&[3, 0], &[]).unwrap());
    assert!(damage.text("params", "spherical", "whole").starts_with("has a covariance type"));
    damage.text("params", "\"spherical\"", "\"diag\"");
    damage.text("params", "\"n_components\":3", "\"n_components\":4");
    damage.text("params", "\"n_active\":", "\"n_active\":-");
    damage.text("fitted", "\"n_iter\":", "\"n_iter\":1");
    damage.text("fitted", "\"converged\":", "\"converged\":0,\"was\":");
    damage.text("fitted", "\"seeding\":", "\"seeding\":-1,\"was\":");
    mixture(Covariance::Factor).save(&path).unwrap();
    let damage = Damage::of(&path, MIXTURE);
    damage.everywhere();
    // Three components of two columns have one factor each.
    for wrong in [&[][..], &[1.0; 5], &[1.0; 12]] {
        assert_eq!(
            damage.array("loadings", &Array::new(&[wrong.len()], wrong).unwrap()),
            "loadings do not match 3 components of 2 columns"
        );
    }
    damage.text("params", "\"factor\"", "\"diag\"");
}

#[test]
fn what_a_fit_chose_is_read_in_place_of_the_parameters() {
    let (_folder, path) = folder();
    let model = kmodes(2, None);
    assert_eq!((model.normalize(), model.n_neighbors()), (false, 5));
    model.save(&path).unwrap();
    // As the Python package writes it.
    let mut contents = persist::read(&path).unwrap();
    for (text, from, to) in [
        ("params", "\"normalize\":false", "\"normalize\":\"auto\""),
        ("params", "\"n_neighbors\":5", "\"n_neighbors\":\"auto\""),
        ("fitted", "\"bandwidth\":", "\"normalize\":true,\"n_neighbors\":7,\"bandwidth\":"),
    ] {
        let changed = contents.meta[text].replacen(from, to, 1);
        assert_ne!(changed, contents.meta[text]);
        contents.meta.insert(text.into(), changed);
    }
    persist::write(&path, &contents).unwrap();
    let again = KModesModel::load(&path).unwrap();
    assert_eq!((again.normalize(), again.n_neighbors()), (true, 7));
}

#[test]
fn damaged_k_modes_models_are_refused() {
    let (_folder, path) = folder();
    kmodes(5, Some(1)).save(&path).unwrap();
    let damage = Damage::of(&path, KMODES);
    damage.everywhere();
    let edited = |name: &str, change: &dyn Fn(&mut Vec<i64>)| {
        let array = &damage.sound.arrays[name];
        let narrow = array.values::<i32>().map(|values| values.into_iter().map(i64::from).collect());
        let mut values: Vec<i64> = narrow.or_else(|| array.values()).unwrap();
        change(&mut values);
        let shape = [values.len()];
        let narrow: Vec<i32> = values.iter().map(|&value| value as i32).collect();
        let changed = if array.dtype() == Dtype::I32 {
            Array::new(&shape, &narrow)
        } else {
            Array::new(&shape, &values)
        };
        damage.array(name, &changed.unwrap())
    };
    let out_of_range = "has a label or a row of a mode that is out of range";
    for bad in [-1, 5] {
        assert_eq!(edited("labels", &|labels| labels[3] = bad), out_of_range);
    }
    for bad in [-1, 40] {
        assert_eq!(edited("mode_indices", &|rows| rows[3] = bad), out_of_range);
        assert_eq!(edited("affinity_columns", &|columns| columns[3] = bad), "its affinity is damaged");
        assert_eq!(edited("affinity_starts", &|starts| starts[3] = bad.min(0)), "its affinity is damaged");
    }
    for bad in [-1, 1] {
        assert_eq!(edited("loops", &|loops| loops[0] += bad), "its energies do not fit together");
    }
    assert_eq!(edited("loops", &|loops| loops[0] = -1), "its energies do not fit together");
    let unfit = "its responsibilities do not fit together";
    assert_eq!(edited("responsibilities_clusters", &|clusters| clusters[1] = 5), unfit);
    assert_eq!(edited("responsibilities_clusters", &|clusters| clusters[0] = clusters[1]), unfit);
    for bad in [-0.5, f64::NAN] {
        let mut values: Vec<f64> = damage.sound.arrays["responsibilities"].values().unwrap();
        values[5] = bad;
        assert_eq!(damage.array("responsibilities", &Array::new(&[40, 2], &values).unwrap()), unfit);
    }
    assert_eq!(damage.array("responsibilities_rest", &Array::new(&[1, 1], &[0.5]).unwrap()), unfit);
    for bad in ["\"bandwidth\":0,\"was\":", "\"bandwidth\":1e-200,\"was\":", "\"bandwidth\":-1,\"was\":"] {
        assert!(damage.text("fitted", "\"bandwidth\":", bad).contains("bandwidth"));
    }
    damage.text("fitted", "\"laplacian_weight\":", "\"laplacian_weight\":-");
    damage.text("fitted", "\"graph_recall\":", "\"graph_recall\":-");
    damage.text("fitted", "\"graph_method\":", "\"was\":");
    damage.text("fitted", "\"shifted\":", "\"was\":");
    damage.text("fitted", "\"graph\":", "\"was\":");
    assert!(damage.text("params", "\"knn\"", "\"cosine\"").starts_with("has an affinity that"));
    damage.text("params", "byproduct", "medoid");
    damage.text("params", "\"n_clusters\":5", "\"n_clusters\":6");
    damage.text("params", "\"normalize\":", "\"was\":");
}

#[test]
fn predictions_do_not_depend_on_the_threads_of_the_model() {
    let rows = corners();
    let (kmeans, mixture, kmodes) =
        (KMeans::params(3).fit(&rows).unwrap(), mixture(Covariance::Spherical), kmodes(2, None));
    for threads in [Some(1), Some(3)] {
        let (a, b) = (kmeans.clone().with_threads(threads), mixture.clone().with_threads(threads));
        assert_eq!(a.predict(&rows).unwrap(), kmeans.predict(&rows).unwrap());
        assert_eq!(a.transform(&rows).unwrap(), kmeans.transform(&rows).unwrap());
        assert_eq!(a.nearest(&rows, 2).unwrap(), kmeans.nearest(&rows, 2).unwrap());
        assert_eq!(a.inertia_of(&rows).unwrap().to_bits(), kmeans.inertia_of(&rows).unwrap().to_bits());
        assert_eq!(b.shares(&rows).unwrap(), mixture.shares(&rows).unwrap());
        assert_eq!(b.score(&rows).unwrap().to_bits(), mixture.score(&rows).unwrap().to_bits());
        let c = kmodes.clone().with_threads(threads);
        assert_eq!(c.predict(&rows, &rows).unwrap(), kmodes.predict(&rows, &rows).unwrap());
    }
    assert!(kmeans.with_threads(Some(0)).predict(&rows).is_err());
}
