"""Run damaged command lines in a process of its own: a command could end the process, or take much memory.

``python command_lines.py FOLDER COUNT`` runs valid command lines whose words were replaced, removed, repeated
or misspelled at random: COUNT of them, or as many as fit into ``SHOAL_FUZZ_SECONDS``. It prints the outcomes
as one JSON object. The last line on stderr tells which command is running.
"""

import contextlib
import io
import json
import os
import resource
import shlex
import shutil
import signal
import sys
import traceback
from pathlib import Path

import numpy as np
import shoal
from damage import counted
from shoal import cli
from shoal.cli.errors import FailedError

X = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
BAD = np.where(np.arange(360).reshape(120, 3) == 7, np.nan, X)

LINES = [
    shlex.split(line)
    for line in (
        "fit rows.npy -k 3 --seed 0 -o model.safetensors --labels labels.npy",
        "fit rows.npy -k 3 --method minibatch --set batch_size=20 --max-iter 3 --quiet --json",
        "fit rows.npy -k 3 --method gmm --tol 1e-3 --threads 1 --init random --set n_active=2",
        "fit rows.npy -k 4 --metric cosine --checkpoint run.safetensors --checkpoint-every 0 --resume",
        "fit raw.bin --shape 10,4 --dtype u1 -k 2",
        "predict model.safetensors rows.npy -o labels.npy --distances distances.npy",
        "predict model.safetensors table.parquet --columns a,b,c -o labels.parquet --keep a",
        "predict model.safetensors table.parquet --keep a --partition-by-cluster parts",
        "seed rows.npy -k 3 -o seeds.npy --method afk-mc2 --chain-length 5 --indices indices.npy --seed 1",
        "seed rows.npy -k 3 -o seeds.npy --method k-means|| --oversampling-factor 2 --n-rounds 2",
        "coreset rows.npy -m 20 -o coreset.npz --seed 1 --metric euclidean",
        "knn rows.npy -m 3 -o graph.npz --method exact --recall 0.9",
        "shuffle rows.npy -o shuffled.npy --seed 3 --memory-limit 1MB",
        "select rows.npy --k 2:4 --criterion silhouette --method kmeans --resamples 2 --seed 1",
        "report model.safetensors rows.npy --html report.html --exemplars 2 --outliers 2 --features 2",
        "convert model.safetensors --to faiss --index ivf -o lists.faiss",
        "compare rows.npy -k 3 --methods kmeans,minibatch --held-out 20 --set minibatch.batch_size=20",
        "info rows.npy --json",
        "info . --clean",
    )
]

VALUES = [
    *("", "0", "-1", "1", "3", "7", "120", "121", "1e9", "nan", "inf", "-0.5", "1.5", "99999999999999999999"),
    *("rows.npy", "bad.npy", "none.npy", "table.parquet", "model.safetensors", ".", "no/such/x.npy", "*.npy"),
    *("a", "a,b", "3,4", "3,", ",", "2:4", "4:2", ":", "1KB", "10GB", "-1MB", "kmeans", "gmm", "kmodes"),
    *(
        "nested",
        "cosine",
        "random",
        "auto",
        "k-means++",
        "None",
        "True",
        "[1]",
        "{}",
        "{",
        "n_init=2",
        "tol=",
    ),
    *("batch_size=0", "=", "é", "\udcff", "x" * 300, "x.npy\n", "-", "--", "f8", "u1", "x.csv", "x.npz"),
]

#: What a command may raise; everything else is a mistake in the program.
EXPECTED = (ValueError, OSError, ImportError, MemoryError, FailedError)

#: Seconds after which a command is interrupted: large parameters take long.
LONGEST = 5


def options():
    """All options of all commands."""
    verbs = next(action for action in cli.parser()._actions if action.choices)
    found = {name for verb in verbs.choices.values() for name in verb._option_string_actions}
    return sorted(found - {"-h", "--help"})


def damaged(line, rng, names):
    """Return a copy of a command line with one or two changes."""
    line = list(line)
    word = lambda: str(rng.choice(VALUES)) if rng.random() < 0.7 else str(rng.choice(names))  # noqa: E731
    for _ in range(1 + int(rng.integers(2))):
        # The command itself is damaged less often.
        at = int(rng.integers(rng.random() < 0.9, len(line) + 1))
        how = int(rng.integers(7))
        if how == 0 or at == len(line):
            line[at:at] = [str(rng.choice(names)), word()]
        elif how in (1, 2):
            line[at] = word()
        elif how == 3:
            del line[at]
        elif how == 4:
            line[at:at] = line[at : at + 2]
        elif how == 5 and line[at]:
            place = int(rng.integers(len(line[at])))
            line[at] = line[at][:place] + line[at][place + 1 :]
        else:
            line[at] = f"{rng.choice(names)}={word()}"
    return line


def files():
    """Write the files that the commands read, and return their names and bytes."""
    import pyarrow as pa
    from pyarrow import parquet

    np.save("rows.npy", X)
    np.save("bad.npy", BAD)
    Path("raw.bin").write_bytes(bytes(range(40)))
    parquet.write_table(pa.table({name: X[:, j] for j, name in enumerate("abc")}), "table.parquet")
    shoal.KMeans(3, random_state=0).fit(X).save("model.safetensors")
    return {path: path.read_bytes() for path in Path().iterdir()}


def tidy(inputs):
    """Remove what a command has written, and restore what it has replaced."""
    for path in Path().iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path not in inputs:
            path.unlink()
    for path, data in inputs.items():
        path.write_bytes(data)


def outcome(line, seconds=LONGEST):
    """Run a command, and describe how it ended. It is interrupted after `seconds`, if not 0."""
    out, err = io.StringIO(), io.StringIO()
    signal.alarm(seconds)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = cli.main(line)
    except SystemExit as stop:
        status = stop.code
    except EXPECTED:
        return "refused"
    except KeyboardInterrupt:
        return "interrupted"
    except BaseException:  # noqa: BLE001 - any other error is a finding
        return f"{shlex.join(line)}: {traceback.format_exc()}"
    finally:
        signal.alarm(0)
    if status == 0:
        return "done"
    last = (err.getvalue().splitlines() or [""])[-1]
    if status == 130:
        return "interrupted"
    return (
        "refused" if status in (1, 2) and last.startswith("shoal") else f"{shlex.join(line)}: {status} {last}"
    )


def interrupt(*_):
    """End a long command as Ctrl-C does."""
    raise KeyboardInterrupt


def main(folder, count):
    """Run the command line of this program."""
    os.environ["SHOAL_TRACEBACK"] = "1"
    os.chdir(folder)
    signal.signal(signal.SIGALRM, interrupt)
    sys.stdin = io.TextIOWrapper(io.BytesIO())
    inputs = files()
    for line in LINES:
        assert outcome(line, 0) == "done", line
        tidy(inputs)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng, names, came = np.random.default_rng(int(os.environ.get("SHOAL_FUZZ_SEED", "0"))), options(), {}
    for i in counted(int(count)):
        line = damaged(LINES[int(rng.integers(len(LINES)))], rng, names)
        print(i, ascii(line), file=sys.stderr, flush=True)
        end = outcome(line)
        came[end] = came.get(end, 0) + 1
        tidy(inputs)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024
    print(json.dumps({"outcomes": came, "megabytes": grown}))


if __name__ == "__main__":
    main(*sys.argv[1:])
