"""``shoal compare``, and the curves of ``shoal fit --plot``."""

import argparse
import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
import shoal
from command_line import failure, program, run
from shoal import plot
from shoal.cli import compare, methods
from shoal.cli.curve import EnergyCurve

#: Columns of the table, as they are printed.
HEAD = "method  seconds  to 1%  steps  rows read  inertia  validation energy  above best"


@pytest.fixture
def rows(tmp_path):
    """A file with ten clusters, in random order."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 4, size=(10, 3))
    X = (centers[rng.integers(0, 10, 3000)] + rng.normal(0, 1, size=(3000, 3))).astype(np.float32)
    path = tmp_path / "rows.npy"
    np.save(path, X)
    return path


@pytest.fixture
def two(monkeypatch):
    """A second method that is always available: k-means under another name with another algorithm."""
    other = methods.Method("KMeans", {"algorithm": "lloyd"})
    monkeypatch.setattr(methods, "METHODS", {**methods.METHODS, "vrkm": other})
    return "kmeans,vrkm"


def result_of(capsys, *args):
    """Run a command with ``--json`` and return its result."""
    status, out, err = run(capsys, *args, "--json", "--quiet")
    assert (status, err) == (0, "")
    return json.loads(out)


def energy(X, centers):
    """Mean squared distance to the nearest centers, pair by pair."""
    X, centers = X.astype(np.float64), centers.astype(np.float64)
    return ((X[:, None, :] - centers[None]) ** 2).sum(axis=2).min(axis=1).mean()


# ---------------------------------------------------------------- results


def test_results_are_those_of_a_fit_without_the_last_rows(capsys, rows):
    args = ["--methods", "kmeans", "--seed", 3, "--set", "tol=0", "--set", "max_iter=12"]
    found = result_of(capsys, "compare", rows, "-k", 40, *args)
    assert (found["rows"], found["fitted_rows"], found["validation_rows"]) == (3000, 2700, 300)
    assert (found["clusters"], found["seed"], found["dtype"]) == (40, 3, "float32")
    X = np.load(rows)
    model = shoal.KMeans(40, random_state=3, tol=0, max_iter=12).fit(X[:2700])
    (row,) = found["results"]
    # No point was due at the last step: 12 is less than 1.1 times 11.
    assert [p["iteration"] for p in row["curve"]] == [*range(1, 12), 12]
    assert row["inertia"] == model.inertia_
    assert row["validation_energy"] == -model.score(X[2700:]) / 300
    assert row["validation_energy"] == pytest.approx(energy(X[2700:], model.cluster_centers_), rel=1e-6)
    assert (row["steps"], row["rows_seen"]) == (len(model.history_), 2700 * len(model.history_))
    assert row["stop_reason"] == model.stop_reason_
    last = row["curve"][-1]
    assert (last["rows"], last["energy"]) == (row["rows_seen"], row["validation_energy"])
    assert last["seconds"] == row["seconds"] > 0


def test_every_method_of_this_version(capsys, rows):
    known = methods.available(methods.CENTERS)
    found = result_of(capsys, "compare", rows, "-k", 10)
    assert tuple(row["method"] for row in found["results"]) == known
    first = found["results"][0]
    for row in found["results"]:
        assert row["validation_energy"] < 2 * first["validation_energy"]
        assert all(a["seconds"] <= b["seconds"] for a, b in itertools.pairwise(row["curve"]))
        assert all(a["rows"] < b["rows"] for a, b in itertools.pairwise(row["curve"]))


def test_the_same_seed_gives_the_same_results(capsys, rows, two):
    def figures(*more):
        found = result_of(capsys, "compare", rows, "-k", 10, "--methods", two, *more)
        return [
            (row["method"], row["inertia"], [(p["rows"], p["energy"]) for p in row["curve"]])
            for row in found["results"]
        ]

    once = figures()
    assert figures("--threads", 1) == once
    assert figures("--seed", 0) == once
    assert figures("--seed", 1) != once


def test_the_table(capsys, rows, two):
    status, out, err = run(capsys, "compare", rows, "-k", 10, "--methods", two, "--quiet")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"{rows}: 3000 x 3 float32, 10 clusters, seed 0"
    assert lines[1] == "fitted to 2700 rows, validation energy of 300"
    assert re.sub("  +", "  ", lines[3]).strip() == HEAD
    assert [line.split()[0] for line in lines[4:]] == ["kmeans", "vrkm"]
    assert len({len(line) for line in lines[3:]}) == 1
    assert "0.00%" in out


def test_a_best_energy_of_zero_has_no_ratio():
    outcomes = [
        compare.Outcome(name, 1.0, 1, 9, "tolerance", 0.0, [SimpleNamespace(seconds=1.0, energy=energy)])
        for name, energy in (("kmeans", 0.0), ("vrkm", 0.5))
    ]
    _, *body = compare.as_table(outcomes, 0.0).splitlines()
    assert [line.split()[-2:] for line in body] == [["0", "-"], ["0.5", "-"]]
    _, *body = compare.as_table(outcomes[1:], 0.5).splitlines()
    assert [line.split()[-2:] for line in body] == [["0.5", "0.00%"]]


def test_progress_names_the_method(capsys, rows, two):
    status, _, err = run(capsys, "compare", rows, "-k", 10, "--methods", two)
    assert status == 0
    assert err.index("shoal compare: kmeans") < err.index("shoal compare: vrkm")


def test_seconds_to_an_energy():
    curve = [
        SimpleNamespace(seconds=s, energy=e) for s, e in ((1.0, 9.0), (2.0, 5.0), (3.0, 5.5), (4.0, 4.9))
    ]
    outcome = compare.Outcome("kmeans", 4.0, 4, 4, "tolerance", 1.0, curve)
    assert outcome.energy == 4.9
    assert [outcome.seconds_to(e) for e in (9.0, 8.0, 5.0, 4.95, 4.8)] == [1.0, 2.0, 2.0, 4.0, None]


# ---------------------------------------------------------------- held-out rows


def test_held_out_sets_the_number_of_rows(capsys, rows):
    assert compare.held_out(1_000_000, None) == 40_000
    assert compare.held_out(399, None) == 39
    assert compare.held_out(2, None) == 1
    found = result_of(capsys, "compare", rows, "-k", 4, "--methods", "kmeans", "--held-out", 1000)
    assert (found["fitted_rows"], found["validation_rows"]) == (2000, 1000)
    for count in (0, -1, 3000, 3001):
        text = failure(capsys, "compare", rows, "-k", 4, "--methods", "kmeans", "--held-out", count, status=2)
        assert "--held-out must be between 1 and 2999" in text
        assert text.endswith(f"got {count}")


def test_validation_scores_the_rows_of_another_file(capsys, rows, tmp_path):
    X = np.load(rows)
    np.save(tmp_path / "judges.npy", X[:500].astype(np.float64))
    args = ["compare", rows, "-k", 5, "--methods", "kmeans"]
    found = result_of(capsys, *args, "--validation", tmp_path / "judges.npy")
    assert (found["fitted_rows"], found["validation_rows"]) == (3000, 500)
    model = shoal.KMeans(5, random_state=0).fit(X)
    assert found["results"][0]["inertia"] == model.inertia_
    assert found["results"][0]["validation_energy"] == pytest.approx(energy(X[:500], model.cluster_centers_))
    failure(capsys, *args, "--validation", tmp_path / "judges.npy", "--held-out", 5, status=2)
    np.save(tmp_path / "judges.npy", X[:, :2])
    text = failure(capsys, *args, "--quiet", "--validation", tmp_path / "judges.npy")
    assert "--validation must have as many columns as DATA, 3, got 2" in text


def test_a_sorted_file_gives_a_warning(capsys, tmp_path):
    rng = np.random.default_rng(1)
    # The last 10% of the rows lie far from all others.
    X = rng.normal(size=(2000, 2)) + np.where(np.arange(2000) < 1800, 0, 50)[:, None]
    np.save(tmp_path / "sorted.npy", X)
    args = ["compare", tmp_path / "sorted.npy", "-k", 6, "--methods", "kmeans", "--quiet"]
    done = program(*args)
    assert done.returncode == 0
    assert re.fullmatch(
        r"shoal: warning: the mean squared distance is .* for scored rows .* --shuffle.*\n", done.stderr
    )
    status, out, err = run(capsys, *args, "--shuffle", "--json")
    assert (status, err) == (0, "")
    again = json.loads(run(capsys, *args, "--shuffle", "--json")[1])
    first = json.loads(out)
    assert first["results"][0]["inertia"] == again["results"][0]["inertia"]
    other = json.loads(run(capsys, *args, "--shuffle", "--json", "--seed", 1)[1])
    assert first["results"][0]["inertia"] != other["results"][0]["inertia"]


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_shuffled_rows_are_all_the_rows(dtype):
    X = np.arange(60_000).reshape(-1, 3).astype(dtype)
    mixed = compare.shuffle_rows(shoal.open(X), 5)
    assert mixed.dtype == dtype
    found = np.concatenate(list(mixed.blocks()))
    assert not np.array_equal(found, X)
    assert sorted(found.tolist()) == sorted(X.tolist())


# ---------------------------------------------------------------- parameters


def test_settings_reach_the_addressed_methods(two):
    def chosen(*settings, init=None, known=("kmeans", "vrkm")):
        read = [methods.parse_addressed_setting(text) for text in settings]
        args = argparse.Namespace(
            n_clusters=4, init=init, random_state=2, n_jobs=1, metric=None, settings=read
        )
        return [compare.parameters_of(method, known, args) for method in known]

    plain = {"n_clusters": 4, "random_state": 2, "n_jobs": 1, "n_init": 1}
    assert chosen() == [plain, {**plain, "algorithm": "lloyd"}]
    kmeans, vrkm = chosen("tol=0.5", "vrkm.max-iter=7", "kmeans.algorithm=yinyang", init="random")
    assert kmeans == {**plain, "init": "random", "tol": 0.5, "algorithm": "yinyang"}
    assert vrkm == {**plain, "init": "random", "tol": 0.5, "max_iter": 7, "algorithm": "lloyd"}
    assert chosen("algorithm=yinyang")[1]["algorithm"] == "lloyd"
    assert chosen("n_init=2")[0]["n_init"] == 2


def test_settings_are_checked(capsys, rows, two):
    args = ["compare", rows, "-k", 3, "--methods", two, "--quiet", "--set"]
    assert "none of kmeans, vrkm has a parameter 'rhoo'" in failure(capsys, *args, "rhoo=3", status=2)
    assert "no parameter 'rhoo'" in failure(capsys, *args, "kmeans.rhoo=3", status=2)
    # Parameters that the method name implies cannot be set.
    assert "no parameter 'algorithm'" in failure(capsys, *args, "vrkm.algorithm=yinyang", status=2)
    assert "given twice" in failure(capsys, *args, "tol=0", "--set", "kmeans.tol=1", status=2)
    assert "no parameter 'callbacks'" in failure(capsys, *args, "kmeans.callbacks=3", status=2)
    assert "NAME=VALUE" in failure(capsys, *args, "tol", status=2)
    assert "got 'mine'" in failure(capsys, *args, "mine.tol=1", status=2)
    text = failure(capsys, "compare", rows, "-k", 3, "--methods", "kmeans", "--set", "vrkm.tol=1", status=2)
    assert "vrkm is not among the methods to compare: kmeans" in text


def test_invalid_parameters_fail_before_any_work(capsys, rows, two, monkeypatch):
    monkeypatch.setattr(EnergyCurve, "__call__", lambda *_: pytest.fail("work was begun"))
    args = ["compare", rows, "--methods", two, "--quiet"]
    text = failure(capsys, *args, "-k", 3, "--set", "vrkm.tol=-1", "--set", "vrkm.max_iter=0", status=2)
    assert text.startswith("shoal: error: vrkm: ")
    assert "tol" in text
    assert "max_iter" in text
    assert "-k must be" in failure(capsys, *args, "-k", 0, status=2)
    # 300 of the 3000 rows are held out.
    assert "at most the number of rows, 2700" in failure(capsys, *args, "-k", 2701, status=2)


def test_given_centers_start_every_method(capsys, rows, two, tmp_path):
    np.save(tmp_path / "start.npy", np.load(rows)[:7])
    found = result_of(capsys, "compare", rows, "-k", 7, "--methods", two, "--init", tmp_path / "start.npy")
    first, second = found["results"]
    assert first["inertia"] == second["inertia"]
    assert [p["energy"] for p in first["curve"]] == [p["energy"] for p in second["curve"]]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ("kmeans,means", "got 'means'. Did you mean 'kmeans'?"),
        ("", "got ''"),
        ("kmeans,", "got ''"),
        ("kmeans,kmeans", "kmeans is given twice"),
    ],
)
def test_invalid_method_names(capsys, rows, names, why):
    assert why in failure(capsys, "compare", rows, "-k", 3, "--methods", names, status=2)


def test_methods_of_other_versions(capsys, rows):
    for name in set(methods.METHODS) - set(methods.available()):
        for args in (["compare", "--methods", f"kmeans,{name}"], ["fit", "--method", name]):
            text = failure(capsys, args[0], rows, "-k", 3, *args[1:], status=2)
            assert f"{name} is not in this version, which has: kmeans" in text


def test_methods_without_centers_are_not_compared(capsys, rows, monkeypatch):
    monkeypatch.setattr(methods, "METHODS", {**methods.METHODS, "kmodes": methods.Method("KMeans")})
    text = failure(capsys, "compare", rows, "-k", 3, "--methods", "kmodes", status=2)
    assert "must be some of kmeans" in text
    assert "got kmodes, which has no energy to compare" in text


def test_options_that_a_method_lacks(capsys, rows, monkeypatch):
    monkeypatch.setattr(methods, "settable", lambda _: ["init", "n_clusters", "n_jobs", "random_state"])
    text = failure(capsys, "fit", rows, "-k", 3, "--metric", "cosine", status=2)
    assert "--metric: kmeans has no parameter 'metric'" in text


# ---------------------------------------------------------------- invalid rows and files


def test_too_few_rows(capsys, tmp_path):
    np.save(tmp_path / "one.npy", np.zeros((1, 2)))
    args = ["compare", tmp_path / "one.npy", "-k", 1, "--methods", "kmeans", "--quiet"]
    assert "at least 2 rows" in failure(capsys, *args)
    np.save(tmp_path / "one.npy", np.array([[0.0, 1.0], [0.0, 1.0]]))
    found = result_of(capsys, *args[:-1])
    assert found["results"][0]["validation_energy"] == 0.0
    assert run(capsys, *args)[0] == 0


def test_bad_files(capsys, rows, tmp_path):
    args = ["--methods", "kmeans", "-k", 3, "--quiet"]
    assert "No such file" in failure(capsys, "compare", tmp_path / "none.npy", *args)
    assert "No such file" in failure(capsys, "compare", rows, *args, "--validation", tmp_path / "none.npy")
    holed = np.load(rows)
    holed[2999, 1] = np.nan
    np.save(tmp_path / "holed.npy", holed)
    assert "column 1" in failure(capsys, "compare", tmp_path / "holed.npy", *args)
    assert "must not be empty" in failure(capsys, "compare", "", *args, status=2)
    assert "also read" in failure(capsys, "compare", rows, *args, "--plot", rows)


def test_raw_files(capsys, tmp_path):
    X = np.random.default_rng(0).integers(0, 9, size=(400, 4), dtype=np.uint8)
    X.tofile(tmp_path / "rows.bin")
    args = ["compare", tmp_path / "rows.bin", "-k", 2, "--methods", "kmeans"]
    found = result_of(capsys, *args, "--shape", "400,4", "--dtype", "u1")
    assert found["dtype"] == "uint8"
    assert found["results"][0]["inertia"] == shoal.KMeans(2, random_state=0).fit(X[:360]).inertia_
    failure(capsys, *args, "--shape", "400,4", status=2)


# ---------------------------------------------------------------- the curve


def test_points_of_the_curve_grow_with_the_logarithm(rows):
    X = np.load(rows)
    curve = EnergyCurve(shoal.open(X[:100]))
    model = shoal.KMeans(40, init="random", n_init=3, tol=0, random_state=0, callbacks=[curve]).fit(X)
    curve.conclude(model)
    steps = len(model.history_)
    assert steps > 60
    seen = [point.rows // 3000 for point in curve.points]
    assert seen[:11] == list(range(1, 12))
    assert seen[-1] == steps
    assert all(b >= 1.1 * a for a, b in itertools.pairwise(seen[:-1]))
    assert curve.points[-1].energy == -model.score(X[:100]) / 100
    assert curve.spent > 0


# ---------------------------------------------------------------- plots


def drawn(monkeypatch):
    """Return a list that collects the lines of all following plots as (x, y, label)."""
    pytest.importorskip("matplotlib")
    from matplotlib.axes import Axes

    lines = []
    real = Axes.plot

    def kept(self, x, y, **options):
        lines.append((np.array(x), np.array(y), options["label"]))
        return real(self, x, y, **options)

    monkeypatch.setattr(Axes, "plot", kept)
    return lines


def test_the_plot_of_a_comparison(capsys, rows, two, tmp_path, monkeypatch):
    lines = drawn(monkeypatch)
    args = ["compare", rows, "-k", 10, "--methods", two, "--set", "vrkm.max_iter=2"]
    found = result_of(capsys, *args, "--plot", tmp_path / "p.png")
    assert (tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    assert found["plot"] == str(tmp_path / "p.png")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.png", "rows.npy"]
    assert [label for *_, label in lines] == ["kmeans", "kmeans", "vrkm", "vrkm"]
    best = min(p["energy"] for row in found["results"] for p in row["curve"])
    for at, row in enumerate(found["results"]):
        expected = [p["energy"] / best - 1 if p["energy"] > best else np.nan for p in row["curve"]]
        for side, name in ((0, "seconds"), (1, "rows")):
            x, y, _ = lines[2 * at + side]
            assert x.tolist() == [p[name] for p in row["curve"]]
            np.testing.assert_allclose(y, expected)


def test_the_plot_of_a_fit(capsys, rows, tmp_path, monkeypatch):
    lines = drawn(monkeypatch)
    X = np.load(rows)
    np.save(tmp_path / "judges.npy", X[:50])
    more = ["--plot", tmp_path / "p.png", "--validation", tmp_path / "judges.npy"]
    found = result_of(capsys, "fit", rows, "-k", 10, *more)
    model = shoal.KMeans(10, random_state=0).fit(X)
    assert found["validation_energy"] == -model.score(X[:50]) / 50
    assert [label for *_, label in lines] == ["rows of the step"] * 2 + ["held-out rows"] * 2
    assert lines[1][0].tolist() == model.history_["rows_seen"].tolist()
    assert lines[1][1].tolist() == (model.history_["objective"] / 3000).tolist()
    assert lines[3][1][-1] == found["validation_energy"]
    # Validation does not change the fit.
    assert found["inertia"] == model.inertia_
    status, out, _ = run(capsys, "fit", rows, "-k", 10, *more[2:], "--quiet")
    assert status == 0
    assert f"{found['validation_energy']:.9g} per row ({tmp_path / 'judges.npy'})" in out


def test_plots_of_constant_energies(tmp_path):
    pytest.importorskip("matplotlib")
    for energies in ([0.0, 0.0], [2.0, 2.0]):
        line = plot.Curve("flat", [0.1, 0.2], [10, 20], energies)
        for excess in (True, False):
            plot.curves(tmp_path / "flat.png", [line], "flat", excess=excess)
            assert (tmp_path / "flat.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("verb", [["compare", "--methods", "kmeans"], ["fit"]])
def test_missing_matplotlib_fails_before_any_work(capsys, rows, tmp_path, monkeypatch, verb):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr(shoal.KMeans, "iter_fit", lambda *_: pytest.fail("work was begun"))
    text = failure(capsys, *verb, rows, "-k", 3, "--quiet", "--plot", tmp_path / "p.png")
    assert text == "shoal: error: curves need matplotlib: pip install 'shoal-cluster[plot]'"


# ---------------------------------------------------------------- as a program


def test_as_a_program(rows):
    done = program("compare", rows, "-k", 3, "--methods", "kmeans", "--json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["results"][0]["method"] == "kmeans"
    assert "shoal compare: kmeans" in done.stderr


def test_interrupted(capsys, rows, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(EnergyCurve, "__call__", stop)
    status, out, err = run(capsys, "compare", rows, "-k", 3, "--methods", "kmeans", "--quiet")
    assert (status, out, err) == (130, "", "shoal: interrupted\n")


@pytest.mark.skipif("minibatch" not in methods.available(), reason="not in this version")
def test_fits_without_labels(capsys, rows, tmp_path):
    args = ["--set", "compute_labels=false", "--seed", 1]
    found = result_of(capsys, "compare", rows, "-k", 5, "--methods", "kmeans,minibatch", *args)
    assert [row["inertia"] is None for row in found["results"]] == [False, True]
    assert run(capsys, "compare", rows, "-k", 5, "--methods", "minibatch", *args, "--quiet")[0] == 0
    more = ["--method", "minibatch", *args, "--labels", tmp_path / "l.npy", "-o", tmp_path / "m.safetensors"]
    assert result_of(capsys, "fit", rows, "-k", 5, *more)["inertia"] is None
    labels = shoal.load(tmp_path / "m.safetensors").predict(rows)
    assert np.array_equal(np.load(tmp_path / "l.npy"), labels)
