"""The command `shoal convert`."""

import json
import sys

import faiss
import joblib
import numpy as np
import onnx
import pytest
import shoal
from command_line import failure, run
from converted import distinct_blobs, fitted, ran


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A model file in the current folder."""
    monkeypatch.chdir(tmp_path)
    model = fitted(dtype="float32")
    model.save("model.safetensors")
    return model


@pytest.mark.parametrize(
    ("to", "out", "more", "made"),
    [
        ("faiss", "m.faiss", [], "IndexFlatL2"),
        ("faiss", "m.index", ["--index", "ivf"], "IndexIVFFlat"),
        ("onnx", "m.onnx", [], "ModelProto"),
        ("sklearn", "m.joblib", [], "KMeans"),
        ("sklearn", "m.pkl", [], "KMeans"),
    ],
)
def test_the_command_writes_every_format(to, out, more, made, stored, capsys, tmp_path):
    status, printed, err = run(capsys, "convert", "model.safetensors", "--to", to, "-o", out, "--json", *more)
    assert (status, err) == (0, "")
    result = json.loads(printed)
    assert result.pop("bytes") == (tmp_path / out).stat().st_size
    assert result == {
        "model": "model.safetensors",
        "estimator": "KMeans",
        "metric": "euclidean",
        "clusters": 5,
        "columns": 4,
        "to": to,
        "class": made,
        "output": out,
    }
    X = distinct_blobs("float32")
    if to == "faiss":
        index = faiss.read_index(out)
        labels = (index.quantizer if more else index).search(X, 1)[1][:, 0]
    elif to == "onnx":
        labels = ran(onnx.load(out), X, "label")[0]
    else:
        labels = joblib.load(out).predict(X)
    np.testing.assert_array_equal(labels, stored.labels_)


def test_the_command_refuses_wrong_arguments(stored, capsys, tmp_path):
    base = ("convert", "model.safetensors", "--to")
    assert "--index belongs to --to faiss" in failure(
        capsys, *base, "onnx", "-o", "m.onnx", "--index", "ivf", status=2
    )
    assert "--to must be one of faiss, onnx, sklearn, got 'tf'" in failure(
        capsys, *base, "tf", "-o", "m.tf", status=2
    )
    assert "ends in .joblib, .pkl or .pickle" in failure(capsys, *base, "sklearn", "-o", "m.onnx", status=2)
    assert "no folder" in failure(capsys, *base, "onnx", "-o", "none/m.onnx")
    assert "No such file" in failure(capsys, "convert", "none.safetensors", "--to", "onnx", "-o", "m.onnx")
    shoal.StreamingCoreset(5, random_state=0).partial_fit(distinct_blobs()).save("coreset.npz.safetensors")
    told = failure(capsys, "convert", "coreset.npz.safetensors", "--to", "onnx", "-o", "m.onnx")
    assert "coreset.npz.safetensors: model must be a fitted KMeans" in told
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "coreset.npz.safetensors",
        "model.safetensors",
    ]


@pytest.mark.filterwarnings("default::UserWarning")
def test_the_command_passes_warnings_and_missing_packages_on(stored, capsys, monkeypatch):
    shoal.KMeans(2, metric="cosine", random_state=0).fit(distinct_blobs()).save("cosine.safetensors")
    status, out, err = run(capsys, "convert", "cosine.safetensors", "--to", "sklearn", "-o", "m.pkl")
    assert status == 0
    assert "cosine" in out
    assert err.startswith("shoal: warning: metric='cosine'")
    monkeypatch.setitem(sys.modules, "onnx", None)
    told = failure(capsys, "convert", "model.safetensors", "--to", "onnx", "-o", "m.onnx")
    assert "pip install 'shoal-cluster[onnx]'" in told


def test_a_failed_write_leaves_the_older_file(stored, capsys, monkeypatch, tmp_path):
    (tmp_path / "m.onnx").write_text("older")
    monkeypatch.setattr("shoal.cli.convert.WRITERS", {"onnx": lambda made, file: 1 / 0})
    failure(capsys, "convert", "model.safetensors", "--to", "onnx", "-o", "m.onnx")
    assert (tmp_path / "m.onnx").read_text() == "older"
    assert len(list(tmp_path.iterdir())) == 2
