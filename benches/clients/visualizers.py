"""yellowbrick's visualizers of clusterings with shoal: the scores are those of scikit-learn."""

import io

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import shoal
import sklearn.cluster
from sklearn.base import clone
from sklearn.datasets import make_blobs
from yellowbrick.cluster import InterclusterDistance, KElbowVisualizer, SilhouetteVisualizer

X, _ = make_blobs(500, centers=5, n_features=4, cluster_std=0.5, random_state=3)


def drawn(visualizer):
    """Fit and draw."""
    visualizer.fit(X)
    visualizer.show(outpath=(picture := io.BytesIO()), clear_figure=True)
    plt.close("all")
    assert picture.tell() > 1000
    return visualizer


if __name__ == "__main__":
    theirs = sklearn.cluster.KMeans(n_init=10, random_state=0)
    for cls in (
        shoal.KMeans,
        shoal.MiniBatchKMeans,
        shoal.NestedMiniBatchKMeans,
        shoal.VarianceReducedKMeans,
    ):
        ours = cls(random_state=0)
        for metric in ("distortion", "silhouette", "calinski_harabasz"):
            scores = [
                drawn(KElbowVisualizer(model, k=(5, 8), metric=metric, timings=False)).k_scores_
                for model in (ours, theirs)
            ]
            # Five groups are found by both; more clusters split groups in many ways.
            np.testing.assert_allclose(scores[0][0], scores[1][0], rtol=1e-3)
            np.testing.assert_allclose(scores[0], scores[1], rtol=0.15)
        for made, score in [(SilhouetteVisualizer, "silhouette_score_"), (InterclusterDistance, "scores_")]:
            found = [drawn(made(clone(model).set_params(n_clusters=5))) for model in (ours, theirs)]
            np.testing.assert_allclose(
                *(np.sort(np.atleast_1d(getattr(each, score))) for each in found), rtol=1e-3
            )
        print(f"ok: {cls.__name__}")
