//! Every kind of rows goes straight into `fit` and `predict`, and all give bit-identical results.

use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};

use shoal::data::{
    Access, AnySource, Block, Chunks, Csr, DataSource, Dense, Dtype, Normalized, Permuted, RawRows, RowRange,
    Source, TileReader, Weighted, npy,
};
use shoal::{BackwardEuler, Error, Executor, KMeans, KMeansModel, MatRef, MiniBatch, Result, Seeding};

const N: usize = 5000;

/// Three groups of rows of small integers.
fn rows() -> Vec<[f32; 3]> {
    (0..N as u32).map(|i| [0, 1, 2].map(|j| ((i % 3) * 40 + (i * 7919 + j * 31) % 23) as f32)).collect()
}

fn fit<S: Source>(rows: S) -> KMeansModel {
    KMeans::params(3).rng_seed(5).tolerance(0.0).fit(rows).unwrap()
}

fn same(found: &KMeansModel, expected: &KMeansModel, what: &str) {
    assert_eq!(found.labels(), expected.labels(), "{what}");
    assert_eq!(found.centers::<f64>(), expected.centers::<f64>(), "{what}");
    assert_eq!(found.inertia(), expected.inertia(), "{what}");
}

#[test]
fn every_kind_of_rows_goes_into_fit() {
    let rows = rows();
    let expected = fit(&rows);
    let flat = rows.as_flattened();
    let vectors: Vec<Vec<f32>> = rows.iter().map(|row| row.to_vec()).collect();
    let bytes: Vec<[u8; 3]> = rows.iter().map(|row| row.map(|x| x as u8)).collect();
    let shorts: Vec<i16> = flat.iter().map(|&x| x as i16).collect();
    let array: &[[f32; 3]; N] = rows[..].try_into().unwrap();
    same(&fit(&rows[..]), &expected, "a slice of arrays");
    same(&fit(array), &expected, "an array of arrays");
    same(&fit(rows.clone()), &expected, "a vector, moved");
    same(&fit(MatRef::new(flat, 3)), &expected, "a matrix");
    same(&fit(&Dense::new(flat, 3).unwrap()), &expected, "a flat slice");
    same(&fit(&vectors), &expected, "vectors");
    same(&fit(&vectors[..]), &expected, "a slice of vectors");
    same(&fit(&bytes), &expected, "stored bytes");
    same(&fit(&bytes[..]), &expected, "a slice of stored bytes");
    same(&fit(RawRows::new(&shorts, 3).unwrap()), &expected, "a flat slice of stored integers");
    same(&fit(&rows as &dyn Source), &expected, "a trait object");
    let labels = expected.labels();
    assert_eq!(expected.predict(&rows[10..20]).unwrap(), labels[10..20]);
    assert_eq!(expected.predict(&vectors[10..20]).unwrap(), labels[10..20]);
    assert_eq!(expected.predict(&bytes[10..20]).unwrap(), labels[10..20]);
    let steps: Result<Vec<_>> =
        KMeans::params(3).rng_seed(5).tolerance(0.0).solve(&rows[..]).unwrap().collect();
    assert_eq!(steps.unwrap().len() as u64, expected.n_iter());
}

#[test]
fn stored_types_are_computed_in_the_type_that_holds_them() {
    assert!(matches!([[1u8; 2]; 3].any(), AnySource::F32(_)));
    assert!(matches!(vec![[1u16; 2]; 3].any(), AnySource::F32(_)));
    assert!(matches!((&[[1i32; 2]; 3][..]).any(), AnySource::F64(_)));
    assert!(matches!(vec![[true; 2]; 3].any(), AnySource::F64(_)));
    assert!(matches!(vec![vec![1.0f64; 2]; 3].any(), AnySource::F64(_)));
}

#[test]
fn views_of_other_sources_go_into_fit() {
    let rows = rows();
    let expected = fit(&rows);
    same(&fit(&RowRange::new(&rows, 0..N as u64).unwrap()), &expected, "a range");
    same(&fit(&RowRange::new(&rows, 100..900).unwrap()), &fit(&rows[100..900]), "part of the rows");
    same(&fit(&Permuted::new(&rows, (0..N as u32).collect()).unwrap()), &expected, "an order");
    same(&fit(&Weighted::new(&rows, vec![1.0; N]).unwrap()), &expected, "weights of 1");
    let twos = vec![2.0; N];
    let heavy = Weighted::new(&rows, &twos).unwrap();
    assert_eq!(fit(&heavy).cluster_weights().iter().sum::<f64>(), 2.0 * N as f64);
    let part = RowRange::new(&heavy, 0..100).unwrap();
    assert_eq!(fit(&part).cluster_weights().iter().sum::<f64>(), 200.0);
    // Normalized before or while they are read.
    let unit: Vec<f32> = (0..N as u64)
        .flat_map(|i| {
            let mut row = Vec::new();
            Normalized::new(&rows).gather(&[i], &mut row).unwrap();
            row
        })
        .collect();
    same(&fit(&Normalized::new(&rows)), &fit(&Dense::new(&unit, 3).unwrap()), "rows of length 1");
    let bytes: Vec<[u8; 3]> = rows.iter().map(|row| row.map(|x| x as u8)).collect();
    same(&fit(&Normalized::new(&bytes)), &fit(&Normalized::new(&rows)), "stored rows of length 1");
}

#[test]
fn views_of_files_name_their_compute_type() {
    let rows = rows();
    let expected = fit(&rows);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.npy");
    let mut writer = npy::Writer::create(&path, Dtype::F32, 3).unwrap();
    writer.append_values(rows.as_flattened()).unwrap();
    writer.finish().unwrap();
    let file = npy::open(&path).unwrap();
    same(&fit(&file), &expected, "a file");
    same(&fit(&RowRange::new::<f32>(&file, 0..N as u64).unwrap()), &expected, "a range of a file");
    same(&fit(&Weighted::new::<f32>(&file, vec![1.0; N]).unwrap()), &expected, "a file with weights");
    same(&fit(&Permuted::new::<f32>(&file, (0..N as u32).collect()).unwrap()), &expected, "a file in order");
    same(&fit(&Normalized::new::<f32>(&file)), &fit(&Normalized::new(&rows)), "a file, normalized");
    // Rows of f32 in a view of f64 are computed in f64.
    assert!(matches!(RowRange::new::<f64>(&file, 0..9).unwrap().any(), AnySource::F64(_)));
}

#[test]
fn ragged_rows_are_an_error() {
    let mut rows = vec![vec![0.0f64, 1.0]; 3000];
    rows[2500] = vec![0.0];
    let text = "rows must have equal lengths: row 2500 has 1 values, the first row has 2";
    for params in [KMeans::params(2), KMeans::params(2).seeding(Seeding::Given(vec![0.0, 0.0, 1.0, 1.0]))] {
        assert_eq!(params.fit(&rows).unwrap_err().to_string(), text);
    }
    assert_eq!(fit_error(&Vec::<Vec<f32>>::new()), "`rows` hold no rows");
    assert!(fit_error(&vec![Vec::<f32>::new()]).contains("columns must be at least 1"));
}

fn fit_error<S: Source>(rows: S) -> String {
    KMeans::params(1).fit(rows).unwrap_err().to_string()
}

/// Rows that can be read in passes only. After `fail_at` tiles, reading fails.
#[derive(Debug)]
struct Passes {
    rows: Vec<[f32; 3]>,
    weights: Option<Vec<f64>>,
    tiles: AtomicU64,
    fail_at: u64,
}

impl Passes {
    fn new(fail_at: u64) -> Self {
        Self { rows: rows(), weights: None, tiles: AtomicU64::new(0), fail_at }
    }
}

impl TileReader<f32> for Passes {
    fn tile<'s>(&'s self, rows: Range<usize>, _scratch: &'s mut Vec<f32>) -> Result<MatRef<'s, f32>> {
        if self.tiles.fetch_add(1, Ordering::Relaxed) >= self.fail_at {
            return Err(Error::foreign("the network is gone"));
        }
        Ok(MatRef::new(self.rows[rows].as_flattened(), 3))
    }
}

// No `gather`: the default makes a pass.
impl DataSource<f32> for Passes {
    fn dim(&self) -> usize {
        3
    }
    fn rows(&self) -> Option<u64> {
        Some(N as u64)
    }
    fn access(&self) -> Access {
        Access::Replay
    }
    fn for_each_block(
        &self,
        _tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f32>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        f(Block { first_row: 0, len: N, rows: self, weights: self.weights.as_deref() }).map(drop)
    }
}

impl Source for Passes {
    fn any(&self) -> AnySource<'_> {
        AnySource::F32(self)
    }
}

#[test]
fn a_source_of_ones_own_needs_no_gather() {
    let rows = rows();
    let source = Passes::new(u64::MAX);
    let mut out = vec![-1.0];
    source.gather(&[17, 3, 17], &mut out).unwrap();
    let expected: Vec<f32> =
        [-1.0].into_iter().chain([17, 3, 17].into_iter().flat_map(|i| rows[i])).collect();
    assert_eq!(out, expected);
    assert_eq!(
        source.gather(&[N as u64], &mut out).unwrap_err().to_string(),
        format!("row {N} does not exist")
    );
    assert_eq!(out, expected);
    let params =
        KMeans::params(3).seeding(Seeding::Given(vec![0.0, 0.0, 0.0, 50.0, 50.0, 50.0, 90.0, 90.0, 90.0]));
    same(&params.fit(&source).unwrap(), &params.fit(&rows).unwrap(), "passes");
    let once = Chunks::once(1, std::iter::once(Ok(vec![1.0f32].into())));
    let refused = once.gather(&[0], &mut Vec::new()).unwrap_err().to_string();
    assert_eq!(refused, "single rows of a stream cannot be read; write it to a file and open that");
}

#[test]
fn an_error_of_a_tile_ends_the_fit() {
    for threads in [1, 3] {
        let cx = Executor::new(Some(threads)).unwrap();
        for fail_at in 0..12 {
            let source = Passes::new(fail_at);
            let outcome = KMeans::params(3).threads(Some(threads)).fit(&source);
            assert_eq!(outcome.unwrap_err().to_string(), "the network is gone", "{fail_at}");
            let source = Passes::new(fail_at);
            let views: [Result<()>; 3] = [
                MiniBatch::params(3).threads(Some(threads)).fit(&Normalized::new(&source)).map(drop),
                KMeans::params(3).fit(&Weighted::new(&source, vec![2.0; N]).unwrap()).map(drop),
                shoal::data::check_finite(&RowRange::new(&source, 1..4000).unwrap(), &cx),
            ];
            for view in views {
                assert_eq!(view.unwrap_err().to_string(), "the network is gone", "{fail_at}");
            }
        }
    }
}

#[test]
fn too_few_weights_of_a_block_are_an_error() {
    let source = Passes { weights: Some(vec![1.0; 7]), ..Passes::new(u64::MAX) };
    let text = format!("the source gave 7 weights for a block of {N} rows");
    for range in [0..10, 5..4000, 0..N as u64] {
        let part = RowRange::new(&source, range).unwrap();
        assert_eq!(fit_error(&part), text);
        assert_eq!(BackwardEuler::params(2).fit(&part).unwrap_err().to_string(), text);
    }
    let refused = source.for_each_block_from(2048, 1024, &mut |_| Ok(ControlFlow::Continue(()))).unwrap_err();
    assert_eq!(refused.to_string(), text);
}

/// Rows whose weights are too few, announced and in blocks.
#[derive(Debug)]
struct Short<'a>(Dense<'a, f32>, &'a [f64]);

impl DataSource<f32> for Short<'_> {
    fn dim(&self) -> usize {
        self.0.dim()
    }
    fn rows(&self) -> Option<u64> {
        DataSource::rows(&self.0)
    }
    fn access(&self) -> Access {
        Access::Random
    }
    fn weights(&self) -> Option<&[f64]> {
        Some(self.1)
    }
    fn for_each_block(
        &self,
        tile_rows: usize,
        f: &mut dyn FnMut(Block<'_, f32>) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        self.0.for_each_block(tile_rows, &mut |block| f(Block { weights: Some(self.1), ..block }))
    }
    fn gather(&self, rows: &[u64], out: &mut Vec<f32>) -> Result<()> {
        self.0.gather(rows, out)
    }
}

#[test]
fn too_few_announced_weights_are_an_error() {
    let source = Short(Dense::new(&[1.0, 2.0, 3.0], 1).unwrap(), &[1.0, 2.0]);
    let text = "the source gave 2 weights for 3 rows";
    assert_eq!(RowRange::new(&source, 0..3).unwrap_err().to_string(), text);
    assert_eq!(Permuted::new(&source, vec![2u32]).unwrap_err().to_string(), text);
}

#[test]
fn sparse_rows_go_through_views() {
    let (indptr, indices, values) = ([0, 1, 2, 3, 4], [0, 1, 0, 1], [5.0f32, 1.0, 4.0, 2.0]);
    let rows = Csr::new((4, 2), indptr[..].into(), indices[..].into(), &values).unwrap();
    let part = RowRange::new::<f32>(rows, 0..4).unwrap();
    let model = KMeans::params(2).rng_seed(1).fit(&part).unwrap();
    assert_eq!(model.labels(), KMeans::params(2).rng_seed(1).fit(&rows).unwrap().labels());
    let heavy = Weighted::new::<f32>(rows, vec![1.0, 2.0, 3.0, 4.0]).unwrap();
    assert_eq!(KMeans::params(1).fit(&heavy).unwrap().cluster_weights(), [10.0]);
}

#[test]
fn arrays_go_in_and_come_out() {
    use shoal::ndarray::{Array1, Array2, ArrayView2, s};

    let rows = rows();
    let expected = fit(&rows);
    let array = Array2::from_shape_fn((N, 3), |(i, j)| rows[i][j]);
    let bytes = array.mapv(|x| x as u8);
    let view: ArrayView2<'_, f32> = array.view();
    same(&fit(&array), &expected, "an array");
    same(&fit(view), &expected, "a view");
    same(&fit(&bytes), &expected, "an array of bytes");
    let transposed = array.t().as_standard_layout().into_owned();
    same(&fit(&transposed.t()), &expected, "a transposed view");
    same(&fit(&array.slice(s![100..900, ..])), &fit(&rows[100..900]), "a slice");
    let model = fit(&array);
    let (centers, labels): (Array2<f32>, Array1<u32>) = (model.centers_array(), model.labels_array());
    assert_eq!((centers.dim(), labels.len()), ((3, 3), N));
    assert_eq!(centers.iter().copied().collect::<Vec<_>>(), expected.centers::<f32>());
    assert_eq!(labels.as_slice().unwrap(), expected.labels());
    assert_eq!(model.predict_array(&array).unwrap(), labels);
    let distances = model.transform_array(array.slice(s![..7, ..])).unwrap();
    assert_eq!(distances.dim(), (7, 3));
    assert_eq!(fit(&centers).n_clusters(), 3);
}

#[test]
fn a_checkpoint_needs_a_source_of_its_kind() {
    let (rows, passes) = (rows(), Passes::new(u64::MAX));
    let params = KMeans::params(3).max_iter(5);
    let mut run = params.start(&rows).unwrap();
    run.advance(&rows).unwrap();
    let checkpoint = run.checkpoint(&rows).unwrap();
    let refused = params.resume_fit(&checkpoint, &passes).err().unwrap().to_string();
    assert!(refused.contains("needs \"random\" access, `rows` have \"replay\""), "{refused}");
    let refused = params.resume_fit(&checkpoint, &rows[1..]).err().unwrap().to_string();
    assert!(refused.contains("of 5000 x 3") && refused.contains("`rows` have 4999 x 3"), "{refused}");
}
