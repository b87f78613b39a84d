"""Labels of every dense data set are bit-identical for ``avx512`` and for the tiers with low precision."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from shoal import _core

#: Prints a checksum of the labels and centers of every data set.
FITS = """
import hashlib, sys
import numpy as np, shoal

for name, X in np.load(sys.argv[1]).items():
    k = min(128, len(X) // 4)
    found = hashlib.sha256()
    for rows in (X, np.asarray(X, np.float32)):
        kmeans = shoal.KMeans(k, init=X[:: len(X) // k][:k], max_iter=3, n_jobs=1).fit(rows)
        found.update(kmeans.labels_.tobytes() + kmeans.cluster_centers_.tobytes())
        found.update(shoal.nearest(rows, X[:k].astype(np.float32))[0].tobytes())
    print(name, found.hexdigest())
"""


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """Save a few thousand rows of every dense set in one file; return its path."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        pytest.skip("SHOAL_DATA names no folder of data sets")
    rows = {}
    for path in sorted(Path(folder).glob("*.npz")):
        with np.load(path) as file:
            name = next((name for name in file.files if name == "X" or name.endswith("/X")), None)
            if name is None:
                continue
            X = file[name]
        X = X[:: max(1, len(X) // 3000)][:3000]
        rows[path.stem] = X if X.dtype.kind in "uf" else X.astype(np.float32)
    assert len(rows) > 10
    path = tmp_path_factory.mktemp("sets") / "sets.npz"
    np.savez(path, **rows)
    return path


def checksums(sets, isa):
    """Fit every set in a fresh process with an instruction set."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FITS, str(sets)],
        env=os.environ | {"SHOAL_ISA": isa},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("tier", ["avx512vnni", "amx"])
def test_labels_of_every_dense_set(sets, tier):
    if tier not in _core.available_isas():
        pytest.skip(f"this processor has no {tier}")
    assert checksums(sets, tier) == checksums(sets, "avx512")
