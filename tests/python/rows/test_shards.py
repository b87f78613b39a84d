"""Many files as one source give the results of one file with all rows."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import shoal
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

RNG = np.random.default_rng(0)
X = (RNG.normal(size=(900, 6)) + 4 * RNG.integers(0, 4, size=(900, 1))).astype(np.float32)


def binary(path, rows):
    path.write_bytes(np.array(rows.shape, "<u4").tobytes() + rows.tobytes())


def vectors(path, rows):
    lengths = np.full((len(rows), 1), rows.shape[1], "<i4").view("<f4")
    path.write_bytes(np.hstack([lengths, rows]).tobytes())


def tensors(path, rows):
    from safetensors.numpy import save_file

    save_file({"x": rows}, path)


def parquets(path, rows):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({f"c{j}": rows[:, j] for j in range(rows.shape[1])}), path)


def feathers(path, rows):
    pa, feather = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.feather")
    vector = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    feather.write_feather(pa.table({"v": vector}), path)


def texts(path, rows):
    np.savetxt(path, rows, delimiter=",", header=",".join("abcdef"), comments="")


WRITERS = {".npy": np.save, ".fbin": binary, ".fvecs": vectors, ".safetensors": tensors}
SEQUENTIAL = {".parquet": parquets, ".feather": feathers}


def split(folder, cuts, rows=X, suffix=".npy", write=np.save):
    """Write rows to several files, cut at `cuts`; return the paths in order."""
    paths = []
    for i, part in enumerate(np.split(rows, sorted(cuts))):
        paths.append(folder / f"part-{i:05}{suffix}")
        write(paths[-1], part)
    return paths


def all_of(model):
    return {
        name: value
        for name, value in vars(model).items()
        if name.endswith("_") and isinstance(value, (np.ndarray, float)) and name != "history_"
    }


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


ESTIMATORS = {
    "lloyd": lambda n: shoal.KMeans(5, random_state=0, algorithm="lloyd", max_iter=6, n_jobs=n),
    "bounds": lambda n: shoal.KMeans(5, random_state=0, algorithm="yinyang", max_iter=6, n_jobs=n),
    "parallel": lambda n: shoal.KMeans(5, init="k-means||", random_state=0, max_iter=3, n_jobs=n),
    "afkmc2": lambda n: shoal.KMeans(5, init="afk-mc2", random_state=0, max_iter=3, n_jobs=n),
    "minibatch": lambda n: shoal.MiniBatchKMeans(5, batch_size=64, max_iter=3, random_state=0, n_jobs=n),
    "nested": lambda n: shoal.NestedMiniBatchKMeans(5, batch_size=50, random_state=0, n_jobs=n),
    "vrkm": lambda n: shoal.VarianceReducedKMeans(5, max_iter=3, random_state=0, n_jobs=n),
    "breathing": lambda n: shoal.BreathingKMeans(5, m=2, random_state=0, n_jobs=n),
    "balanced": lambda n: shoal.BalancedKMeans(5, size_max=1.1, random_state=0, n_jobs=n),
    "sbe": lambda n: shoal.BackwardEulerKMeans(5, batch_size=100, max_iter=5, random_state=0, n_jobs=n),
    "mixture": lambda n: shoal.TruncatedGaussianMixture(5, max_iter=3, random_state=0, n_jobs=n),
}
EXPECTED = {}


@pytest.mark.filterwarnings("ignore:the fit did not converge")
@given(
    cuts=st.lists(st.integers(0, len(X)), max_size=12) | st.just([0, 0, 1, 1, 2, 899, 900]),
    name=st.sampled_from(sorted(ESTIMATORS)),
    threads=st.sampled_from([1, 3]),
    suffix=st.sampled_from([".npy", ".fbin"]),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_split_gives_the_result_of_one_file(tmp_path_factory, cuts, name, threads, suffix):
    folder = tmp_path_factory.mktemp("split")
    if name not in EXPECTED:
        np.save(folder / "whole.npy", X)
        EXPECTED[name] = all_of(ESTIMATORS[name](1).fit(folder / "whole.npy"))
        assert EXPECTED[name]
    paths = split(folder, cuts, suffix=suffix, write=WRITERS[suffix])
    model = ESTIMATORS[name](threads).fit(paths)
    assert_same(all_of(model), EXPECTED[name])
    # The labels of balanced k-means keep limits, which `predict` does not know.
    if hasattr(model, "labels_") and name != "balanced":
        np.testing.assert_array_equal(model.predict(paths), model.labels_)


@pytest.mark.parametrize("suffix", WRITERS)
def test_functions_and_mapped_formats(tmp_path, suffix):
    paths = split(tmp_path, [1, 300, 301, 640], suffix=suffix, write=WRITERS[suffix])
    source = shoal.open(paths)
    assert (source.shape, source.dtype, source.access) == (X.shape, X.dtype, "random")
    assert source.nbytes == X.nbytes
    assert repr(source) == "<DataSource 5 files: 900 x 6 float32, access random>"
    np.testing.assert_array_equal(np.concatenate(list(source.blocks(77))), X)
    np.testing.assert_array_equal(np.asarray(source), X)
    rows = RNG.integers(-900, 900, 500)
    np.testing.assert_array_equal(source.take(rows), X[rows])
    part = source.slice(250, 700).slice(10, 400)
    np.testing.assert_array_equal(np.asarray(part), X[260:650])
    np.testing.assert_array_equal(part.take([389, 0, 45]), X[260:650][[389, 0, 45]])
    whole = shoal.KMeans(4, random_state=0).fit(X[260:650])
    np.testing.assert_array_equal(shoal.KMeans(4, random_state=0).fit(part).labels_, whole.labels_)
    with pytest.raises(IndexError, match="row 900 does not exist"):
        source.take([900])
    for expected, found in (
        (shoal.kmeans_plusplus(X, 4, random_state=0), shoal.kmeans_plusplus(paths, 4, random_state=0)),
        (shoal.kmeans_parallel(X, 4, random_state=0), shoal.kmeans_parallel(paths, 4, random_state=0)),
        (shoal.nearest(X, X[:9], n_nearest=2), shoal.nearest(paths, X[:9], n_nearest=2)),
    ):
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one, other)
    drawn, same = (shoal.lightweight_coreset(rows, 50, random_state=0) for rows in (X, paths))
    np.testing.assert_array_equal(drawn.indices, same.indices)
    graph, again = shoal.knn_graph(X, 3), shoal.knn_graph(paths, 3)
    assert (graph != again).nnz == 0
    weights = RNG.random(len(X))
    one, other = (shoal.KMeans(4, random_state=0).fit(rows, sample_weight=weights) for rows in (X, paths))
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)


@pytest.mark.parametrize("suffix", SEQUENTIAL)
def test_sequential_formats(tmp_path, suffix):
    write = SEQUENTIAL[suffix]
    cuts = [0, 1, 400, 401]
    paths = split(tmp_path, cuts, suffix=suffix, write=write)
    source = shoal.open(paths)
    assert (source.shape, source.dtype, source.access, source.nbytes) == (
        X.shape,
        X.dtype,
        "replay",
        X.nbytes,
    )
    assert source.feature_names == ([f"c{j}" for j in range(6)] if suffix == ".parquet" else None)
    np.testing.assert_array_equal(np.asarray(source), X)
    (tmp_path / "one").mkdir()
    write(tmp_path / "one" / f"x{suffix}", X)
    make = lambda: shoal.KMeans(5, random_state=0, max_iter=5)  # noqa: E731
    whole = make().fit(tmp_path / "one" / f"x{suffix}")
    assert_same(all_of(make().fit(paths)), all_of(whole))
    np.testing.assert_array_equal(whole.predict(str(tmp_path / f"*{suffix}")), whole.labels_)
    copied = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(np.asarray(copied), X)
    if suffix == ".parquet":
        assert shoal.open(paths, columns=["c2", "c0"]).shape == (900, 2)
        model = make().fit(source)
        shoal.write_predictions(model, source, tmp_path / "kept.parquet", keep=["c3"])
        from pyarrow import parquet

        found = parquet.read_table(tmp_path / "kept.parquet")
        np.testing.assert_array_equal(found["c3"].to_numpy(), X[:, 3])
        np.testing.assert_array_equal(found["label"].to_numpy(), model.labels_)
        parquets(paths[2], X[1:400, ::-1][:, :5])
        with pytest.raises(
            ValueError, match=r"part-00002\.parquet: has 5 columns of float32 .*unlike .*part-00000"
        ):
            shoal.open(paths)
        with pytest.raises(ValueError, match=r"part-00002\.parquet: was changed or replaced"):
            make().fit(source)


def test_lists_globs_and_folders_name_the_same_files(tmp_path, monkeypatch):
    paths = split(tmp_path, [10, 200, 350])
    (tmp_path / "deep" / "er").mkdir(parents=True)
    np.save(tmp_path / "deep" / "er" / "x.npy", X[:7])
    (tmp_path / "README.md").write_text("not rows")
    (tmp_path / ".hidden.npy").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    for same in (
        paths,
        tuple(paths),
        [str(p) for p in paths],
        [os.fsencode(p) for p in paths],
        "part-*.npy",
        Path("*.npy"),
        tmp_path,
        str(tmp_path),
        b".",
        np.array([str(p) for p in paths]),
    ):
        np.testing.assert_array_equal(np.asarray(shoal.open(same)), X)
    assert shoal.open("**/*.npy").shape == (907, 6)
    assert shoal.open(["part-0000[01].npy", "deep/er", paths[3], paths[3]]).shape == (200 + 7 + 2 * 550, 6)
    backwards = shoal.open(paths[::-1])
    np.testing.assert_array_equal(backwards.take([0]), X[[350]])
    # Text order: 10 before 9.
    for i in (9, 10):
        np.save(f"n{i}.npy", X[i : i + 1])
    np.testing.assert_array_equal(np.asarray(shoal.open("n*.npy")), X[[10, 9]])
    # A file whose name looks like a glob.
    np.save("a[1].npy", X[:3])
    assert shoal.open("a[1].npy").shape == (3, 6)


def test_refusals(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", X[:5])
    np.save("b.npy", X[:5, :4])
    np.save("c.npy", X[:5].astype("f8"))
    np.save("none.npy", X[:0])
    binary(Path("a.fbin"), X[:5])
    Path("x.txt").write_text("1 2\n")
    Path("empty").mkdir()

    def refused(given, kind=ValueError, **options):
        with pytest.raises(kind) as caught:
            shoal.open(given, **options)
        return str(caught.value)

    assert refused(["a.npy", "b.npy"]) == (
        "b.npy: has 4 columns of float32, unlike a.npy, which has 6 columns of float32"
    )
    assert refused(["a.npy", "a.npy", "c.npy"]) == (
        "c.npy: has 6 columns of float64, unlike a.npy, which has 6 columns of float32"
    )
    assert "at least 1 row, got 2 files without rows" in refused(["none.npy", "none.npy"])
    assert "must be rows or a list of paths, got an empty list" in refused([])
    assert "X[1] must be a path like X[0], got 3" in refused(["a.npy", 3])
    assert "flat list of paths" in refused([[Path("a.npy")], [Path("b.npy")]])
    assert "a.fbin: files of one source must be of one kind" in refused(["a.npy", "a.fbin"])
    assert "matches no file" in refused("zz*.npy", FileNotFoundError)
    assert "without files of rows" in refused("empty", IsADirectoryError)
    assert "no.npy" in refused(["a.npy", "no.npy"], FileNotFoundError)
    assert "no.txt" in refused(["no.txt"], FileNotFoundError)
    assert "x.txt: one of many files must end in one of .npy" in refused(["a.npy", "x.txt"])
    assert "must hold files of one kind, got .fbin and .npy. Pass a glob, for example '" in refused(".")
    assert "columns=['x'] does not belong to .npy files" in refused(["a.npy"], columns=["x"])
    assert "shape and dtype describe one raw file" in refused(["a.npy"], shape=(5, 6), dtype="f4")
    with pytest.raises(TypeError, match=r"got a path.*pass the paths as a list"):
        shoal.open(Path().glob("*.npy"))
    with pytest.raises(ValueError, match="at least 1 row"):
        shoal.open("none.npy")
    with pytest.raises(ValueError, match=r"string|numeric"):
        shoal.KMeans(1).fit([["x", "y"], ["z", "w"]])
    assert shoal.KMeans(1).fit([[1.0, 2.0], [3.0, 4.0]]).n_features_in_ == 2


def test_a_damaged_file_in_the_middle_is_named(tmp_path):
    paths = split(tmp_path, [300, 600])
    paths[1].write_bytes(paths[1].read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"part-00001\.npy: .*need a file of"):
        shoal.open(paths)
    paths = split(tmp_path, [300, 600], suffix=".fvecs", write=vectors)
    damaged = bytearray(paths[1].read_bytes())
    damaged[28 * 100] = 5
    paths[1].write_bytes(damaged)
    with pytest.raises(ValueError, match=r"part-00001\.fvecs: has rows of different lengths: row 100"):
        shoal.KMeans(3, random_state=0).fit(paths)


@pytest.mark.parametrize("suffix", [".npy", ".fvecs", ".parquet", ".csv"])
@pytest.mark.parametrize("name", ["lloyd", "parallel", "nested", "sampled"])
@pytest.mark.filterwarnings("ignore:shuffle=True")
def test_a_value_that_is_not_finite_names_its_file(tmp_path, suffix, name):
    if name == "sampled" and suffix in (".parquet", ".csv"):
        pytest.skip("batches of random rows need random access")
    rows, write = X.copy(), (WRITERS | SEQUENTIAL | {".csv": texts})[suffix]
    rows[617, 4] = np.inf
    paths = split(tmp_path, [100, 400, 850], rows, suffix, write)
    place = rf"row 617, column 4 \(row 217 of {re.escape(str(paths[2]))}\)$"
    if name == "sampled":
        model = shoal.MiniBatchKMeans(5, init=X[:5], batch_size=900, max_iter=20, random_state=0)
    else:
        model = ESTIMATORS[name](2)
    with pytest.raises(ValueError, match=place):
        model.fit([str(path) for path in paths])
    fitted = shoal.KMeans(5, max_iter=1, random_state=0).fit(paths[0])
    with pytest.raises(ValueError, match=place):
        fitted.predict(str(tmp_path / f"*{suffix}"))


@pytest.mark.parametrize("read_before", [False, True])
def test_a_file_that_changes_after_opening_is_named(tmp_path, read_before):
    def changed(change, text, kind=ValueError, *, seen_by_take=True):
        paths = split(tmp_path, [300, 600])
        source = shoal.open(paths)
        if read_before:
            np.asarray(source)
        change(paths[1])

        def single():
            return source.take([0, 400])

        uses = [
            lambda: shoal.KMeans(3, max_iter=2, init=X[:3]).fit(source),
            lambda: source.slice(350, 360).__array__(),
            lambda: np.asarray(source),
        ]
        if read_before and not seen_by_take:
            # Single rows of an open file: only its length is checked.
            np.testing.assert_array_equal(single(), X[[0, 400]])
        else:
            uses.append(single)
        for use in uses:
            with pytest.raises(kind, match=text) as caught:
                use()
            assert "part-00001.npy" in str(caught.value)
        np.testing.assert_array_equal(source.take([5]), X[[5]])

    def replaced(path):
        np.save(path.with_name("new.npy"), X[:300] + 1)
        path.with_name("new.npy").replace(path)

    def rewritten(path):
        content = path.read_bytes()
        path.write_bytes(content[:-1] + b"\0")
        os.utime(path, ns=(1, 1))

    changed(lambda path: os.truncate(path, 4000), "was cut while it was open")
    changed(replaced, "was changed or replaced", seen_by_take=False)
    changed(rewritten, "was changed or replaced", seen_by_take=False)
    changed(Path.unlink, "No such file", FileNotFoundError, seen_by_take=False)


def test_pickles_and_checkpoints(tmp_path, monkeypatch):
    paths = split(tmp_path, [1, 500])
    monkeypatch.chdir(tmp_path)
    source = shoal.open("part-*.npy")
    part = source.slice(100, 800)
    text = pickle.dumps((source, part))
    (tmp_path / "other").mkdir()
    monkeypatch.chdir("other")
    for found, rows in zip(pickle.loads(text), (X, X[100:800]), strict=True):
        np.testing.assert_array_equal(np.asarray(found), rows)
    np.testing.assert_array_equal(np.asarray(source), X)
    np.save(paths[1], X[:3])
    with pytest.raises(ValueError, match=r"part-00000\.npy, .*: h(as|olds) .* when the source was pickled"):
        pickle.loads(text)
    paths = split(tmp_path, [1, 500])
    whole = shoal.KMeans(6, random_state=0, tol=0).fit(X)
    fit = shoal.KMeans(
        6, random_state=0, tol=0, callbacks=[shoal.callbacks.Checkpoint("run.safetensors", every_steps=1)]
    )
    for step in fit.iter_fit(paths):
        if step.iteration == 2:
            break
    resumed = shoal.resume("run.safetensors", paths)
    np.testing.assert_array_equal(resumed.cluster_centers_, whole.cluster_centers_)
    with pytest.raises(ValueError, match="does not match the checkpoint"):
        shoal.resume("run.safetensors", paths[::-1])


def test_inputs_are_not_replaced(tmp_path, monkeypatch):
    paths = split(tmp_path, [100, 500])
    monkeypatch.chdir(tmp_path)
    model = shoal.KMeans(3, random_state=0).fit(paths)
    for rows in (paths, "part-*.npy", shoal.open(paths), shoal.open(paths).slice(0, 5)):
        with pytest.raises(ValueError, match="is one of the files that are read"):
            model.predict(rows, out="part-00001.npy")
    for rows in (".", shoal.open(tmp_path)):
        with pytest.raises(ValueError, match="lies in the folder that is read"):
            model.predict(rows, out="labels.npy")
    np.testing.assert_array_equal(model.predict(paths, out="labels.npy"), model.labels_)


def test_the_command_line(tmp_path, monkeypatch, capsys):
    from shoal.cli import main

    monkeypatch.chdir(tmp_path)
    Path("parts").mkdir()
    paths = [str(p) for p in split(Path("parts"), [100, 500])]
    np.save("whole.npy", X)

    def found(*args):
        assert main([*args, "--json"]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    whole = found("fit", "whole.npy", "-k", "5", "--quiet", "-o", "m.safetensors")
    for data in (paths, ["parts"], ["parts/*.npy"]):
        many = found("fit", *data, "-k", "5", "--quiet")
        assert many["inertia"] == whole["inertia"]
        assert many["data"] == (data if len(data) > 1 else data[0])
        assert found("predict", "m.safetensors", *data, "-o", "l.npy")["rows"] == len(X)
        found("seed", *data, "-k", "5", "-o", "s.npy")
        found("coreset", *data, "-m", "50", "-o", "c.npz")
        found("knn", *data, "-m", "3", "-o", "g.npz")
        found("shuffle", *data, "-o", "sh.npy", "--quiet")
        assert sorted(map(tuple, np.load("sh.npy"))) == sorted(map(tuple, X))
    found("compare", *paths, "-k", "5", "--methods", "kmeans,minibatch", "--quiet")
    assert found("info", "parts")["shape"] == [900, 6]
    assert found("info", "parts/*.npy")["shape"] == [900, 6]
    assert main(["fit", *paths, "-k", "5", "--quiet"]) == 0
    assert "3 files, parts/part-00000.npy to parts/part-00002.npy: 900 x 6 float32" in capsys.readouterr().out
    assert main(["predict", "m.safetensors", *paths, "-o", "parts/part-00001.npy"]) == 1
    assert "is also read" in capsys.readouterr().err
    assert main(["fit", "no/*.npy", "-k", "5"]) == 1
    assert "no/*.npy" in capsys.readouterr().err


MANY = """
import resource, sys, time
import numpy as np, shoal
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
begun = time.perf_counter()
source = shoal.open(sys.argv[1])
opened = time.perf_counter() - begun
model = shoal.KMeans(4, random_state=0, max_iter=3, n_jobs=4).fit(source)
fitted = time.perf_counter() - begun - opened
mini = shoal.MiniBatchKMeans(4, batch_size=500, max_iter=1, random_state=0, n_jobs=4).fit(source)
labels = model.predict(source)
assert (labels == model.labels_).all()
np.save(sys.argv[2], np.vstack([model.cluster_centers_, mini.cluster_centers_]))
print(f"{len(source)} rows: open {opened:.2f} s, fit {fitted:.2f} s")
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of open files")
def test_ten_thousand_files_with_few_descriptors(tmp_path):
    rows = RNG.normal(size=(20_000, 3)).astype(np.float32)
    (tmp_path / "many").mkdir()
    np.save(tmp_path / "one.npy", rows[:2])
    header = (tmp_path / "one.npy").read_bytes()[: -rows[:2].nbytes]
    for i in range(10_000):
        (tmp_path / "many" / f"{i:05}.npy").write_bytes(header + rows[2 * i : 2 * i + 2].tobytes())
    done = subprocess.run(
        [sys.executable, "-c", MANY, str(tmp_path / "many"), str(tmp_path / "centers.npy")],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    model = shoal.KMeans(4, random_state=0, max_iter=3).fit(rows)
    mini = shoal.MiniBatchKMeans(4, batch_size=500, max_iter=1, random_state=0).fit(rows)
    expected = np.vstack([model.cluster_centers_, mini.cluster_centers_])
    np.testing.assert_array_equal(np.load(tmp_path / "centers.npy"), expected)


def test_list_columns_and_csv_files(tmp_path, monkeypatch):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.chdir(tmp_path)
    lists = pa.table({"v": pa.array(X.tolist(), pa.list_(pa.float32()))})
    # The first file has no rows, so only the second one tells the length of the lists.
    for i, (start, stop) in enumerate([(0, 0), (0, 400), (400, 400), (400, 900)]):
        parquet.write_table(lists.slice(start, stop - start), f"{i}.parquet")
    source = shoal.open("*.parquet")
    assert source.shape == X.shape
    np.testing.assert_array_equal(np.asarray(source), X)
    parquet.write_table(pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))}), "4.parquet")
    with pytest.raises(
        ValueError, match=r"4\.parquet: has 2 columns .*unlike 1\.parquet, which has 6 columns"
    ):
        shoal.open("*.parquet")
    with pytest.raises(ValueError, match="has no rows, so the length of the lists"):
        shoal.open(["0.parquet", "2.parquet"])
    for i, part in enumerate(np.split(X, [300])):
        np.savetxt(f"{i}.csv", part, delimiter=",", header="a,b,c,d,e,f", comments="")
    texts = shoal.open("?.csv", dtype="float32")
    assert texts.feature_names == list("abcdef")
    np.testing.assert_array_equal(np.concatenate(list(texts.blocks())), X)


def test_names_of_csv_columns_are_compared(tmp_path, monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    Path("0.csv").write_text("a,b\n1,2\n")
    Path("1.csv").write_text("b,a\n2,1\n")
    with pytest.raises(ValueError, match=r"1\.csv: has 2 columns of float64 \('b', 'a'\), unlike 0\.csv"):
        shoal.open("?.csv")
    Path("1.csv").write_text("a,b\n3,4\n")
    np.testing.assert_array_equal(np.concatenate(list(shoal.open("?.csv").blocks())), [[1, 2], [3, 4]])


def test_iterators_of_paths_and_single_npz_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", X[:5])
    with pytest.raises(ValueError, match="pass a list of paths"):
        shoal.KMeans(1).fit(Path().glob("*.npy"))
    np.savez("core1.npz", X=X)
    for paths in (["core1.npz"], "core*.npz", [Path("core*.npz")]):
        source = shoal.open(paths)
        np.testing.assert_array_equal(np.asarray(source), X)
        np.testing.assert_array_equal(np.asarray(pickle.loads(pickle.dumps(source))), X)
    np.savez("core2.npz", X=X)
    with pytest.raises(ValueError, match=r"core2\.npz: an \.npz file must be opened alone"):
        shoal.open("core*.npz")


@pytest.mark.parametrize("use", [shoal.open, lambda folder: shoal.KMeans(2).fit(folder)])
def test_an_empty_npy_file_in_a_mixed_folder_is_named(tmp_path, use):
    np.savetxt(tmp_path / "a.csv", np.ones((5, 2)), delimiter=",")
    (tmp_path / "b.npy").touch()
    with pytest.raises(ValueError, match=r"b\.npy: is empty$"):
        use(tmp_path)
