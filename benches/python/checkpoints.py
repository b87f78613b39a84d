"""The cost of checkpoints: the time of a fit with a checkpoint every few seconds and without.

Fits from the same start are interleaved, with and without checkpoints. The share is the time of writing,
including the flush to disk, divided by the time of the whole fit. The ratio of whole fits is noisier.

    python benches/python/checkpoints.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import _common as common
import numpy as np

COLUMNS = {
    "method": "",
    "n": "d",
    "d": "d",
    "k": "d",
    "every": "g",
    "s": ".2f",
    "written": "d",
    "MB": ".1f",
    "share": ".2%",
    "share high": ".2%",
    "with/without": ".3f",
    "with/without low": ".3f",
    "with/without high": ".3f",
}


def estimator(method: str, k: int, seconds: float, callbacks: list[Any]) -> Any:
    """Choose a fit that takes about the given seconds."""
    import shoal

    kept = [*callbacks, shoal.callbacks.Deadline(seconds)]
    if method == "kmeans":
        return shoal.KMeans(k, init="random", n_init=1, max_iter=10**6, tol=0, random_state=0, callbacks=kept)
    if method == "minibatch":
        params = {"max_iter": 10**6, "max_no_improvement": None, "batch_size": 10_000}
        return shoal.MiniBatchKMeans(k, init="random", random_state=0, callbacks=kept, **params)
    return shoal.NestedMiniBatchKMeans(k, random_state=0, callbacks=kept)


def main() -> None:
    parser = common.parser(__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=32)
    parser.add_argument("--clusters", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=30.0, help="of a fit, about (default 30)")
    parser.add_argument(
        "--every", type=float, default=5.0, help="seconds between two checkpoints (default 5)"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--methods", nargs="+", default=["kmeans", "minibatch", "nested"])
    parser.add_argument("--folder", help="where checkpoints are written (default: a temporary folder)")
    common.add_options(parser, quick="50,000 rows, 1 round, 2 s, no result file")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.rounds, args.seconds, args.every = 50_000, 1, 2.0, 0.5
    from shoal.callbacks import Checkpoint

    class Timed(Checkpoint):
        spent, written = 0.0, 0

        def _write(self, estimator: Any) -> None:
            begun = time.perf_counter()
            super()._write(estimator)
            self.spent += time.perf_counter() - begun
            self.written += 1

    head = common.announced(["numpy", "shoal"])
    generator = np.random.default_rng(0)
    centers = generator.normal(size=(args.clusters, args.columns)).astype(np.float32)
    X = generator.normal(size=(args.rows, args.columns)).astype(np.float32)
    X += centers[generator.integers(0, args.clusters, size=args.rows)]
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = Path(folder, "run.safetensors")
        for method in args.methods:
            seconds, shares, ratios, written = [], [], [], []
            for _ in range(args.rounds):
                keeper = Timed(path, every=args.every)
                begun = time.perf_counter()
                model = estimator(method, args.clusters, args.seconds, [keeper]).fit(X)
                kept = time.perf_counter() - begun
                steps = len(model.history_)
                begun = time.perf_counter()
                # The same number of steps as the first fit.
                plain = estimator(method, args.clusters, 1e9, [lambda _, step, n=steps: step.iteration >= n])
                plain.fit(X)
                seconds.append(kept)
                ratios.append(kept / (time.perf_counter() - begun))
                shares.append(keeper.spent / kept)
                written.append(keeper.written)
            line = {"method": method, "n": args.rows, "d": args.columns, "k": args.clusters}
            line |= {"every": args.every, "s": common.median(seconds), "written": max(written)}
            line |= {"MB": path.stat().st_size / 1e6, "share": common.median(shares)}
            line |= {"share high": max(shares), "with/without": common.median(ratios)}
            line |= {"with/without low": min(ratios), "with/without high": max(ratios)}
            rows.append(line)
            print(common.table([line], COLUMNS), flush=True)
    for line in rows:
        holds = "holds" if line["share"] <= 0.02 else "does not hold"
        head[f"target, {line['method']}"] = f"{holds}: {line['share']:.2%} of the run (wanted: at most 2%)"
        print(head[f"target, {line['method']}"])
    common.keep("checkpoints", head, rows, args.csv, args.quick)


if __name__ == "__main__":
    main()
