"""The demo: its output, its files, and its results."""

import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from shoal import cli, demo, plot


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Output of one `shoal demo --compare`, as text and as JSON."""
    folder = tmp_path_factory.mktemp("demo")
    report = demo.run(folder / "made", with_sklearn=True)
    return folder / "made", report


def pixels(path):
    """Read the gray image of a PNG file whose lines are not filtered."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    found, at = {}, 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert struct.unpack(">I", data[at + 8 + length : at + 12 + length]) == (zlib.crc32(kind + body),)
        found[kind] = body
        at += 12 + length
    assert list(found) == [b"IHDR", b"IDAT", b"IEND"]
    width, height, *rest = struct.unpack(">IIBBBBB", found[b"IHDR"])
    assert rest == [8, 0, 0, 0, 0]
    lines = np.frombuffer(zlib.decompress(found[b"IDAT"]), dtype=np.uint8).reshape(height, width + 1)
    assert not lines[:, 0].any()
    return lines[:, 1:]


def test_the_images_are_those_of_the_data_set():
    images, digits = demo.load_digits()
    assert images.shape == (1797, 64)
    assert images.dtype == np.uint8
    assert images.max() == 16
    assert np.bincount(digits).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_the_package_holds_no_data():
    allowed = {".py", ".pyi", ".typed", ".so", ".pyd"}
    files = [path for path in Path(demo.__file__).parent.rglob("*") if "__pycache__" not in path.parts]
    assert {path.suffix for path in files if path.is_file()} <= allowed


def test_the_figures_match_the_clusters(shown):
    _, report = shown
    assert [row.clusters for row in report.rows] == [10, 64]
    ten, more = report.rows
    assert 1.1e6 < ten.inertia < 1.3e6
    assert more.inertia < 0.8 * ten.inertia
    for row in report.rows:
        assert 0.6 < row.nmi < 0.9
        assert 0.7 < row.purity < 1
        assert row.iterations > 1


def test_it_agrees_with_scikit_learn(shown):
    _, report = shown
    assert report.agrees
    for comparison in report.comparisons:
        assert comparison.equal_labels >= 0.999
        assert comparison.inertia_difference <= 1e-5


def test_output_files(shown):
    folder, report = shown
    assert sorted(p.name for p in folder.iterdir()) == ["centers.png", "digits.npy"]
    images, _ = demo.load_digits()
    assert np.array_equal(np.load(report.data), images)
    picture = pixels(report.picture)
    assert picture.shape == (8 * (8 * 9 + 1), 8 * (8 * 9 + 1))
    assert picture.min() == 0
    assert picture.max() == 255


def test_output_text(shown):
    _, report = shown
    text = report.as_text()
    lines = text.splitlines()
    assert lines[0].split() == ["clusters", "seconds", "iterations", "inertia", "NMI", "purity"]
    assert len({len(line) for line in lines[:3]}) == 1
    assert str(report.picture) in text
    assert "Alpaydin" in text
    assert "scikit-learn" in text
    assert json.loads(json.dumps(report.as_dict()))["results"][1]["clusters"] == 64


def test_a_difference_is_a_failure(monkeypatch, capsys, tmp_path, shown):
    _, report = shown
    bad = demo.Comparison(10, 5, 5, 0.99, 0.0)
    worse = demo.Comparison(10, 5, 5, 1.0, 1e-4)
    for comparison in (bad, worse):
        wrong = demo.Report(report.data, report.picture, report.rows, [comparison])
        monkeypatch.setattr(demo, "run", lambda *_, wrong=wrong, **__: wrong)
        assert cli.main(["demo", "--compare", "--quiet"]) == 1
        out, err = capsys.readouterr()
        assert "DIFFERS" in out
        assert err == "shoal: error: the result differs from the result of scikit-learn\n"


def test_the_default_folder_stays(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(demo, "CLUSTERS", (3,))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.main(["demo", "--json", "--quiet"]) == 0
    result = json.loads(capsys.readouterr().out)
    (folder,) = tmp_path.iterdir()
    assert result["data"] == str(folder / "digits.npy")
    assert (folder / "centers.png").is_file()
    assert result["comparisons"] == []


def test_centers_lie_side_by_side():
    page = plot.centers_picture(np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 0.5]]), (1, 2), columns=2, scale=1)
    assert page.tolist() == [
        [96] * 7,
        [96, 0, 255, 96, 255, 0, 96],
        [96] * 7,
        [96, 128, 128, 96, 96, 96, 96],
        [96] * 7,
    ]
    assert not plot.centers_picture(np.zeros((1, 4)), (2, 2), columns=1, scale=2)[2:4, 2:4].any()


def test_only_gray_images_are_drawn(tmp_path):
    for gray in (np.zeros((2, 2)), np.zeros(4, np.uint8), np.zeros((0, 2), np.uint8)):
        with pytest.raises(ValueError, match="2-D array of uint8"):
            plot.write_png(tmp_path / "x.png", gray)
    assert not list(tmp_path.iterdir())
