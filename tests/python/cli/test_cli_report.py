"""``shoal report`` and ``shoal select``."""

import json
import os

import numpy as np
import pytest
import shoal
from command_line import failure, interrupted, run


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Rows with three clusters and a model, in the working folder."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(c, 0.1, size=(50, 4)) for c in (0, 5, 9)]).astype(np.float32)
    np.save("rows.npy", X)
    model = shoal.KMeans(3, random_state=0).fit(X)
    model.save("model.safetensors")
    return model


# ---------------------------------------------------------------- report


def test_report_prints_text(capsys, files):
    status, out, err = run(capsys, "report", "model.safetensors", "rows.npy", "--quiet")
    assert (status, err) == (0, "")
    assert out == str(shoal.report(files, "rows.npy")) + "\n"
    assert "report" in run(capsys, "report", "model.safetensors", "rows.npy")[2]


def test_report_writes_a_page(capsys, files, tmp_path):
    options = ["--html", "out.html", "--image", "2x2", "--quiet"]
    status, out, _ = run(capsys, "report", "model.safetensors", "rows.npy", *options)
    assert status == 0
    assert out.endswith("page  out.html\n")
    page = (tmp_path / "out.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "Clusters of rows.npy" in page
    assert page.count("<img") == 3


@pytest.mark.skipif(os.name == "nt", reason="a name that Windows does not allow")
def test_a_path_is_escaped_on_the_page(capsys, files, tmp_path):
    folder = tmp_path / "<"
    folder.mkdir()
    (tmp_path / "rows.npy").rename(folder / "title><script>.npy")
    status, _, err = run(
        capsys, "report", "model.safetensors", "</title><script>.npy", "--html", "out.html", "--quiet"
    )
    assert (status, err) == (0, "")
    page = (tmp_path / "out.html").read_text()
    assert "Clusters of &lt;/title&gt;&lt;script&gt;.npy" in page
    assert "<script" not in page


def test_report_as_json(capsys, files):
    options = ["--json", "--quiet", "--exemplars", "2", "--outliers", "1", "--features", "1"]
    status, out, _ = run(capsys, "report", "model.safetensors", "rows.npy", *options)
    assert status == 0
    found = json.loads(out)
    expected = shoal.report(files, "rows.npy", n_exemplars=2, n_outliers=1, n_features=1)
    assert found["rows"] == 150
    assert [each["size"] for each in found["clusters"]] == expected.sizes.tolist()
    assert [each["exemplars"] for each in found["clusters"]] == expected.exemplars.tolist()
    assert [each["features"] for each in found["clusters"]] == expected.features
    assert found["silhouette"] == expected.silhouette
    assert found["pairs"][0]["overlap"] == expected.pairs["overlap"][0]


def test_report_of_standard_input(capsys, files, monkeypatch, tmp_path):
    with (tmp_path / "rows.npy").open("rb") as file:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": file}))
        status, out, _ = run(capsys, "report", "model.safetensors", "-", "--quiet")
    assert status == 0
    assert "150 x 4 rows" in out


def test_report_refuses(capsys, files, tmp_path):
    assert "--html" in failure(
        capsys, "report", "model.safetensors", "rows.npy", "--html", "out.pdf", status=2
    )
    assert "also read" in failure(
        capsys, "report", "model.safetensors", "rows.npy", "--html", "model.safetensors"
    )
    assert "--image must be" in failure(
        capsys, "report", "model.safetensors", "rows.npy", "--image", "3x3", "--quiet", status=2
    )
    assert "--image" in failure(
        capsys, "report", "model.safetensors", "rows.npy", "--image", "3", "--quiet", status=2
    )
    coreset = shoal.StreamingCoreset(10, random_state=0)
    coreset.partial_fit(np.load("rows.npy"))
    coreset.save("coreset.safetensors")
    assert "holds a coreset" in failure(capsys, "report", "coreset.safetensors", "rows.npy")
    assert not (tmp_path / "out.pdf").exists()


# ---------------------------------------------------------------- select


def test_select_prints_the_table(capsys, files, tmp_path):
    pytest.importorskip("matplotlib")
    status, out, err = run(capsys, "select", "rows.npy", "--k", "2:6", "--plot", "k.png", "--quiet")
    assert (status, err) == (0, "")
    expected = shoal.select_n_clusters("rows.npy", range(2, 7), random_state=0)
    assert str(expected) in out
    assert "best: 3 by auto, " in out
    assert (tmp_path / "k.png").read_bytes().startswith(b"\x89PNG")
    assert "select_n_clusters" in run(capsys, "select", "rows.npy", "--k", "2:3")[2]


def test_select_as_json(capsys, files):
    options = ["--json", "--quiet", "--criterion", "elbow", "--resamples", "0", "--seed", "4"]
    options += ["--method", "minibatch", "--set", "batch_size=50", "--metric", "cosine"]
    status, out, _ = run(capsys, "select", "rows.npy", "--k", "2:6:2", *options)
    assert status == 0
    found = json.loads(out)
    assert [row["n_clusters"] for row in found["table"]] == [2, 4, 6]
    assert (found["criterion"], found["method"], found["rows"]) == ("elbow", "minibatch", 150)
    model = shoal.MiniBatchKMeans(batch_size=50, metric="cosine")
    expected = shoal.select_n_clusters(
        "rows.npy", [2, 4, 6], estimator=model, criterion="elbow", random_state=4, n_resamples=0
    )
    assert [row["inertia"] for row in found["table"]] == expected.table_["inertia"].tolist()
    assert found["suggestions"] == expected.suggestions_
    assert (found["best"], found["agreement"], found["margin"]) == (None, [], "nan")
    assert found["doubts"] == expected.doubts_ == ["no number of clusters is chosen"]
    assert found["table"][0]["stability"] == "nan"


def test_numbers_of_clusters(capsys, files):
    _, out, _ = run(capsys, "select", "rows.npy", "--k", "5,2", "--quiet", "--json", "--resamples", 0)
    assert [row["n_clusters"] for row in json.loads(out)["table"]] == [2, 5]
    for bad in ("5:2", "0:3", "2:9:0", "a", "2:3:1:1", ""):
        assert "--k" in failure(capsys, "select", "rows.npy", "--k", bad, status=2)
    assert "--k" in failure(capsys, "select", "rows.npy", status=2)
    for long in ("1:10000000000", f"1:{10**30}", "1:10000000000:2"):
        assert "at most 100000 numbers" in failure(
            capsys, "select", "rows.npy", "--k", long, "--quiet", status=2
        )


def test_select_refuses(capsys, files):
    assert "criterion must be one of" in failure(
        capsys, "select", "rows.npy", "--k", "2:3", "--criterion", "gap", status=2
    )
    assert "--method" in failure(capsys, "select", "rows.npy", "--k", "2:3", "--method", "gmm", status=2)
    assert "at most the number of rows, 150" in failure(
        capsys, "select", "rows.npy", "--k", "2,151", "--quiet", status=2
    )
    assert "no parameter 'n_init'" in failure(
        capsys, "select", "rows.npy", "--k", "2", "--method", "sbe", "--set", "n_init=2", status=2
    )


@pytest.mark.skipif(os.name == "nt", reason="sends a POSIX signal")
@pytest.mark.parametrize("verb", ["select", "report"])
def test_interrupted(verb, tmp_path):
    X = np.random.default_rng(0).normal(size=(100_000, 32)).astype(np.float32)
    np.save(tmp_path / "large.npy", X)
    model = shoal.KMeans(2000, init=X[:2000], n_init=1, max_iter=1)
    if verb == "report":
        # Exact search of the two nearest of many centers takes longer than the test waits.
        next(model.iter_fit(X[:4000]))
        model.save(tmp_path / "m.safetensors")
        args = ["report", "m.safetensors", *["large.npy"] * 40, "--html", "out.html"]
    else:
        args = ["select", "large.npy", "--k", "2:2000", "--plot", "k.png"]
    assert interrupted(tmp_path, *args).endswith(b"shoal: interrupted\n")
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix in (".png", ".html")) == []
