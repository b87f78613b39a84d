"""Balanced samples, slowly: one row after the other, and sorted rows."""

import numpy as np


def shares(caps, n):
    """Share out `n` rows one by one, each to the first of the branches that have given least."""
    given = [0] * len(caps)
    for _ in range(n):
        open_ones = [j for j, cap in enumerate(caps) if given[j] < cap]
        if not open_ones:
            break
        given[min(open_ones, key=given.__getitem__)] += 1
    return given


def totals(sizes, parents):
    """Return the rows below every cell of all levels, the finest first; the last entry is of all rows."""
    found = [list(sizes)]
    for of in parents:
        above = [0] * (max(of, default=-1) + 1)
        for size, parent in zip(found[-1], of, strict=True):
            above[parent] += size
        found.append(above)
    return [*found, [sum(sizes)]]


def check_quotas(quotas, sizes, parents, n):
    """Check that every branch of every cell has its share, up to the draws of single rows."""
    below, given = totals(sizes, parents), totals(quotas, parents)
    assert given[-1][0] == min(n, below[-1][0])
    for level, (caps, taken) in enumerate(zip(below[:-1], given[:-1], strict=True)):
        top = level == len(parents)
        of = [0] * len(caps) if top else list(parents[level])
        for cell, total in enumerate(given[level + 1]):
            children = [j for j, p in enumerate(of) if p == cell]
            mine, most = [taken[j] for j in children], [caps[j] for j in children]
            assert all(a <= b for a, b in zip(mine, most, strict=True))
            assert sorted(mine) == sorted(shares(most, total))


def nearest(labels, sq_dists, quotas, weights=None):
    """Return the nearest rows of every cell, in ascending order."""
    rows = np.arange(len(labels))
    found = []
    for cell, quota in enumerate(quotas):
        mine = rows[(labels == cell) & (True if weights is None else weights > 0)]
        found.append(mine[np.argsort(sq_dists[mine], kind="stable")[:quota]])
    return np.sort(np.concatenate(found))


def divergence(groups, count):
    """Return the Kullback-Leibler divergence of the shares of groups from equal shares."""
    p = np.bincount(groups, minlength=count) / len(groups)
    return float((p[p > 0] * np.log(count * p[p > 0])).sum())
