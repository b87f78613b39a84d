"""dask-ml's wrappers around shoal: `ParallelPostFit` and `Incremental` on dask arrays and frames."""

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import shoal
from dask_ml.wrappers import Incremental, ParallelPostFit

CHUNK = 250
RNG = np.random.default_rng(0)
X = np.concatenate([RNG.normal(size=(400, 4)) + 9 * j for j in range(5)]).astype(np.float32)
RNG.shuffle(X)
CHUNKED = da.from_array(X, chunks=(CHUNK, 4))


def after_fit(cls: type) -> None:
    """Labels and distances of a dask array are those of the whole array, computed chunk by chunk."""
    model = ParallelPostFit(cls(5, random_state=0)).fit(X)
    labels, distances = model.predict(CHUNKED), model.transform(CHUNKED)
    assert labels.dtype == np.int32
    assert labels.npartitions > 1
    np.testing.assert_array_equal(labels.compute(), model.estimator.predict(X))
    np.testing.assert_array_equal(distances.compute(), model.estimator.transform(X))
    assert model.score(X, None) == model.estimator.score(X)
    print(f"ok: ParallelPostFit({cls.__name__})")


def frame() -> None:
    """A dask frame keeps its index and is checked by feature names."""
    table = pd.DataFrame(X, columns=list("abcd"), index=np.arange(len(X))[::-1])
    model = ParallelPostFit(shoal.KMeans(5, random_state=0)).fit(table)
    labels = model.predict(dd.from_pandas(table.sort_index(), npartitions=4)).compute()
    np.testing.assert_array_equal(labels, model.estimator.predict(table.sort_index()))
    try:
        model.predict(dd.from_pandas(table.rename(columns={"a": "z"}), npartitions=4)).compute()
    except ValueError as error:
        message = str(error)
    else:
        message = "no error"
    assert "feature names" in message, message
    print("ok: ParallelPostFit(KMeans) on a frame")


def batches(cls: type) -> None:
    """`Incremental` equals a loop over the chunks with `partial_fit`."""
    model = Incremental(cls(5, random_state=0), shuffle_blocks=False).fit(CHUNKED)
    expected = cls(5, random_state=0)
    for first in range(0, len(X), CHUNK):
        expected.partial_fit(X[first : first + CHUNK])
    # The wrapper copies plain attributes only; centers are read from the estimator.
    np.testing.assert_array_equal(model.estimator_.cluster_centers_, expected.cluster_centers_)
    np.testing.assert_array_equal(model.predict(CHUNKED).compute(), expected.predict(X))
    model.partial_fit(CHUNKED)
    assert model.estimator_.counts_.sum() >= expected.counts_.sum()
    assert not hasattr(model.estimator, "counts_")
    print(f"ok: Incremental({cls.__name__})")


if __name__ == "__main__":
    for cls in (
        shoal.KMeans,
        shoal.MiniBatchKMeans,
        shoal.NestedMiniBatchKMeans,
        shoal.VarianceReducedKMeans,
        shoal.BackwardEulerKMeans,
    ):
        after_fit(cls)
    frame()
    for cls in (shoal.MiniBatchKMeans, shoal.NestedMiniBatchKMeans, shoal.BackwardEulerKMeans):
        batches(cls)
