"""
Near-duplicates across borders
==============================

Cells make the search for near-duplicates fast. A search within cells misses the pairs that lie on
both sides of a border. `deduplicate` finds them all, because rows near a border also visit the cell
beyond.
"""

import matplotlib.pyplot as plt
import numpy as np
import shoal

rng = np.random.default_rng(4)
X = rng.uniform(0, 10, size=(1500, 2))
near = rng.choice(1500, 300, replace=False)
X[near] = X[(near + 1) % 1500] + rng.normal(scale=0.06, size=(300, 2))

options = {"metric": "euclidean", "linkage": "components", "n_clusters": 60, "random_state": 0}
everything = shoal.curation.deduplicate(X, 0.1, **options)
within = shoal.curation.deduplicate(X, 0.1, exact=False, n_probes=1, **options)

# %%
missed = within.keep_ & ~everything.keep_
figure, axes = plt.subplots(figsize=(7, 7))
axes.scatter(*X[everything.keep_].T, s=3, c="0.75", label="kept")
axes.scatter(*X[~within.keep_].T, s=9, c="C0", label="removed, found within cells")
axes.scatter(*X[missed].T, s=36, c="C3", marker="D", label="removed, found across borders only")
axes.set_title(f"A search within cells finds {within.n_pairs_} of {everything.n_pairs_} pairs")
axes.set(aspect="equal", xlim=(-0.2, 10.2), ylim=(-0.2, 10.2))
figure.legend(loc="outside lower center", frameon=False)
plt.show()
