"""The conformance suite of distributed engines: for any cut, they give the bits of a fit to one partition.

A test module of an engine derives from :class:`Suite` and defines the fixture `runner`, with scope "class" or
"module": a :class:`Runner` with two workers. It may be parametrized.
"""

import os
import signal
import threading
import time
import warnings
from functools import partial
from typing import Any, Protocol

import generated
import numpy as np
import pytest
import shoal
from shoal import distributed
from shoal.callbacks import Checkpoint


class Runner(Protocol):
    """How the suite runs the estimators of an engine."""

    #: The estimator of the engine.
    KMeans: Any
    #: ``lightweight_coreset`` of the engine, called with the result of `given`; None if it has none.
    lightweight_coreset: Any
    #: Kinds of partitions that the engine can hold, of "weights", "paths", "empty", "storage" (u8 and f16).
    kinds: frozenset

    def given(self, partitions, sample_weight=None) -> tuple[tuple, dict]:
        """Return the arguments of ``fit`` and ``lightweight_coreset`` for partitions in this order."""

    def rows(self, partitions) -> tuple[tuple, dict]:
        """Return the arguments of ``predict``."""

    def labels(self, labels) -> np.ndarray:
        """Return labels, in the order of the partitions, as one array."""

    def distances(self, distances) -> np.ndarray:
        """Return distances, in the order of the partitions, as one array."""


#: Rows of most tests: groups that hardly overlap.
blobs = partial(generated.blobs, n=2400, d=5, k=6, apart=8.0, dtype=np.float32)


def cut(rows, *at):
    """Cut rows at these shares of their number."""
    return np.split(rows, [int(share * len(rows)) for share in at])


#: How 2,400 rows may be cut.
CUTS = {
    "even": (0.25, 0.5, 0.75),
    "skewed": (0.05, 0.95),
    "one": (),
    "many": tuple(i / 19 for i in range(1, 19)),
    "empty": (0.0, 0.3, 0.3, 1.0),
    "single rows": (1 / 2400, 2 / 2400, 3 / 2400, 0.5),
}

#: A partition of 1 row, one without rows, one of 90% of the rows, and the rest.
UNEQUAL = (1.5 / 2400, 1.5 / 2400, 2161.5 / 2400)

#: The fits of most tests: long enough to depend on every sum.
SHORT = {"n_clusters": 6, "random_state": 3, "max_iter": 3}

#: Such fits by each way to draw the first centers: from a coreset of some of the rows, and in rounds.
DRAWS = [SHORT | {"coreset_size": 300}, SHORT | {"init": "k-means||"}]


def same(one, other):
    """Check that two fitted estimators are bit-identical."""
    assert one.cluster_centers_.dtype == other.cluster_centers_.dtype
    np.testing.assert_array_equal(one.cluster_centers_, other.cluster_centers_)
    np.testing.assert_array_equal(one.counts_, other.counts_)
    fields = [name for name in one.history_.dtype.names if name != "elapsed"]
    np.testing.assert_array_equal(one.history_[fields], other.history_[fields])
    assert (one.inertia_, one.n_iter_, one.stop_reason_) == (
        other.inertia_,
        other.n_iter_,
        other.stop_reason_,
    )


#: Values of the seventh of eight rows of two numbers, cut into two partitions, and the error of a fit.
BAD_ROWS = [
    (None, "partition 1: .*'v' must not hold missing values, got a null at row 2"),
    ([1.0, None], "partition 1: .*'v' must not hold missing values, got a null at row 2"),
    ([1.0], "partition 1: .*'v' must hold vectors of length 2.*got length 1 at row 2"),
]


def with_bad_row(bad):
    rows = [[float(i), 1.0] for i in range(8)]
    rows[6] = bad
    return rows


def check_bad_columns(kind, table):
    """Fit an estimator of tables to one with a row of `v` (a vector), `s` (text) and `label` (a number)."""
    model = kind(1, compute_labels=False)
    for features, problem in {
        "z": "features must be among 'v', 's', 'label', got 'z'",
        "s": "column 's' is of type string. Choose",
        ("v", "label"): r"'v' holds vectors, so it must be the only column, got 2 columns. .*features=",
        (): "features must name at least one column",
    }.items():
        with pytest.raises(ValueError, match=problem):
            model.fit(table, features=features)
    with pytest.raises(ValueError, match="sample_weight must be among"):
        model.fit(table, features="v", sample_weight="z")
    with (
        pytest.warns(FutureWarning, match="weights is deprecated: use sample_weight instead"),
        pytest.raises(ValueError, match="sample_weight must be among"),
    ):
        model.fit(table, features="v", weights="z")
    with pytest.raises(ValueError, match="output must be the name of a new column, got 'label'"):
        kind(1).fit(table, features="v")


class Suite:
    """Tests that every engine passes."""

    @staticmethod
    def both(runner, params, partitions, sample_weight=None):
        """Fit on the engine, and sequentially to one partition; compare bits; return the fitted estimator."""
        args, options = runner.given(partitions, sample_weight)
        found = runner.KMeans(**params).fit(*args, **options)
        whole = partitions if isinstance(partitions[0], str) else [np.concatenate(partitions)]
        weights = None if sample_weight is None else [np.concatenate(sample_weight)]
        known = distributed.KMeans(**params).fit(whole, sample_weight=weights)
        same(found, known)
        np.testing.assert_array_equal(runner.labels(found.labels_), known.labels_)
        return found

    @pytest.mark.parametrize("name", CUTS)
    @pytest.mark.parametrize("params", DRAWS)
    def test_any_cut(self, runner, name, params):
        if name == "empty" and "empty" not in runner.kinds:
            pytest.skip("the engine drops empty partitions")
        self.both(runner, params, cut(blobs(), *CUTS[name]))

    def test_to_the_end(self, runner):
        model = self.both(runner, {"n_clusters": 6, "random_state": 3}, cut(blobs(), *CUTS["even"]))
        assert model.stop_reason_ in ("tolerance", "labels-stable")

    @pytest.mark.parametrize("init", ["k-means++", "hierarchical", "k-means||"])
    @pytest.mark.parametrize("metric", ["euclidean", "cosine"])
    def test_seedings_and_metrics(self, runner, init, metric):
        params = {"n_clusters": 5, "init": init, "metric": metric, "random_state": 1, "max_iter": 2}
        if init != "k-means||":
            params["coreset_size"] = 300
        model = self.both(runner, params, cut(blobs(dtype=np.float64), *CUTS["even"]))
        assert model.init_ == init

    @pytest.mark.parametrize("params", DRAWS)
    def test_weights(self, runner, params):
        if "weights" not in runner.kinds:
            pytest.skip("the engine has no weights")
        rng = np.random.default_rng(5)
        weights = cut(rng.integers(0, 4, 2400) / 3, *CUTS["skewed"])
        self.both(runner, params, cut(blobs(), *CUTS["skewed"]), weights)

    @pytest.mark.parametrize("dtype", ["u1", "f2"])
    def test_storage_types(self, runner, dtype):
        if "storage" not in runner.kinds:
            pytest.skip("the engine has no such types")
        rows = blobs()
        rows = ((rows - rows.min()) * 4).astype(dtype)
        model = self.both(runner, SHORT, cut(rows, *CUTS["even"]))
        assert model.cluster_centers_.dtype == np.float32

    def test_paths_are_read_on_the_workers(self, runner, tmp_path):
        if "paths" not in runner.kinds:
            pytest.skip("the engine takes no paths")
        paths = []
        for i, rows in enumerate(cut(blobs(), *CUTS["skewed"])):
            paths.append(str(tmp_path / f"{i}.npy"))
            np.save(paths[-1], rows)
        model = self.both(runner, SHORT, paths)
        same(model, distributed.KMeans(**SHORT).fit(cut(blobs(), *CUTS["skewed"])))

    def test_coresets(self, runner):
        if runner.lightweight_coreset is None:
            pytest.skip("the engine has no lightweight_coreset")
        partitions = cut(blobs(), *CUTS["skewed"])
        args, options = runner.given(partitions)
        found = runner.lightweight_coreset(*args, n_samples=200, random_state=7, **options)
        known = distributed.lightweight_coreset([blobs()], 200, random_state=7)
        for name in ("points", "weights", "indices"):
            np.testing.assert_array_equal(getattr(found, name), getattr(known, name))
        mixture = shoal.TruncatedGaussianMixture(6, random_state=0).fit(found)
        assert np.isfinite(mixture.means_).all()

    def test_predict_transform_and_score(self, runner):
        partitions = cut(blobs(), *CUTS["even"])
        args, options = runner.given(partitions)
        model = runner.KMeans(**SHORT, compute_labels=False).fit(*args, **options)
        with pytest.raises(AttributeError, match="predict"):
            _ = model.labels_
        local, rows = model.to_local(), np.concatenate(partitions)
        args, options = runner.rows(partitions)
        labels = runner.labels(model.predict(*args, **options))
        np.testing.assert_array_equal(labels, local.predict(rows))
        distances = runner.distances(model.transform(*args, **options))
        np.testing.assert_array_equal(distances, local.transform(rows))
        assert distances.dtype == np.float32
        args, options = runner.given(partitions)
        np.testing.assert_allclose(model.score(*args, **options), local.score(rows), rtol=1e-12)
        assert (model.n_features_in_, model.get_feature_names_out()[-1]) == (5, "kmeans5")

    @pytest.mark.parametrize("compute_labels", [True, False])
    def test_fit_predict_and_fit_transform(self, runner, compute_labels):
        partitions = cut(blobs(), *CUTS["even"])
        known = distributed.KMeans(**SHORT).fit(partitions)
        model = runner.KMeans(**SHORT, compute_labels=compute_labels)
        args, options = runner.given(partitions)
        np.testing.assert_array_equal(runner.labels(model.fit_predict(*args, **options)), known.labels_)
        distances = runner.distances(model.fit_transform(*args, **options))
        np.testing.assert_array_equal(distances, known.transform(partitions))

    def test_score_takes_weights(self, runner):
        if "weights" not in runner.kinds:
            pytest.skip("the engine has no weights")
        parts = cut(blobs(), *CUTS["skewed"])
        weights = cut(np.arange(2400) % 3 / 2, *CUTS["skewed"])
        args, options = runner.given(parts, weights)
        model = runner.KMeans(**SHORT, compute_labels=False).fit(*args, **options)
        local = model.to_local().score(np.concatenate(parts), sample_weight=np.concatenate(weights))
        np.testing.assert_allclose(model.score(*args, **options), local, rtol=1e-12)

    def test_options_of_other_engines_are_refused(self, runner):
        args, options = runner.given(cut(blobs(), 0.5))
        with pytest.raises(TypeError, match=r"options of shoal.* must be among .*got 'cluster'"):
            runner.KMeans(**SHORT).fit(*args, **options, cluster=1)

    def test_local_estimators_name_the_engine(self, runner):
        (X, *_), _ = runner.given(cut(blobs(), 0.5))
        if isinstance(X, list):
            pytest.skip("the engine has no collection of its own")
        module = runner.KMeans.__module__
        for call in (
            shoal.KMeans(3).fit,
            shoal.KMeans(3).fit_predict,
            shoal.MiniBatchKMeans(3).partial_fit,
            shoal.TruncatedGaussianMixture(3).fit,
            shoal.open,
        ):
            with pytest.raises(TypeError, match=rf"on this machine, got a .* of .*Use {module}\.KMeans, or"):
                call(X)

    def test_bad_values_name_the_partition(self, runner):
        partitions = cut(blobs(), *CUTS["even"])
        partitions[2] = partitions[2].copy()
        partitions[2][17, 3] = np.nan
        args, options = runner.given(partitions)
        with pytest.raises(
            ValueError, match=r"partition 2: X must be finite.*row 17, column 3|partition 2.*NaN"
        ):
            runner.KMeans(**SHORT).fit(*args, **options)

    # Python drops an interrupt that comes while it finalizes an object: Ctrl-C is pressed once more then.
    @pytest.mark.filterwarnings(
        "ignore:Exception ignored in. <function Future.__del__:pytest.PytestUnraisableExceptionWarning"
    )
    def test_an_interrupt_and_a_second_fit(self, runner):
        partitions = cut(blobs(), *CUTS["even"])
        params = {"n_clusters": 12, "random_state": 9, "tol": 0.0, "max_iter": 4}

        def interrupt(_, step):
            if step.iteration == 2:
                threading.Timer(0.003, os.kill, (os.getpid(), signal.SIGINT)).start()
            elif step.iteration > 2:
                # The signal comes late, or never.
                time.sleep(3)
                os.kill(os.getpid(), signal.SIGINT)

        args, options = runner.given(partitions)
        model = runner.KMeans(**params, callbacks=[interrupt])
        with pytest.raises(KeyboardInterrupt):
            model.fit(*args, **options)
        whole = distributed.KMeans(**params).fit(partitions)
        n = len(model.history_)
        assert 2 <= n <= 3
        np.testing.assert_array_equal(model.history_["objective"], whole.history_["objective"][:n])
        args, options = runner.given(partitions)
        model.callbacks = None
        same(model.fit(*args, **options), whole)

    def test_a_checkpoint_resumes_to_the_same_bits(self, runner, tmp_path):
        path = tmp_path / "run.safetensors"
        partitions = cut(blobs(), *CUTS["even"])
        params = {"n_clusters": 12, "random_state": 9, "tol": 0.0}
        whole = distributed.KMeans(**params).fit(partitions)
        assert whole.n_iter_ > 4
        stop = [Checkpoint(path, every_steps=1), lambda _, step: step.iteration == 2]
        args, options = runner.given(partitions)
        runner.KMeans(**params, callbacks=stop).fit(*args, **options)
        args, options = runner.given(partitions)
        with pytest.raises(ValueError, match=r"holds a checkpoint of a fit, after 2 steps.*resume_from=path"):
            runner.KMeans(**params, callbacks=stop).fit(*args, **options)
        args, options = runner.given(partitions)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            keep = Checkpoint(path, every_steps=1)
            found = runner.KMeans(**params, callbacks=[keep]).fit(*args, **options, resume_from=path)
        np.testing.assert_array_equal(found.cluster_centers_, whole.cluster_centers_)
        assert (found.inertia_, found.n_iter_) == (whole.inertia_, whole.n_iter_)
