"""The methods of ``--method``, and their parameters from options and ``--set``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from shoal._checks.words import suggest

from .arguments import parse_setting
from .errors import UsageError

#: Parameters that ``--set`` does not accept. ``--init FILE.npy`` gives initial centers and means. A
#: command makes one fit, which has no fit before it.
NOT_SET = ("callbacks", "verbose", "means_init", "weights_init", "precisions_init", "warm_start")


@dataclass(frozen=True)
class Method:
    """An estimator of shoal with its name on the command line.

    `fixed` are parameters that the method name implies, `called` the names of parameters that differ from
    those of the options.
    """

    estimator: str
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    called: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_available(self) -> bool:
        """Whether `shoal` exports the class; imports nothing else."""
        import shoal

        return self.estimator in shoal.__all__

    def kind(self) -> Any:
        """Import the estimator class."""
        import shoal

        return getattr(shoal, self.estimator)


#: All methods by name.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "kmeans": Method("KMeans"),
        "minibatch": Method("MiniBatchKMeans"),
        "nested": Method("NestedMiniBatchKMeans"),
        "vrkm": Method("VarianceReducedKMeans", MappingProxyType({"variant": "vrkm"})),
        "vrkm++": Method("VarianceReducedKMeans", MappingProxyType({"variant": "vrkm++"})),
        "hierarchical": Method("HierarchicalKMeans"),
        "sbe": Method("BackwardEulerKMeans"),
        "breathing": Method("BreathingKMeans"),
        "balanced": Method("BalancedKMeans"),
        "gmm": Method("TruncatedGaussianMixture", called=MappingProxyType({"n_clusters": "n_components"})),
        "kmodes": Method("LaplacianKModes"),
    }
)
#: Methods whose models have centers, so that held-out rows have an energy.
CENTERS = (
    "kmeans",
    "minibatch",
    "nested",
    "vrkm",
    "vrkm++",
    "hierarchical",
    "sbe",
    "breathing",
    "balanced",
    "gmm",
)


def available(among: Iterable[str] = METHODS) -> tuple[str, ...]:
    """List the methods that this version has."""
    return tuple(name for name in among if METHODS[name].is_available)


def parse_method(text: str, among: Iterable[str] = METHODS) -> str:
    """Parse the name of a method."""
    known = available(among)
    if text in known:
        return text
    if text in METHODS:
        raise argparse.ArgumentTypeError(f"{text} is not in this version, which has: {', '.join(known)}")
    raise argparse.ArgumentTypeError(f"must be one of {', '.join(known)}, got {text!r}{suggest(text, known)}")


def parse_methods(text: str) -> tuple[str, ...]:
    """Parse a comma-separated list of methods to compare."""
    names = tuple(part.strip() for part in text.split(","))
    known = available(CENTERS)
    for name in names:
        if name in METHODS and name not in CENTERS:
            raise argparse.ArgumentTypeError(
                f"must be some of {', '.join(known)}, got {name}, which has no energy to compare"
            )
        parse_method(name, CENTERS)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise argparse.ArgumentTypeError(f"{', '.join(twice)} is given twice")
    return names


def parse_addressed_setting(text: str) -> tuple[str | None, str, Any]:
    """Parse ``[METHOD.]NAME=VALUE``; the method is None if it is left out."""
    name, value = parse_setting(text)
    method, dot, rest = name.rpartition(".")
    # `parse_setting` replaces hyphens by underscores, and no method name has hyphens.
    return (parse_method(method), rest, value) if dot else (None, name, value)


def settable(method: str) -> list[str]:
    """List the parameters of a method that a user can set."""
    chosen = METHODS[method]
    return sorted(set(chosen.kind()().get_params()) - set(NOT_SET) - set(chosen.fixed))


def parameters(
    method: str, options: Mapping[str, Any], settings: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """Combine options, by parameter name, and the settings of ``--set`` to the parameters of an estimator.

    An option that was not given is None. Raises `UsageError` if the method has no such parameter, or if a
    parameter is given twice.
    """
    allowed = settable(method)
    called = METHODS[method].called
    params = {called.get(name, name): value for name, value in options.items() if value is not None}
    for name in params:
        if name not in allowed:
            raise UsageError(f"--{name.replace('_', '-')}: {method} has no parameter {name!r}")
    for name, value in settings:
        if name not in allowed:
            raise UsageError(
                f"--set: {method} has no parameter {name!r}, only {', '.join(allowed)}"
                f"{suggest(name, allowed)}"
            )
        if name in params:
            raise UsageError(f"--set: {name} is given twice")
        params[name] = value
    params.setdefault("random_state", 0)
    return {**params, **METHODS[method].fixed}


def centers_file(params: Mapping[str, Any]) -> str | None:
    """Return the file of initial centers; None if they do not come from a file."""
    init = params.get("init")
    return init if isinstance(init, str) and init.endswith(".npy") else None


def make_estimator(
    method: str, params: Mapping[str, Any], *, progress: str | None, watchers: list[Any]
) -> Any:
    """Create the estimator of a method, with a progress bar that is labeled `progress`; None for no bar."""
    import numpy as np

    import shoal

    params = dict(params)
    file = centers_file(params)
    if file is not None:
        with shoal.open(file) as source:
            params["init"] = np.asarray(source)
        if "n_init" in settable(method):
            params.setdefault("n_init", 1)
    bar = [] if progress is None else [shoal.callbacks.ProgressBar(progress)]
    return METHODS[method].kind()(**params, callbacks=[*bar, *watchers])
