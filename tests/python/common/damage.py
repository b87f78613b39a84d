"""Read damaged files in a process of its own, because a damaged file could crash the process.

``python damage.py FOLDER COUNT KIND...`` writes a valid file of each kind and then COUNT damaged copies, one
after the other. It reads each copy and prints the outcomes as one JSON object. The last line on stderr tells
which copy is being read. With ``SHOAL_FUZZ_SECONDS`` in the environment, there are as many copies of each
kind as fit into these seconds, and ``SHOAL_FUZZ_SEED`` chooses the damage. Without a KIND, all are tried.
"""

import gzip
import io
import itertools
import json
import os
import resource
import shutil
import sys
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import shoal

X = np.random.default_rng(0).normal(size=(60, 4)).astype("f4")
SPARSE = sp.csr_array(sp.random(60, 8, density=0.2, random_state=np.random.default_rng(0)))
SPARSE.data[:] = np.random.default_rng(1).normal(size=SPARSE.nnz)


def table(vectors):
    import pyarrow as pa

    if vectors == "lists":
        return pa.table({"v": pa.array(X.tolist(), pa.list_(pa.float32()))})
    if not vectors:
        return pa.table({f"c{j}": X[:, j] for j in range(4)})
    return pa.table({"v": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 4)})


def parquet(path, **how):
    import pyarrow.parquet as pq

    vectors = how.pop("vectors", False)
    pq.write_table(table(vectors), path, row_group_size=25, **how)


def ipc(path, compression=None, *, stream=False, vectors=True):
    import pyarrow as pa

    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with new(path, table(vectors).schema, options=options) as writer:
        writer.write_table(table(vectors), max_chunksize=25)


def csv(path):
    from pyarrow import csv

    text = io.BytesIO()
    csv.write_csv(table(vectors=False), text)
    path.write_bytes(gzip.compress(text.getvalue()) if path.suffix == ".gz" else text.getvalue())


def hdf5(path, **how):
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("X", data=X, **how)


def zarr(path, version):
    import zarr

    zarr.create_array(path, data=X, chunks=(25, 4), zarr_format=version)


def safetensors(path):
    header = json.dumps({"X": {"dtype": "F32", "shape": [60, 4], "data_offsets": [0, X.nbytes]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + X.tobytes())


def vecs(path):
    lengths = np.full((60, 1), 4, dtype="i4")
    path.write_bytes(np.hstack([lengths, X.view("i4")]).tobytes())


def fbin(path):
    path.write_bytes(np.array(X.shape, dtype="i4").tobytes() + X.tobytes())


def saved(path, estimator, rows=X):
    estimator.fit(rows).save(path)


def checkpoint(path, estimator):
    for step in estimator.set_params(callbacks=[shoal.callbacks.Checkpoint(path, overwrite=True)]).iter_fit(
        X
    ):
        if step.iteration == 2:
            break


def read(path):
    with shoal.open(path) as source:
        for block in source.blocks():
            block.sum()
        if source.access == "random":
            source.take([0, len(source) - 1])
        shoal.KMeans(2, init="random", max_iter=2, random_state=0, n_jobs=1).fit(source)


def read_coreset(path):
    coreset = shoal.Coreset.load(path)
    if np.isfinite(coreset.points.sum()):
        shoal.KMeans(2, random_state=0, n_jobs=1).fit(coreset.points, sample_weight=coreset.weights)


def use(path):
    model = shoal.load(path).set_params(n_jobs=1)
    if isinstance(model, shoal.StreamingCoreset):
        model.partial_fit(X).result()
    elif hasattr(model, "partial_fit"):
        model.partial_fit(X)
    else:
        model.predict(X)


def resume(path):
    shoal.resume(path, X, n_jobs=1)


#: For every kind of file: its writer, its suffix and its reader.
KINDS = {
    "npy": (lambda p: np.save(p, X), ".npy", read),
    "fvecs": (vecs, ".fvecs", read),
    "fbin": (fbin, ".fbin", read),
    "safetensors": (safetensors, ".safetensors", read),
    **{
        f"npz, {kind}": (
            lambda p, kind=kind: sp.save_npz(p, SPARSE.asformat(kind), compressed=False),
            ".npz",
            read,
        )
        for kind in ("csr", "csc", "bsr", "coo", "dia")
    },
    "npz, compressed": (lambda p: sp.save_npz(p, SPARSE.tocsc()), ".npz", read),
    "parquet": (parquet, ".parquet", read),
    "parquet, plain": (
        lambda p: parquet(p, vectors=True, use_dictionary=False, compression="none"),
        ".parquet",
        read,
    ),
    "parquet, zstd, pages of version 2": (
        lambda p: parquet(p, compression="zstd", data_page_version="2.0"),
        ".parquet",
        read,
    ),
    "parquet, lists": (
        lambda p: parquet(p, vectors="lists", use_dictionary=False, compression="none"),
        ".parquet",
        read,
    ),
    "arrow": (ipc, ".arrow", read),
    "arrow, lists": (lambda p: ipc(p, vectors="lists"), ".arrow", read),
    "arrow, lists, lz4": (lambda p: ipc(p, "lz4", vectors="lists"), ".arrow", read),
    "csv": (csv, ".csv", read),
    "csv, gzip": (csv, ".csv.gz", read),
    "arrow, zstd": (lambda p: ipc(p, "zstd"), ".arrow", read),
    "arrow stream": (lambda p: ipc(p, stream=True), ".arrow", read),
    "hdf5": (hdf5, ".h5", read),
    "hdf5, chunks": (lambda p: hdf5(p, chunks=(25, 4), compression="gzip"), ".h5", read),
    "zarr 2": (lambda p: zarr(p, 2), ".zarr", read),
    "zarr 3": (lambda p: zarr(p, 3), ".zarr", read),
    "coreset": (lambda p: shoal.lightweight_coreset(X, 20, random_state=0).save(p), ".npz", read_coreset),
    "sparse coreset": (
        lambda p: shoal.lightweight_coreset(SPARSE, 20, random_state=0).save(p),
        ".npz",
        read_coreset,
    ),
    "model": (lambda p: saved(p, shoal.KMeans(3, random_state=0)), ".safetensors", use),
    "mini-batch model": (
        lambda p: saved(p, shoal.MiniBatchKMeans(3, batch_size=20, random_state=0)),
        ".safetensors",
        use,
    ),
    "nested model": (
        lambda p: saved(p, shoal.NestedMiniBatchKMeans(3, batch_size=20, random_state=0)),
        ".safetensors",
        use,
    ),
    "backward Euler model": (
        lambda p: saved(p, shoal.BackwardEulerKMeans(3, batch_size=20, max_iter=5, random_state=0)),
        ".safetensors",
        use,
    ),
    "mixture": (
        lambda p: saved(p, shoal.TruncatedGaussianMixture(4, random_state=0, max_iter=5)),
        ".safetensors",
        use,
    ),
    "factor mixture": (
        lambda p: saved(
            p, shoal.TruncatedGaussianMixture(4, covariance_type="factor", random_state=0, max_iter=5)
        ),
        ".safetensors",
        use,
    ),
    "modes": (lambda p: saved(p, shoal.LaplacianKModes(3, random_state=0)), ".safetensors", use),
    "sparse modes": (
        lambda p: saved(p, shoal.LaplacianKModes(3, random_state=0), SPARSE),
        ".safetensors",
        lambda p: shoal.load(p).predict(SPARSE),
    ),
    "streaming coreset": (
        lambda p: shoal.StreamingCoreset(10, random_state=0).partial_fit(X).save(p),
        ".safetensors",
        use,
    ),
    "checkpoint": (
        lambda p: checkpoint(p, shoal.KMeans(5, random_state=0, tol=0)),
        ".safetensors",
        resume,
    ),
    "mini-batch checkpoint": (
        lambda p: checkpoint(p, shoal.MiniBatchKMeans(5, batch_size=20, random_state=0)),
        ".safetensors",
        resume,
    ),
    "nested checkpoint": (
        lambda p: checkpoint(p, shoal.NestedMiniBatchKMeans(5, batch_size=20, random_state=0)),
        ".safetensors",
        resume,
    ),
    "mixture checkpoint": (
        lambda p: checkpoint(p, shoal.TruncatedGaussianMixture(4, random_state=0)),
        ".safetensors",
        resume,
    ),
}


def harmed(whole, rng):
    """Return a copy of the bytes of a file, damaged in one of several ways."""
    data = bytearray(whole)
    at = int(rng.integers(len(data)))
    # Damage headers and footers more often: readers trust their numbers.
    if rng.random() < 0.5:
        at = int(rng.integers(min(len(data), 300)))
        at = at if rng.random() < 0.5 else len(data) - 1 - at
    how = int(rng.integers(6))
    if how == 0:
        data[at] ^= 1 << int(rng.integers(8))
    elif how == 1:
        data[at] = int(rng.integers(256))
    elif how == 2:
        del data[at:]
    elif how == 3:
        data[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\xff\xff\xff\x7f", b"\0\0\0\x40"])
    elif how == 4:
        data[at:at] = data[at : at + int(rng.integers(1, 20))]
    else:
        del data[at : at + int(rng.integers(1, 20))]
    return bytes(data)


def counted(count):
    """Count to `count`, or as far as the requested seconds allow."""
    seconds = os.environ.get("SHOAL_FUZZ_SECONDS")
    if seconds is None:
        return range(count)
    end = time.monotonic() + float(seconds)
    return itertools.takewhile(lambda _: time.monotonic() < end, itertools.count())


def outcomes(folder, kind, count):
    """Damage files of one kind, read them, and count the outcomes."""
    write, suffix, look = KINDS[kind]
    valid, damaged = folder / f"valid{suffix}", folder / f"damaged{suffix}"
    shutil.rmtree(valid, ignore_errors=True)
    write(valid)
    look(valid)
    files = [valid] if valid.is_file() else sorted(p for p in valid.rglob("*") if p.is_file())
    rng = np.random.default_rng([int(os.environ.get("SHOAL_FUZZ_SEED", "0")), len(kind)])
    came = {}
    for i in counted(count):
        chosen = files[int(rng.integers(len(files)))]
        if valid.is_dir():
            shutil.rmtree(damaged, ignore_errors=True)
            shutil.copytree(valid, damaged)
        target = damaged / chosen.relative_to(valid) if valid.is_dir() else damaged
        target.write_bytes(harmed(chosen.read_bytes(), rng))
        print(f"{kind} {i}", file=sys.stderr, flush=True)
        try:
            look(damaged)
            end = "read"
        except ValueError as error:
            # For an intact file with a NaN or one row the consumer raises an error that names no file.
            intact = ("must be finite, got ", "must be at most the number of rows")
            named = damaged.name in str(error) or any(text in str(error) for text in intact)
            end = "refused" if named else f"names no file: {error}"
        except BaseException:  # noqa: BLE001 - any other error is a finding
            end = traceback.format_exc()
        came[end] = came.get(end, 0) + 1
        if end not in ("read", "refused") and os.environ.get("KEEP") and damaged.is_file():
            shutil.copy(damaged, folder / f"{kind.replace(' ', '_')}-{i}{suffix}")
    return came


def main(folder, count, *kinds):
    """Run the command line of this program."""
    warnings.simplefilter("ignore")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    came = {kind: outcomes(Path(folder), kind, int(count)) for kind in kinds or KINDS}
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(json.dumps({"outcomes": came, "megabytes": grown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
