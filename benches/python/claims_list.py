"""The measured figures of the pages, their pictures, and the figures that are not measurements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from statistics import mean, median

from tables import Claims, Formula, Picture, Results, Table

#: Reduces a column to one number.
Reduce = Callable[[Iterable[float]], float]
CORESET, FIVE = "coreset of 100 k rows, KMeans", "KMeans, n_init=5"
THREADS = {1: "one thread", 2: "two threads"}
SIFT = {"data": "sift_bsds_trainval", "k": 1024}


def files(t: Results, column: str) -> list[float]:
    """Return a column of plain sweeps over a large file, and of the default."""
    return [t("files").where(algorithm=name).one(column) for name in ("lloyd", "auto")]


def processor(t: Results) -> list[str]:
    """Name the machine of a page."""
    return [t.processor]


def of(table: str, which: Mapping[str, object], *columns: tuple[Reduce, str]) -> Formula:
    """Reduce columns of the rows with some values."""
    return lambda t: [reduce(t(table).where(**which)[column]) for reduce, column in columns]


def method(variant: str, *columns: tuple[Reduce, str]) -> Formula:
    """Reduce columns of a method in the guide, over the sets."""
    return of("guide-methods", {"part": "methods", "variant": variant}, *columns)


def drop(reduce: Reduce) -> Reduce:
    """Reduce the negative values: by how much something is lower."""
    return lambda values: reduce(-value for value in values)


def lower(values: Iterable[float]) -> float:
    """Count the values below 0."""
    return sum(value < 0 for value in values)


def count(values: Iterable[float]) -> float:
    """Count the values."""
    return len(list(values))


def against_peers(t: Results) -> list[float | str]:
    """Name the threads and the machine of the comparison, and the largest difference of final inertias."""
    fits = t("peers-auto").where(k=1024)
    (threads,) = {*t("peers")["threads"], *fits["threads"]}
    return [THREADS[int(threads)], t.processor, max(map(abs, fits.where(start="given")["objective +"]))]


def a_billion(t: Results) -> list[float | str]:
    """Tell the fit of a billion rows."""
    row = t("billion").where(piece="coreset")
    shape = [row.one(column) for column in ("n", "d", "k")]
    return [*shape, row.one("s") / 60, t.processor, row.one("kills")]


def peaks_of_ranges(t: Results) -> list[float]:
    """Tell the memory of a worker that merges a range of clusters, for each type of rows."""
    rows = t("distributed-ranges").where(kind="measured", way="ranges", workers=10)
    return [rows.where(dtype=dtype).one("in units") for dtype in ("float32", "float64")]


def large_ranges(t: Results) -> list[float]:
    """Compare a large sweep in ranges of clusters with one whose results merge in a tree."""
    both = [t("distributed-ranges").where(kind="model", way=way) for way in ("ranges", "tree")]
    received, most, seconds = (
        [row.one(column) for row in both] for column in ("driver in", "worker in", "exchange s")
    )
    centers = 4e-6 * both[0].one("k") * both[0].one("d")
    return [*received, centers, *(megabytes / 1e3 for megabytes in most), *seconds]


def against_constrained(t: Results) -> list[float]:
    """Compare with k-means-constrained."""
    some = t("balanced").where(part="equal")
    lower = [-change / 100 for change in some["to peer, %"]]
    return [min(some["faster"]), max(some["faster"]), min(lower), max(lower)]


#: Kinds of sets with groups.
POINTS, MADE, REAL = ("points",), ("made", "made, held out"), ("real", "real, held out")


def counted(table: Table, kinds: Iterable[str], name: str, *columns: str) -> list[float]:
    """Add up counts of a criterion over kinds of sets."""
    return [sum(table.where(sets=kind, criterion=name).one(column) for kind in kinds) for column in columns]


def criterion(name: str) -> Formula:
    """Count the sets on which a criterion is right."""
    groups = (POINTS, ("points, k-means ARI >= 0.8",), MADE, REAL)
    return lambda t: [
        count for kinds in groups for count in counted(t("choosing-k"), kinds, name, "right", "within 10%")
    ]


def doubted(kinds: Iterable[str]) -> Formula:
    """Count the sets without and with doubts, and those of them on which the choice is right."""
    return lambda t: [
        count
        for name in ("best, no doubts", "best, doubts")
        for count in counted(t("choosing-k"), kinds, name, "number", "right", "within 10%")
    ]


def on_machines(t: Results) -> list[float]:
    """Compare sweeps and seedings on a Dask cluster with other libraries."""
    sweep = t("distributed").where(library="shoal.dask")
    seeding = t("distributed-seeding-peers")
    libraries = (("shoal.dask", "k-means||"), ("dask-ml", "k-means||"), ("spark", "k-means||"))
    seconds = [seeding.where(library=name, seeding=init).one("seeding s") for name, init in libraries]
    default = seeding.where(library="shoal.dask", seeding="k-means++").one("seeding s")
    return [*(sweep.one(column) for column in ("against local", "low", "high")), *seconds, default]


def in_more_partitions(t: Results) -> list[float]:
    """Compare the CPU time of sweeps over the same rows in many partitions and in few."""
    some = t("distributed-partitions").where(partitions=256)
    return [some.where(**{"placed by": place}).one("cpu against first") for place in ("fit", "caller")]


def on_shapes(t: Results) -> list[float]:
    """Count the sets of shapes, and average the NMI of some methods."""
    shapes = t("shapes").where(kind="shapes")
    methods = ("SLK", "k-means", "spectral", "spectral, same graph")
    found = {row["data"] for row in shapes.rows}
    return [len(found), *(mean(shapes.where(what=what)["nmi"]) for what in methods)]


def recalls(t: Results) -> list[float]:
    """Return the recall of inverted lists."""
    return [t("hierarchical-ivf").where(fit=fit).one("recall") for fit in ("hierarchical", "flat", "faiss")]


def against_flat(t: Results) -> list[float]:
    """Compare sweeps over all 2,000 centers with the defaults of hierarchical k-means."""
    flat, default = (t("hierarchical-curve").where(k=2000, fit=fit) for fit in ("flat", "default"))
    return [flat.one("seconds") / default.one("seconds"), 1 - flat.one("inertia") / default.one("inertia")]


def grown(t: Results) -> list[float]:
    """Compare the seconds of 100,000 and 1,000 clusters."""
    most, least = (t("hierarchical-growth").where(k=k).one("seconds") for k in (100_000, 1_000))
    return [most / least]


def of_memory(t: Results, *columns: str) -> list[float]:
    """Return sizes of the fit of a path with one thread."""
    return [t("memory").where(what="fit, path", threads=1).one(column) for column in columns]


def within_cells(data: str) -> Formula:
    """Return the recall of a search within cells at three distances."""
    way = "within cells (SemDeDup)"
    return lambda t: [
        t("duplicates").where(data=data, way=way, threshold=threshold).one("recall")
        for threshold in (0.02, 0.05, 0.1)
    ]


def sampled(way: str) -> Formula:
    """Return the divergence of samples of far groups and of near ones."""
    return lambda t: [t("sampling").where(data=data, way=way).one("KL") for data in ("sep 2", "sep 1")]


def unchanged(t: Results) -> list[float]:
    """Return the largest difference of the recall without drift."""
    some = t("partitions").where(part="recall", case="no drift")
    return [max(abs(value) for share in (1, 3, 5) for value in some[f"difference, {share}%"])]


WHOLE = [(reduce, column) for column in ("to diag", "s to diag") for reduce in (min, max)]
EQUAL = {"part": "limits", "limits": "size_min=1.0 size_max=1.0"}
LOOSE = {"part": "limits", "limits": "size_max=1.25"}
README: list[tuple[str, Formula]] = [
    (
        (
            "interleaved rounds, {:s} of an {:s}. All libraries but superkmeans start from the same centers. "
            "Left: with the default algorithm of shoal; from the same centers, inertias differ by at most "
            "{:.2%}"
        ),
        against_peers,
    ),
    (
        (
            "{:,.0f} rows of {:.0f} bytes: a coreset, {:,.0f} clusters of it and their exact energy in "
            "{:.1f} minutes on two threads of an {:s}. The process was killed {:.0f} times"
        ),
        a_billion,
    ),
    (
        "`n_init=5` lowers the inertia by {:.1%} in the median of {:.0f} data sets",
        method(FIVE, (drop(median), "inertia"), (count, "inertia")),
    ),
    (
        "only twice: {:.1%} more inertia in {:.2f} times the time, with 100 rows per cluster (medians)",
        method(CORESET, (median, "inertia"), (median, "time")),
    ),
    (
        "with equal sizes, a fit takes {:.1f} to {:.0f} times as long",
        of("balanced-limits", EQUAL, (min, "times"), (max, "times")),
    ),
]
CHOOSING: list[tuple[str, Formula]] = [
    ("processor time of one thread of an {:s} (`benches", processor),
    (
        "lower the inertia on {:.0f} of {:.0f} sets, by {:.1%} in the median and by up to {:.0%} with",
        method(
            FIVE, (lower, "inertia"), (count, "inertia"), (drop(median), "inertia"), (drop(max), "inertia")
        ),
    ),
    ("rare groups, in {:.1f} times the time. No other", method(FIVE, (median, "time"))),
    (
        "same kind of optimum in {:.1f} to {:.1f} times the time",
        method("NestedMiniBatchKMeans", (min, "time"), (max, "time")),
    ),
    (
        "It ends between {:.1%} below and {:.1%} above `KMeans`. Its",
        method("NestedMiniBatchKMeans", (drop(max), "inertia"), (max, "inertia")),
    ),
    (
        "and on complete sets in up to {:.1f} times",
        of("guide-large", {"variant": "NestedMiniBatchKMeans"}, (max, "time")),
    ),
    (
        "ends between {:.1%} below and {:.1%} above `KMeans`, after {:.1f} times the time",
        method("VarianceReducedKMeans", (drop(max), "inertia"), (max, "inertia"), (median, "time")),
    ),
    (
        (
            "It ends {:.1%} below `KMeans` in the median, and between {:.1%} below and {:.1%} above, "
            "in {:.1f} times the time"
        ),
        method(
            "BackwardEulerKMeans",
            (drop(median), "inertia"),
            (drop(max), "inertia"),
            (max, "inertia"),
            (median, "time"),
        ),
    ),
    (
        "it takes {:.2f} times the time. Its inertia is {:.1%} higher in the median and at most {:.1%};",
        method(CORESET, (median, "time"), (median, "inertia"), (max, "inertia")),
    ),
    (
        "takes {:.2f} to {:.2f} times the time of `KMeans`, for {:.1%} to {:.1%} more inertia",
        of(
            "guide-large",
            {"variant": CORESET},
            (min, "time"),
            (max, "time"),
            (min, "inertia"),
            (max, "inertia"),
        ),
    ),
    (
        (
            "on {:.0f} sets in two to four dimensions, its mean NMI is {:.2f}, that of `KMeans` {:.2f}, and "
            "that of spectral clustering in scikit-learn {:.2f}, or {:.2f} on the graph of `LaplacianKModes`"
        ),
        on_shapes,
    ),
    (
        "its inertia stays within {:.1%} above",
        of("guide-options", {"variant": "init=k-means||"}, (max, "inertia")),
    ),
    (
        "{:.1%} more inertia in the median, at most {:.1%} |",
        of("guide-coresets", {"variant": "300 rows a cluster"}, (median, "inertia"), (max, "inertia")),
    ),
]
CLAIMS: Claims = {
    "README.md": README,
    "docs/index.md": README[:2],
    "docs/choosing.md": CHOOSING,
    "docs/inside/benchmarks.md": [
        (
            "On SIFT descriptors, a fit takes {:.0f} MB beyond the rows, and one of shoal {:.0f} MB",
            lambda t: [t("peers").where(**SIFT, peer=name).one("MB") for name in ("faiss", "shoal")],
        ),
    ],
    "docs/large.md": [
        (
            (
                "In a file of {:.0f} MB with {:.0f} MB of memory, {:.0f} sweeps and the final labels read "
                '{:.1f} files with `algorithm="lloyd"`, and {:.1f} with the defaults. The disk read '
                "{:.1f} GB per second, and two cores took {:.0f} and {:.0f} seconds"
            ),
            lambda t: [
                *(t("files").where(algorithm="lloyd").one(c) for c in ("file MB", "memory MB", "sweeps")),
                *files(t, "files read"),
                files(t, "files read")[0]
                * t("files").where(algorithm="lloyd").one("file MB")
                / 1000
                / files(t, "seconds")[0],
                *files(t, "seconds"),
            ],
        ),
    ],
    "docs/memory.md": [
        (
            "over a file of {:.0f} MB takes {:.0f} MB of memory, on one thread of an {:s}: 2,000,000 rows",
            lambda t: [*of_memory(t, "file MB", "MB"), t.processor],
        ),
    ],
    "docs/balanced.md": [
        ("processor time of one thread of an {:s}, medians", processor),
        (
            "With equal sizes, a fit takes {:.1f} to {:.0f} times",
            of("balanced-limits", EQUAL, (min, "times"), (max, "times")),
        ),
        (
            "1.25 times the mean, {:.1f} to {:.0f} times",
            of("balanced-limits", LOOSE, (min, "times"), (max, "times")),
        ),
        ("The gap is at most {:.4f}%", of("balanced-limits", {"part": "limits"}, (max, "gap, %"))),
        (
            "With weights, the gap is {:.2f}% in the median of the same fits, and {:.1f}% at most",
            of("balanced-weighted", {"part": "weighted"}, (median, "gap, %"), (max, "gap, %")),
        ),
        (
            (
                "0.9.1 takes {:.0f} to {:.0f} times as long for ten clusters of equal size in 1,000 to "
                "23,000 rows of 50 columns, and its inertia is {:.1%} to {:.1%} higher"
            ),
            against_constrained,
        ),
    ],
    "docs/densities.md": [
        ("thread of an {:s}; integers", processor),
        (
            "The gain is {:.1f} to {:.0f} nats per row. A fit takes {:.1f} to {:.1f} times the time",
            of(
                "factor-mixture",
                {"covariance": "factor", "factors": 5},
                *((reduce, column) for column in ("to diag", "s to diag") for reduce in (min, max)),
            ),
        ),
        *(
            (sentence, of("whole-covariances", {"covariance": kind}, *WHOLE))
            for kind, sentence in (
                (
                    "full",
                    (
                        '`"full"` gains {:.1f} to {:.1f} nats per held-out row over `"diag"`, in {:.1f} to '
                        "{:.1f} times its time"
                    ),
                ),
                ("tied", '`"tied"` gains {:.1f} to {:.1f} nats, in {:.1f} to {:.1f}'),
            )
        ),
    ],
    "docs/curation.md": [
        ("| pictures of digits (MNIST) | {:.2f} | {:.2f} | {:.2f} |", within_cells("mnist_70k")),
        ("| deep features of pictures | {:.2f} | {:.2f} | {:.2f} |", within_cells("resnet18_cifar_16k")),
        ("| words | {:.2f} | {:.2f} | {:.2f} |", within_cells("wordvec_ppmi_svd100")),
        ("| SIFT descriptors | {:.2f} | {:.2f} | {:.2f} |", within_cells("sift_bsds_trainval")),
        ("| uniform | {:.2f} | {:.2f} |", sampled("uniform")),
        ("| balanced over 1,000 clusters | {:.2f} | {:.2f} |", sampled("many clusters")),
        ("| balanced over 100 clusters | {:.2f} | {:.2f} |", sampled("few clusters")),
        ("| three levels | {:.2f} | {:.2f} |", sampled("levels")),
        ("| three levels, 3 rounds of resampling | {:.2f} | {:.2f} |", sampled("levels, 3 rounds")),
        ("| three levels, 10 rounds of resampling | {:.2f} | {:.2f} |", sampled("levels, 10 rounds")),
        ("5% of the rows is within {:.1f} points", unchanged),
        (
            "of these scans is {:.1f}, {:.1f} and {:.1f} points below",
            of(
                "partitions",
                {"part": "recall", "case": "drift"},
                *((drop(mean), f"difference, {share}%") for share in (1, 3, 5)),
            ),
        ),
        (
            "An update takes {:.0f}% of the processor time of a new fit on average, and {:.0f}% at most",
            of(
                "partitions",
                {"part": "cost"},
                (mean, "update, % of a new fit"),
                (max, "update, % of a new fit"),
            ),
        ),
        (
            "It fetches {:.0f} stored rows per new row",
            of("partitions", {"part": "recall"}, (mean, "fetched per new row")),
        ),
        (
            "the [measurement](#recall-and-cost) fetches {:.0f} stored rows per new row",
            of("partitions", {"part": "cost"}, (max, "fetched per new row")),
        ),
    ],
    "docs/many-clusters.md": [
        ("two threads of an {:s}, the fastest", processor),
        (
            (
                "lists of a query have {:.1%} of its ten nearest rows. The centers are those of "
                "`HierarchicalKMeans`; with those of `KMeans` it is {:.1%}, and with those of faiss {:.1%} ("
            ),
            recalls,
        ),
        (
            (
                '`KMeans(init="random", max_iter=25)` takes {:.2f} times as long as `HierarchicalKMeans` '
                "with its defaults, and its inertia is {:.2%} lower"
            ),
            against_flat,
        ),
        ("A fit with 100,000 clusters takes {:.0f} times as long as one with 1,000,", grown),
    ],
    "docs/many-machines.md": [
        ("two processes or threads of an {:s}; the median", processor),
        (
            (
                'takes {:.1f} ({:.1f} to {:.1f}) times as long as one of `KMeans(algorithm="lloyd")` in one '
                "process. A seeding by k-means|| takes {:.1f} s, that of dask-ml {:.0f} s and that of Spark "
                "{:.0f} s; k-means++ on a coreset, the default of `shoal.dask.KMeans`, takes {:.2f} s."
            ),
            on_machines,
        ),
        (
            (
                "The measured peak is {:.0f} times `8 k d / r` for `float32` rows, and {:.0f} times for "
                "`float64` rows"
            ),
            peaks_of_ranges,
        ),
        (
            (
                "the client receives {:.0f} MB instead of {:.0f} MB, beside {:.0f} MB of centers every 10 "
                "sweeps, and the busiest worker {:.1f} GB instead of {:.1f} GB. At 10 Gbit/s per machine, "
                "the slowest exchange takes {:.1f} s instead of {:.1f} s."
            ),
            large_ranges,
        ),
    ],
    "docs/dask.md": [
        ("and two processes of an {:s}, 256", processor),
        (
            (
                "256 partitions take {:.1f} times the CPU time of 4, and {:.1f} times if Dask placed them "
                "before the fit."
            ),
            in_more_partitions,
        ),
    ],
    "docs/distributed.md": [
        ("`benches/python/distributed_seeding.py`, an {:s}), the", processor),
        (
            'with `"k-means++"` is {:.3f} to {:.3f} times',
            of("distributed-seeding", {"init": "k-means++"}, (min, "final"), (max, "final")),
        ),
    ],
    "docs/choosing-k.md": [
        *(
            (f"| {title} |" + " {:.0f} ({:.0f}) |" * 4, criterion(name))
            for title, name in (
                ("auto", "best"),
                ("silhouette", "silhouette"),
                ("Calinski-Harabasz", "calinski_harabasz"),
                ("Davies-Bouldin", "davies_bouldin"),
                ("stability", "stability"),
                ("elbow", "elbow"),
            )
        ),
        *(
            (f"| {title} |" + " {:.0f} | {:.0f} ({:.0f}) |" * 2, doubted(kinds))
            for title, kinds in (
                ("points", POINTS),
                ("made groups", MADE),
                ("real sets", REAL),
                ("rows without groups", ("noise",)),
            )
        ),
    ],
}

PICTURES = [
    Picture("peers.svg", ("README.md", "docs/index.md"), ("peers-auto", "peers"), "peers"),
    Picture(
        "billion.png", ("README.md", "docs/index.md", "docs/inside/benchmarks.md"), ("billion",), "billion"
    ),
    Picture("choosing-methods.png", ("docs/choosing.md",), ("guide-methods",), "methods"),
    Picture("choosing-options.png", ("docs/choosing.md",), ("guide-options", "guide-coresets"), "options"),
    Picture("balanced-cost.png", ("docs/balanced.md",), ("balanced-limits",), "balanced"),
    Picture("memory.png", ("docs/memory.md",), ("memory",), "memory"),
    Picture("densities.png", ("docs/densities.md",), ("factor-mixture",), "densities"),
    Picture(
        "many-machines.png", ("docs/many-machines.md",), ("distributed", "distributed-model"), "machines"
    ),
    Picture("many-clusters.png", ("docs/many-clusters.md",), ("hierarchical-curve",), "clusters"),
    Picture("many-clusters-growth.png", ("docs/many-clusters.md",), ("hierarchical-growth",), "growth"),
]

#: Figures that are not measurements: the reason, the page and the words around the figure.
EXEMPT: dict[str, dict[str, tuple[str, ...]]] = {
    "a limit or a default": {
        "docs/balanced.md": (
            "gap is above 0.1%",
            "at most 1.25 times",
            "more than 5% of the rows",
            "1.5 times the way",
            "four times as many",
        ),
        "docs/cli.md": ("every 60 seconds", "up to 1 GB"),
        "docs/dask.md": ("256 MB or more",),
        "docs/many-machines.md": ("256 MB or more",),
        "docs/curation.md": ("exceeds 1.1 times",),
        "docs/distributed.md": ("up to 1 MB together (64 MB in Spark)", "about 30,000 times as far"),
        "docs/memory.md": ("1 GB",),
        "docs/ray.md": ("Up to 1 MB",),
        "docs/spark.md": ("Up to 64 MB",),
        "docs/inside/memory-model.md": (
            "about 1.5 times the rows",
            "32 MB",
            "2 MB",
            "16 MB",
            "100 MB",
            "64 MB",
        ),
        "python/shoal/cli/compare.py": ("the last 10% of",),
        "python/shoal/cli/curve.py": ("whenever 10% more",),
        "python/shoal/config.py": ("budget of 1 GB",),
        "python/shoal/convert/onnx.py": ("more than 2 GB",),
        "python/shoal/dask.py": ("(1 GB without a limit)", "256 MB or more"),
        "python/shoal/data.py": ("else 1 GB", "100 times its size"),
        "python/shoal/balanced.py": ("more than 5% of the rows", "1.5 times the way"),
        "python/shoal/formats/npz.py": ("100 times its own size",),
        "python/shoal/hierarchical.py": ("exceeds 1.1 times",),
        "python/shoal/neighbors.py": ("more than 20% of the cells (5% with",),
        "python/shoal/variance_reduced.py": ("more than 1% is undone", "16 MB for drawn rows"),
        "python/shoal/metrics.py": ("about 130 MB more",),
        "python/shoal/reports.py": ("about 100 MB for",),
        "python/shoal/spark.py": ("more than 64 MB", "8 kB"),
        "python/shoal/coreset.py": ("about 64 MB",),
        "python/shoal/mixture.py": ("at most 256 MB",),
        "python/shoal/writing.py": ("at least 1 MB",),
        "src/python/enter.rs": ("about 20 times a second",),
    },
    "a definition": {
        "docs/curation.md": ("1, 3 and 5% of the rows",),
        "docs/choosing-k.md": ("off by at most 10%",),
        "python/shoal/selection.py": ("off by at most 10%", "difference of 10%"),
        "python/shoal/kmodes.py": ("0.8 times the weight",),
        "python/shoal/kmodes_path.py": ("2 and 3 times the weight",),
    },
    "an example, or computed from its numbers": {
        "docs/balanced.md": ("at 2.3 times the inertia",),
        "docs/many-machines.md": (
            "2 TFLOP/s",
            "77 seconds",
            "(123 MB each)",
            "or 100 GB",
        ),
        "docs/inside/benchmarks.md": ("a file of 12 GB",),
        "docs/inside/contracts.md": ("far more than 1% of a sweep",),
        "python/shoal/_mixture/model.py": ("8 GB for 1,000,000 rows",),
    },
}
