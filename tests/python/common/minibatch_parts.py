"""Builders that the tests of mini-batch k-means share."""

PURE = {"reassignment_ratio": 0.0, "max_no_improvement": None}


def cut(X, lengths):
    """Yield consecutive batches with the given lengths, repeated."""
    start, batches = 0, []
    while start < len(X):
        length = lengths[len(batches) % len(lengths)]
        batches.append(X[start : start + length])
        start += length
    return batches


def same(one, other):
    """Whether two estimators have bit-identical state."""
    return (
        (one.cluster_centers_ == other.cluster_centers_).all()
        and (one.counts_ == other.counts_).all()
        and one.n_steps_ == other.n_steps_
    )
