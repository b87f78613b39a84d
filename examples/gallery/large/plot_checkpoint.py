"""
Stop and resume
===============

A fit that is stopped and resumed from its checkpoint gives bit-identical results. The picture shows
both parts on the curve of the fit that was never stopped.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import shoal
from shoal.callbacks import Checkpoint

X = np.random.default_rng(0).normal(size=(20_000, 6))
whole = shoal.KMeans(60, init="random", n_init=1, random_state=0).fit(X)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "run.safetensors"
    first = shoal.KMeans(60, init="random", n_init=1, random_state=0, callbacks=[Checkpoint(path)])
    for step in first.iter_fit(X):
        if step.iteration == 12:  # or a crash
            break
    resumed = shoal.resume(path, X)
assert (resumed.cluster_centers_ == whole.cluster_centers_).all()

# %%
plt.plot(whole.history_["iteration"], whole.history_["objective"], lw=6, alpha=0.3, label="never stopped")
history = resumed.history_
plt.plot(history["iteration"][:12], history["objective"][:12], "o", ms=4, label="before the stop")
plt.plot(history["iteration"][12:], history["objective"][12:], ".", ms=4, label="resumed")
plt.xlabel("sweep")
plt.ylabel("inertia")
plt.legend()
plt.show()
