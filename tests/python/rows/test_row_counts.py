"""A source that gives another number of rows than it announces is an error for every consumer."""

import numpy as np
import pytest
import shoal
from shoal._rows.opening import source_of_stream
from shoal.formats.stream import Stream

X = np.random.default_rng(0).normal(size=(500, 4)).astype("float32")
FITTED = shoal.KMeans(3, random_state=0).fit(X)
MIXTURE = shoal.TruncatedGaussianMixture(3, random_state=0).fit(X)
#: This method warns if a stream is not in random order.
OPTIONS = {shoal.NestedMiniBatchKMeans: {"shuffle": False}}


def announced(rows):
    """A stream of 500 rows that announces another number."""
    blocks = [X[:300].copy(), X[300:].copy()]
    return source_of_stream(Stream("x", rows, 4, X.dtype, lambda: iter(blocks)))


CONSUMERS = {
    "blocks": lambda source, _: list(source.blocks()),
    "blocks of a length": lambda source, _: list(source.blocks(7)),
    "write": shoal.write,
    "shuffle": shoal.shuffle,
    "predict": lambda source, _: FITTED.predict(source),
    "predict into a file": lambda source, out: FITTED.predict(source, out=out),
    "score": lambda source, _: FITTED.score(source),
    "predict_proba": lambda source, _: MIXTURE.predict_proba(source),
    "score_samples": lambda source, _: MIXTURE.score_samples(source),
    "asarray": lambda source, _: np.asarray(source),
    "transform": lambda source, _: FITTED.transform(source),
    "nearest": lambda source, _: shoal.nearest(source, X[:3]),
    "knn_graph": lambda source, _: shoal.knn_graph(source, 3),
    "inertia": lambda source, _: shoal.metrics.inertia(source, X[:3]),
    "kmeans_plusplus": lambda source, _: shoal.kmeans_plusplus(source, 3),
    "afkmc2": lambda source, _: shoal.afkmc2(source, 3),
    "kmeans_parallel": lambda source, _: shoal.kmeans_parallel(source, 3),
    "lightweight_coreset": lambda source, _: shoal.lightweight_coreset(source, 20),
    "StreamingCoreset": lambda source, _: shoal.StreamingCoreset(20).partial_fit(source),
    **{
        f"{cls.__name__}.{name}": lambda source, _, cls=cls, name=name: getattr(
            cls(3, **OPTIONS.get(cls, {})), name
        )(source)
        for cls, names in {
            shoal.KMeans: ["fit"],
            shoal.MiniBatchKMeans: ["fit", "partial_fit"],
            shoal.NestedMiniBatchKMeans: ["fit", "partial_fit"],
            shoal.BackwardEulerKMeans: ["fit", "partial_fit"],
            shoal.VarianceReducedKMeans: ["fit"],
            shoal.BreathingKMeans: ["fit"],
            shoal.BalancedKMeans: ["fit"],
            shoal.TruncatedGaussianMixture: ["fit"],
            shoal.LaplacianKModes: ["fit"],
        }.items()
        for name in names
    },
}


@pytest.mark.parametrize(("rows", "found"), [(2000, "500"), (400, "at least 500")])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_a_wrong_number_of_rows_is_refused(consumer, rows, found, tmp_path):
    out = tmp_path / "out.npy"
    np.save(out, X[:2])
    before = out.read_bytes()
    with pytest.raises(ValueError, match=f"X gave {found} rows, where {rows} were announced"):
        CONSUMERS[consumer](announced(rows), out)
    # An old file is unchanged, and there is no temporary file.
    assert out.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.npy"]


def test_every_pass_must_have_the_same_number_of_rows():
    lengths = iter([500, 500, 300])
    source = shoal.open(lambda: iter([X[: next(lengths)]]))
    assert sum(map(len, source.blocks())) == 500
    with pytest.raises(ValueError, match="gave 500 rows in one pass and 300 in another"):
        list(source.blocks())


def test_a_pass_that_ends_early_is_not_counted():
    source = announced(500)
    assert len(next(source.blocks())) == 300
    assert (source.take([1, 2]) == X[1:3]).all()
    assert sum(map(len, source.blocks())) == 500
