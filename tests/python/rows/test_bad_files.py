"""Files of rows and of models that are damaged or cannot be opened raise clear errors."""

import json
import os
import re
import struct

import numpy as np
import pytest
import shoal
from refusals import X, refused
from shoal import KMeans

# ---------------------------------------------------------------- files


def opened(path):
    """Open a file in all ways, which must give the same result or error."""
    messages = []
    for use in (
        lambda: KMeans(2).fit(path),
        lambda: KMeans(2).fit(str(path)),
        lambda: shoal.open(path),
        lambda: shoal.nearest(path, X[:2]),
        lambda: KMeans(2, random_state=0).fit(X).predict(path),
    ):
        with pytest.raises((ValueError, OSError)) as caught:
            use()
        assert str(path) in str(caught.value)
        messages.append((type(caught.value), str(caught.value)))
    assert len(set(messages)) == 1
    return caught.value


def read_or_refused(read, path):
    """Return the content of a damaged file, or None if an error names the file."""
    try:
        return read(path)
    except ValueError as error:
        message = str(error)
    assert message.startswith(str(path))
    return None


def npy(folder, header, data=b"", magic=b"\x93NUMPY", version=(1, 0)):
    path = folder / "x.npy"
    text = header.encode()
    size = struct.pack("<H" if version[0] == 1 else "<I", len(text))
    path.write_bytes(magic + bytes(version) + size + text + data)
    return path


def head(descr="<f4", order="False", shape="(2, 3)"):
    return f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117) + "\n"


@pytest.mark.parametrize(
    ("header", "text"),
    [
        (head(descr="|O"), "holds Python objects"),
        (head(descr="<c8"), "holds complex numbers"),
        (head(descr="<U4"), "holds text"),
        (head(descr="<M8[s]"), "holds times"),
        (head(descr=">f4"), "holds big-endian values"),
        (head(descr="<f16"), "cannot be clustered"),
        (
            head(shape="(6,)"),
            r"holds an array of shape \(6,\); rows need 2 dimensions: reshape it to \(6, 1\)",
        ),
        (head(shape="(1, 2, 3)"), r"shape \(1, 2, 3\); rows need 2 dimensions"),
        (head(shape="()"), "rows need 2 dimensions"),
        (head(shape="(0, 3)"), r"must have at least 1 row and 1 column, got shape \(0, 3\)"),
        (head(shape="(2, 0)"), r"must have at least 1 row and 1 column, got shape \(2, 0\)"),
        (head(shape="(-2, 3)"), "negative length -2"),
        (head(shape="(3, 3)"), "3 rows of 3 float32 need a file of 164 bytes, found 152"),
        (head(shape="(4611686018427387904, 4)"), "larger than"),
        (head(shape="(99999999999999999999, 4)"), "larger than"),
        (head(order="Maybe"), "fortran_order is neither True nor False"),
        (head(shape="'x'"), "shape is not a tuple"),
        ("{'descr': '<f4'}".ljust(117) + "\n", "fortran_order or shape is missing"),
        ("__import__('os')".ljust(117) + "\n", "it is not a dictionary"),
        ("[('a', '<f4')]".ljust(117) + "\n", "has a damaged header"),
        ("".ljust(118), "has a damaged header"),
    ],
)
def test_headers_of_npy_files(tmp_path, header, text):
    assert len(header) == 118
    path = npy(tmp_path, header, np.zeros(6, dtype=np.float32).tobytes())
    error = opened(path)
    assert isinstance(error, ValueError)
    assert re.search(text, str(error)), error


def test_files_that_are_not_npy_files(tmp_path):
    good = tmp_path / "good.npy"
    np.save(good, X)
    whole = good.read_bytes()
    path = tmp_path / "x.npy"
    for content, text in (
        (b"", "is empty"),
        (whole[:5], "is not an .npy file"),
        (whole[:40], "ends within its header"),
        (whole[:128], "need a file of 1328 bytes, found 128"),
        (whole[:-1], "50 rows of 3 float64 need a file of 1328 bytes, found 1327"),
        (b"PK\x03\x04" + whole[4:], "is not an .npy file"),
        (b"a,b\n1,2\n" * 20, "is not an .npy file"),
        (whole[:6] + b"\x09\x00" + whole[8:], r"is \.npy version 9\.0"),
        (whole[:6] + b"\x02\x00\xff\xff\xff\xff" + whole[12:], "claims a header of 4294967295 bytes|header"),
    ):
        path.write_bytes(content)
        error = opened(path)
        assert isinstance(error, ValueError)
        assert re.search(text, str(error)), (content[:10], error)
    # Any other damage gives an error or a result, and never ends the process.
    rng = np.random.default_rng(0)
    for _ in range(300):
        damaged = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            damaged[rng.integers(128)] = rng.integers(256)
        path.write_bytes(damaged)
        source = read_or_refused(shoal.open, path)
        assert source is None or source.nbytes <= 1328


def test_files_that_cannot_be_opened(tmp_path):
    assert isinstance(opened(tmp_path / "missing.npy"), FileNotFoundError)
    assert isinstance(opened(tmp_path / "missing.csv"), FileNotFoundError)
    assert isinstance(opened(tmp_path), IsADirectoryError)
    folder = tmp_path / "folder.npy"
    folder.mkdir()
    assert isinstance(opened(folder), IsADirectoryError)
    other = tmp_path / "rows.xyz"
    other.write_text("1,2\n")
    error = opened(other)
    assert isinstance(error, ValueError)
    assert "files that end in .xyz are not supported yet; supported: arrays, SciPy" in str(error)
    assert isinstance(opened(other / "x.npy"), NotADirectoryError)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, X)
    path.chmod(0)
    assert isinstance(opened(path), PermissionError)
    model = KMeans(2, random_state=0).fit(X)
    tmp_path.chmod(0o500)
    try:
        refused(PermissionError, "m.safetensors", lambda: model.save(tmp_path / "m.safetensors"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"shape": (1000, 2), "dtype": "f4"}, "1000 rows of 2 float32 need a file of 8000 bytes, found 24"),
        ({"shape": (0, 2), "dtype": "f4"}, r"shape\[0\] must be an integer of at least 1, got 0"),
        ({"shape": (2, -2), "dtype": "f4"}, r"shape\[1\] must be an integer of at least 1, got -2"),
        ({"shape": (2, 2.0), "dtype": "f4"}, r"shape\[1\] must be an integer of at least 1, got 2\.0"),
        ({"shape": (6,), "dtype": "f4"}, r"shape must be \(rows, columns\), got \(6,\)"),
        ({"shape": 6, "dtype": "f4"}, r"shape must be \(rows, columns\), got 6"),
        ({"shape": (2, 3), "dtype": ">f4"}, "dtype='>f4': raw files must be little-endian"),
        ({"shape": (2, 3), "dtype": "c8"}, "dtype must be one of bool.*complex64"),
        ({"shape": (2, 3), "dtype": "O"}, "dtype must be one of bool.*object"),
        ({"shape": (2, 3)}, "are not supported yet; supported: .*with shape= and dtype="),
        ({"shape": (2**62, 2**62), "dtype": "f4"}, "larger|overflow|need"),
        (
            {"shape": (2**70, 2), "dtype": "f4"},
            r"shape\[0\] must be an integer from 1 to 9223372036854775807",
        ),
    ],
)
def test_raw_files(tmp_path, given, text):
    path = tmp_path / "x.bin"
    path.write_bytes(bytes(24))
    refused(ValueError, text, lambda: shoal.open(path, **given))


# ---------------------------------------------------------------- model files


def test_model_files(tmp_path):
    model = KMeans(2, random_state=0).fit(X)
    path = tmp_path / "m.safetensors"
    model.save(path)
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])

    def damaged(content, text):
        path.write_bytes(content)
        error = refused(ValueError, text, lambda: shoal.load(path))
        assert str(error).startswith(str(path))

    def changed(change):
        new = json.loads(json.dumps(header))
        change(new)
        text = json.dumps(new).encode()
        return struct.pack("<Q", len(text)) + text + whole[8 + length :]

    damaged(b"", "is not a safetensors file: it holds 0 bytes")
    damaged(whole[: len(whole) // 2], "is truncated")
    damaged(whole[:-1], "")
    damaged(whole + b"\0", "")
    damaged(b"\xff" * 8 + whole[8:], "at most 100000000 bytes, got 18446744073709551615")
    damaged(whole[:8] + b"x" + whole[9:], "has a damaged header")
    damaged(b"PK\x03\x04" * 100, "safetensors")
    damaged(changed(lambda h: h.pop("__metadata__")), "")
    damaged(changed(lambda h: h["__metadata__"].pop("shoal.params")), "damaged")
    damaged(changed(lambda h: h["__metadata__"].update({"shoal.params": "{"})), "damaged")
    damaged(changed(lambda h: h["__metadata__"].update({"shoal.params": '{"no": 1}'})), "damaged")
    damaged(changed(lambda h: h["__metadata__"].update({"shoal.fitted": "[]"})), "damaged")
    damaged(changed(lambda h: h.pop("cluster_centers")), "")
    damaged(changed(lambda h: h["cluster_centers"].update(shape=[3, 2])), "")
    damaged(changed(lambda h: h["cluster_centers"].update(shape=[2**40, 3])), "")
    damaged(changed(lambda h: h["counts"].update(data_offsets=[0, 2**60])), "")
    # NaN among the centers.
    values = bytearray(whole)
    begin = 8 + length + header["cluster_centers"]["data_offsets"][0]
    values[begin : begin + 8] = struct.pack("<d", np.nan)
    damaged(bytes(values), "not finite")
    # Any other damage gives an error or a result, and never ends the process.
    rng = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        for _ in range(rng.integers(1, 4)):
            content[rng.integers(8 + length)] = rng.integers(256)
        path.write_bytes(content)
        loaded = read_or_refused(shoal.load, path)
        assert loaded is None or loaded.cluster_centers_.shape == (2, 3)
    path.write_bytes(whole)
    assert (shoal.load(path).predict(X) == model.labels_).all()


HOSTILE = [
    # Values that are valid JSON but that no fit writes.
    ("fitted", {"n_iter": 10**400}, "'n_iter' must be an integer of at least 0, got 10000"),
    ("fitted", {"n_iter": "5"}, "'n_iter' must be an integer of at least 0, got '5'"),
    ("fitted", {"n_iter": -1}, "'n_iter' must be an integer of at least 0, got -1"),
    ("fitted", {"n_iter": True}, "'n_iter' must be an integer of at least 0, got True"),
    ("fitted", {"inertia": 10**400}, "'inertia' must be a finite number of at least 0"),
    ("fitted", {"inertia": {}}, "'inertia' must be a finite number"),
    ("fitted", {"inertia": float("nan")}, "'inertia' must be a finite number"),
    ("fitted", {"timings": [1, 2, 3]}, "'timings' must be a table of seeding, sweeps, final"),
    ("fitted", {"timings": {"seeding": 1, "sweeps": 1, "final": "x"}}, "'final' must be a finite number"),
    ("fitted", {"timings": {"seeding": 1}}, "'timings' must be a table"),
    ("fitted", {"algorithm": 5}, "'algorithm' must be a text, got 5"),
    ("fitted", {"init": None}, "lacks 'init'"),
    ("fitted", {"stop_reason": []}, "'stop_reason' must be a text"),
    ("fitted", {"stop_reasons": ["", 3]}, "'stop_reasons' must be a list of texts"),
    ("fitted", {"stop_reasons": [""]}, "array 'history' has shape"),
    ("fitted", {"feature_names": ["a"]}, "names for 1 columns of 3"),
    ("fitted", {"feature_names": [[1], 2, 3]}, "'feature_names' must be a list of texts"),
    ("params", {"metric": "manhattan"}, "metric must be one of euclidean, cosine"),
    ("params", {"metric": [[]]}, "'metric' must be None, a bool, a number"),
    ("params", {"init": "array"}, "lacks the array 'init'"),
    ("params", {"no": 1}, "no parameter 'no'"),
    ("params", {"callbacks": {"a": 1}}, "'callbacks' must be None, a bool, a number"),
]


def claiming(path, texts=None, arrays=None):
    """Rewrite a model file with other texts, and with other array types than shoal writes."""
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"].update({f"shoal.{name}": text for name, text in (texts or {}).items()})
    for name, changes in (arrays or {}).items():
        header[name].update(changes)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    return header["__metadata__"]


def refused_model(path, text):
    """Both ways of reading give the same message."""
    error = refused(ValueError, text, lambda: shoal.load(path))
    assert str(error).startswith(f"{path}: ")


@pytest.mark.parametrize(("text", "change", "problem"), HOSTILE)
def test_model_files_with_hostile_texts(tmp_path, text, change, problem):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0).fit(X).save(path)
    sound = json.loads(claiming(path)[f"shoal.{text}"])
    claiming(path, {text: json.dumps({**sound, **change})})
    refused_model(path, "is damaged: .*" + problem)


@pytest.mark.parametrize("text", ["params", "fitted"])
@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"a":' * 100_000, '{"n_iter": ' + "9" * 5000 + "}", "NaN", '"x"', "5", "", "{"],
    ids=lambda content: content[:5],
)
def test_model_files_whose_texts_are_not_objects(tmp_path, text, content):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0).fit(X).save(path)
    claiming(path, {text: content})
    refused_model(path, f"is damaged: its text '{text}' must be ")


def test_model_files_with_hostile_arrays(tmp_path):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0, tol=0).fit(X.astype(np.float32)).save(path)
    whole = path.read_bytes()
    for arrays, text in (
        (
            {"cluster_centers": {"dtype": "BF16", "shape": [4, 3]}},
            "'cluster_centers'|\"cluster_centers\" of type bfloat16",
        ),
        ({"cluster_centers": {"dtype": "F16", "shape": [4, 3]}}, "'cluster_centers' is of type float16"),
        ({"cluster_centers": {"dtype": "I32"}}, "'cluster_centers' is of type int32"),
        ({"cluster_centers": {"shape": [6]}}, r"'cluster_centers' has shape \(6,\)"),
        ({"cluster_centers": {"shape": [1] * 70 + [2, 3]}}, "cluster_centers"),
        ({"cluster_centers": {"shape": [1, 6]}}, r"'counts' has shape \(2,\)"),
        ({"counts": {"dtype": "I64"}}, "'counts' is of type int64"),
        ({"counts": {"dtype": "F32", "shape": [4]}}, r"'counts' has shape \(4,\)"),
        ({"history": {"shape": [8, -1]}}, "header"),
    ):
        path.write_bytes(whole)
        claiming(path, arrays=arrays)
        refused_model(path, text)
    # Counts of steps that do not fit any integer.
    length = struct.unpack("<Q", whole[:8])[0]
    begin = 8 + length + json.loads(whole[8 : 8 + length])["history"]["data_offsets"][0]
    for value, text in ((1e300, "counts beyond 64 bits"), (np.nan, "'history' is not finite")):
        path.write_bytes(whole[:begin] + struct.pack("<d", value) + whole[begin + 8 :])
        refused_model(path, text)


def test_model_files_of_a_later_format_version(tmp_path):
    path = tmp_path / "m.safetensors"
    KMeans(2, random_state=0).fit(X).save(path)
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    header["__metadata__"]["shoal.format"] = "999"
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + whole[8 + length :])
    refused(ValueError, "999", lambda: shoal.load(path))


def test_models_that_cannot_be_read_or_written(tmp_path):
    model = KMeans(2, random_state=0).fit(X)
    assert str(tmp_path) in str(refused(FileNotFoundError, "none", lambda: shoal.load(tmp_path / "none")))
    refused(IsADirectoryError, "", lambda: shoal.load(tmp_path))
    refused(FileNotFoundError, "m", lambda: model.save(tmp_path / "none" / "m"))
    refused(IsADirectoryError, "", lambda: model.save(tmp_path))
    assert list(tmp_path.iterdir()) == [], "nothing half-written is left"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")  # noqa: PTH110
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")
    signal = pytest.importorskip("signal")
    path = tmp_path / "m.safetensors"
    model = KMeans(2, random_state=0).fit(X)
    model.save(path)
    before = path.read_bytes()
    # A limit on the file size makes a write fail as a full disk does.
    big = KMeans(40, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 900)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
        with pytest.raises(OSError, match="too large"):
            big.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
