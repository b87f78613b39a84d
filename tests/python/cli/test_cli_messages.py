"""Wrong usage of the command line: one line, the nearest valid name, and no names of Python."""

import gzip
import re
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import shoal
from command_line import program, run
from shoal._terminal.progress import format_progress, report_progress


@pytest.fixture(autouse=True)
def rows(tmp_path, monkeypatch):
    """A file of rows, in the working folder."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    np.save("rows.npy", X)
    X[7, 1] = np.nan
    np.save("bad.npy", X)
    np.save("same.npy", np.ones((9, 2)))
    np.save("wide.npy", np.ones((9, 5)))
    Path("latin.csv").write_bytes("größe,b\n1,2\n".encode("latin-1"))
    Path("packed.csv").write_bytes(gzip.compress(b"a,b\n1,2\n"))
    shoal.KMeans(2, random_state=0, init="random").fit(np.nan_to_num(X)).save("model.safetensors")
    return X


USAGE = [
    ("fitt rows.npy", "got 'fitt'. Did you mean 'fit'?"),
    ("fit", "shoal fit needs DATA and -k. See shoal fit --help"),
    ("fit rows.npy -k", "-k needs a value"),
    ("fit rows.npy -k many", "-k must be an integer, got 'many'"),
    ("fit rows.npy -k 3 --tol low", "--tol must be a number, got 'low'"),
    ("fit rows.npy --cluters 3", "shoal fit has no option --cluters. Did you mean '--clusters'?"),
    ("fit rows.npy -k 3 -z", "shoal fit has no option -z"),
    ("fit rows.npy -k 3 more.npy", "unexpected argument more.npy"),
    ("fit rows.npy -k 3 --s 3", "option --s is ambiguous: --shape, --seed, --size-min, --size-max, --set"),
    ("fit raw.bin -k 3 --shape 3 --dtype u1", "--shape must be N,D, two numbers of at least 1, got '3'"),
    ("fit rows.npy -k 3 --method kmean", "got 'kmean'. Did you mean 'kmeans'?"),
    ("fit rows.npy -k 3 --init kmeans++", "got 'kmeans++'. Did you mean 'k-means++'?"),
    ("fit rows.npy -k 3 --metric cosin", "got 'cosin'. Did you mean 'cosine'?"),
    ("fit rows.npy -k 3 --set alogrithm=lloyd", "Did you mean 'algorithm'?"),
    ("fit rows.npy -k 3 --set algorithm=loyd", "--set algorithm must be one of auto, lloyd"),
    ("fit rows.npy -k 3 --set algorithm=loyd", "got 'loyd'. Did you mean 'lloyd'?"),
    ("fit rows.npy -k 3 --method gmm --set covariance_type=diagg", "got 'diagg'. Did you mean 'diag'?"),
    ("fit rows.npy -k 3 --method kmodes --init spectrall", "got 'spectrall'. Did you mean 'spectral'?"),
    ("fit rows.npy -k 3 --method nested --set bounds=elkn", "got 'elkn'. Did you mean 'elkan'?"),
    ("seed rows.npy -k 3 -o c.npy --method afkmc2", "got 'afkmc2'. Did you mean 'afk-mc2'?"),
    ("seed rows.npy -k 3 -o c.npy --chain-length 5", "--chain-length: --method auto has no such parameter"),
    ("knn rows.npy -m 3 -o g.npz --method eaxct", "got 'eaxct'. Did you mean 'exact'?"),
    ("select rows.npy --k 5:2", "--k must be a range A:B with 1 <= A <= B, got '5:2'"),
    ("select rows.npy --k 5:9:0", "--k must be a range A:B:STEP with a STEP of at least 1, got '5:9:0'"),
    ("select rows.npy --k 2:x", "--k must be a range A:B or A:B:STEP, or numbers A,B,..., got '2:x'"),
    ("select rows.npy --k 1:2:3:4", "--k must be a range A:B or A:B:STEP, or numbers A,B,..., got '1:2:3:4'"),
    ("report model.safetensors rows.npy --image 3", "--image must be HxW or HxWx3, got '3'"),
    ("compare rows.npy -k 3 --methods minbatch", "Did you mean 'minibatch'?"),
    ("compare rows.npy -k 3 --methods foo", "hierarchical, sbe, breathing, balanced, gmm, got 'foo'"),
    ("compare rows.npy -k 3 --methods kmodes", "gmm, got kmodes, which has no energy to compare"),
    ("fit rows.npy -k 3 --checkpoint-every 3", "--checkpoint-every needs --checkpoint, the file to write"),
    ("compare rows.npy -k 3 --set gmm.n_activ=3", "Did you mean 'n_active'?"),
    (
        "compare rows.npy -k 3 --held-out 5 --validation rows.npy",
        "--validation and --held-out cannot be combined",
    ),
]


@pytest.mark.parametrize(("line", "told"), USAGE)
def test_wrong_usage_is_one_line_with_the_nearest_name(capsys, line, told):
    status, out, err = run(capsys, *line.split())
    assert (status, out) == (2, "")
    assert err.startswith("shoal: error: ")
    assert err.count("\n") == 1
    assert told in err
    assert "usage:" not in err


#: Values that the library refuses.
WRONG = [
    ("fit rows.npy -k 0", "-k must be an integer of at least 1, got 0"),
    ("fit rows.npy -k 500", "-k must be at most the number of rows, 200, got 500"),
    ("fit rows.npy -k 500 --method gmm", "-k must be at most the number of rows, 200, got 500"),
    ("fit rows.npy -k 3 --set max_iter=0", "--set max_iter must be an integer of at least 1, got 0"),
    ("fit rows.npy -k 3 --max-iter 0", "--max-iter must be an integer of at least 1, got 0"),
    ("fit rows.npy -k 3 --tol -1", "--tol must be a finite number of at least 0, got -1.0"),
    ("fit rows.npy -k 3 --seed -1", "--seed must be within 0..2**64 - 1, got -1"),
    ("fit rows.npy -k 3 --init kmeans++", "hierarchical, or an .npy file of K centers, got 'kmeans++'. Did"),
    ("fit rows.npy -k 3 --init rows.npy --set tol=-1", "--set tol must be a finite number of at least 0"),
    ("fit rows.npy -k 3 --set tol=-1 --set batch_size=0 --method minibatch", "got 0; --set tol must be"),
    ("fit rows.npy -k 3 --threads 0", "--threads must be a number of threads, -1 for all cores or -2"),
    ("fit rows.npy -k 3 --init rows.npy", "--init must have shape (3, 3), got (200, 3)"),
    ("fit rows.npy -k 3 --columns a,b", "rows.npy: --columns a,b does not belong to .npy files"),
    ("fit rows.npy -k 3 --checkpoint c.safetensors --checkpoint-every -3", "--checkpoint-every must be"),
    ("fit rows.npy -k 3 --method gmm --set n_active=0", "--set n_active must be an integer of at least 1"),
    (
        "fit rows.npy -k 3 --method kmodes --set n_neighbors=300",
        "--set n_neighbors must be less than the number",
    ),
    ("seed rows.npy -k 300 -o c.npy", "-k must be at most the number of rows, 200, got 300"),
    ("coreset rows.npy -m 0 -o c.npz", "-m must be an integer of at least 1, got 0"),
    ("knn rows.npy -m 300 -o g.npz", "-m must be at least 1 and less than the number of rows, 200, got 300"),
    ("knn rows.npy -m 3 -o g.npz --recall 3", "--recall must be a number above 0 and at most 1, got 3.0"),
    ("shuffle rows.npy -o s.npy --memory-limit few", "--memory-limit must be an amount of memory"),
    ("compare rows.npy -k 300", "kmeans: -k must be at most the number of rows, 180, got 300"),
    ("fit rows.npy -k 3 --method balanced --size-max 0.5", "--size-max must be"),
    ("fit rows.npy -k 3 --method gmm --set n_factors=2", "--set covariance_type=factor for components"),
    ("select rows.npy --k 0,3", "--k must be an integer of at least 1, got 0"),
    ("select rows.npy --k 2:900", "--k must be at most the number of rows, 200, got 900"),
    ("select rows.npy --k 2:4 --criterion elbo", "got 'elbo'. Did you mean 'elbow'?"),
    ("select rows.npy --k 2:4 --resamples -1", "--resamples must be an integer of at least 0, got -1"),
    (
        "report model.safetensors rows.npy --outliers -1",
        "--outliers must be an integer of at least 0, got -1",
    ),
]
FAILURES = [
    ("fit bad.npy -k 3", "bad.npy must be finite, got NaN at row 7, column 1"),
    ("fit none.npy -k 3", "none.npy: No such file or directory"),
    ("fit latin.csv -k 3", "latin.csv: the first line is not UTF-8 text. Convert the file to UTF-8."),
    ("fit packed.csv -k 3", "packed.csv: is compressed with gzip: decompress it"),
    ("predict model.safetensors wide.npy -o l.npy", "wide.npy has 5 columns, but the model has 3"),
    ("report model.safetensors wide.npy", "wide.npy has 5 columns, but the model has 3"),
]
WARNINGS = [
    ("fit same.npy -k 3 --quiet", "found smaller than -k (3). Possibly due to duplicate rows."),
    (
        "fit rows.npy -k 3 --method gmm --max-iter 1 --quiet",
        "rises by more than --tol 0.0001. Increase --max-iter or --tol.",
    ),
    (
        "fit rows.npy -k 3 --method minibatch --set init_size=1 --quiet",
        "--set init_size must be at least -k 3",
    ),
]
#: What only a user of Python knows.
PYTHON = re.compile(
    r"n_clusters|n_components|n_samples|random_state|n_jobs|sample_weight|KMeans|Mixture|KModes|DataSource|Error\b"
    r"|shoal\.[a-z]|callable|ndarray|None|\bX\b"
)


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("line", "told"), [*WRONG, *FAILURES, *WARNINGS])
def test_messages_of_the_library_speak_of_options(capsys, line, told):
    status, _, err = run(capsys, *line.split(), *([] if "--quiet" in line else ["--quiet"]))
    assert status == (2 if (line, told) in WRONG else 1 if (line, told) in FAILURES else 0)
    assert err.count("\n") == 1
    assert told in err
    assert PYTHON.search(err) is None, err


def test_names_of_files_are_never_changed(capsys, rows):
    for name in ("init.npy", "n_clusters.npy", "KMeans.X.npy"):
        np.save(name, np.load("bad.npy"))
        assert run(capsys, "fit", name, "-k", 3, "--quiet")[2].startswith(
            f"shoal: error: {name} must be finite"
        )


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("fit two.npz -k 2", "Choose one with --key\n"),
        ("fit two.safetensors -k 2", "Choose one with --key: "),
        ("knn c.npz -m 3 -o g.npz", "Use --key points to silence this."),
        ("shuffle c.npz -o s.npy", "Use --key points to write the points without weights."),
        ("fit c.npz -k 2 --method kmodes --set normalize=true", "To ignore the weights, use --key points."),
        ("fit bare.csv -k 2", "Name all 3 columns with --columns A,B,..."),
    ],
)
def test_files_of_several_arrays_and_coresets(capsys, line, told):
    from safetensors.numpy import save_file

    rows = np.load("rows.npy")
    np.savez("two.npz", a=rows, b=rows)
    save_file({"a": rows, "b": rows}, "two.safetensors")
    np.savetxt("bare.csv", rows, delimiter=",")
    shoal.lightweight_coreset(rows, 20, random_state=0).save("c.npz")
    err = run(capsys, *line.split(), "--quiet")[2]
    assert told in err
    assert err.count("\n") == 1
    assert re.search(r"coreset\.|key=|\[", err) is None
    if "--key points" in told:
        assert run(capsys, *line.split(), "--key", "points", "--quiet")[::2] == (0, "")


def test_the_number_of_rows_of_a_pipe_is_unknown():
    text = "a,b\n" + "1,2\n3,4\n5,7\n" * 20
    found = program("fit", "-", "-k", 2, "--method", "minibatch", "--quiet", input=text)
    assert "-: unknown x 2 float64" in found.stdout, found.stderr


# ---------------------------------------------------------------- progress


def slow(X, pause):
    """Rows in blocks that take their time."""

    def blocks():
        for start in range(0, len(X), 20):
            time.sleep(pause)
            yield X[start : start + 20]

    return blocks


def test_the_progress_of_the_first_step_is_told(rows):
    class Heard(shoal.callbacks.Callback):
        def __init__(self):
            self.told = []

        def __call__(self, estimator, step):
            self.told.append(step.iteration)

        def working(self, estimator, phase, share, seconds):
            self.told.append((phase, share))

    heard = Heard()
    clean = np.nan_to_num(rows)
    model = shoal.KMeans(3, random_state=0, init="k-means++", max_iter=2, callbacks=[heard])
    model.fit(slow(clean, 0.02))
    expected = shoal.KMeans(3, random_state=0, init="k-means++", max_iter=2).fit(clean)
    assert np.array_equal(model.cluster_centers_, expected.cluster_centers_)
    first = heard.told[: heard.told.index(1)]
    shares = [share for phase, share in first if phase == "seeding" and share is not None]
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1


def test_an_exception_of_the_display_ends_the_work(rows):
    def tell(*_):
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"), report_progress(tell):
        shoal.kmeans_plusplus(slow(np.nan_to_num(rows), 0.05), 3, random_state=0)
    # The display is gone after the block.
    assert shoal.kmeans_plusplus(slow(np.nan_to_num(rows), 0.0), 3, random_state=0)[0].shape == (3, 3)


def test_progress_is_one_short_text(capsys, monkeypatch):
    assert format_progress("seeding", 0.426, 12.3) == "seeding: 43% 12 s"
    assert format_progress("", None, 1.0) == "pass: 1 s"
    # A terminal without tqdm.
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    bar = shoal.callbacks.ProgressBar("shoal fit")
    bar.begin(None)
    bar.working(None, "seeding", 0.426, 12.3)
    bar.end(None)
    assert capsys.readouterr().err == "\rshoal fit: seeding: 43% 12 s\n"


def test_outputs_do_not_join_the_folder_that_is_read(capsys, tmp_path):
    rows = np.load("rows.npy")
    (tmp_path / "parts").mkdir()
    np.save("parts/a.npy", rows)
    shoal.KMeans(2, random_state=0).fit(rows).save("m.safetensors")
    for line in (
        "seed parts -k 3 -o parts/centers.npy",
        "seed parts -k 3 -o c.npy --indices parts/i.npy",
        "fit parts -k 3 --checkpoint parts/run.safetensors",
        "fit parts -k 3 -o parts/model.safetensors",
        "fit parts/a.npy parts -k 3 --labels parts/labels.npy",
        "predict m.safetensors parts -o parts/labels.npy",
        "predict m.safetensors parts -o parts/labels.csv",
        "coreset parts -m 5 -o parts/c.npz",
    ):
        status, out, err = run(capsys, *line.split())
        assert (status, out) == (1, ""), line
        assert "lies in the folder that is read: choose another name" in err, line
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["a.npy"]
    for line in (
        "predict m.safetensors parts/a.npy -o parts/labels.npy",
        "predict m.safetensors parts/*.npy -o parts/labels.txt",
    ):
        np.save("parts/a.npy", rows)
        assert run(capsys, *line.split(), "--quiet")[0] == 0, line
        for path in (tmp_path / "parts").glob("labels.*"):
            path.unlink()
    # Labels may lie beside rows of another kind, but centers may not.
    (tmp_path / "parts/a.npy").unlink()
    np.savetxt("parts/a.csv", rows, delimiter=",", header="a,b,c", comments="")
    shoal.KMeans(2, random_state=0).fit("parts/a.csv").save("m.safetensors")
    assert run(capsys, *["predict", "m.safetensors", "parts", "-o", "parts/labels.npy", "--quiet"])[0] == 0
    assert len(np.load("parts/labels.npy")) == len(rows)
    assert "lies in the folder" in run(capsys, *["seed", "parts", "-k", "3", "-o", "parts/centers.npy"])[2]


def test_the_type_of_text_files(capsys):
    rows = np.load("rows.npy")
    np.savetxt("rows.csv", rows, delimiter=",", header="a,b,c", comments="")
    status, out, err = run(capsys, *["fit", "rows.csv", "-k", "3", "--dtype", "float32", "--quiet"])
    assert status == 0, err
    assert "x 3 float32" in out
    err = run(capsys, *["fit", "rows.csv", "-k", "3", "--dtype", "u1", "--quiet"])[2]
    assert "must be float32 or float64" in err
    err = run(capsys, *["fit", "rows.npy", "-k", "3", "--dtype", "float32"])[2]
    assert "a raw file needs both --shape and --dtype" in err


def test_columns_of_validation_rows_are_checked_before_the_fit(capsys):
    np.save("narrow.npy", np.zeros((20, 2), dtype=np.float32))
    for verb in ("fit", "compare"):
        status, out, err = run(capsys, verb, "rows.npy", "-k", "3", "--validation", "narrow.npy")
        assert (status, out) == (1, "")
        assert err == "shoal: error: --validation must have as many columns as DATA, 3, got 2\n"
