"""The methods by their names, and how options become parameters of their estimators."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from .arguments import setting_of
from .errors import UsageError

#: Parameters that belong to the program, not to its user; first means come from the file of ``--init``.
NOT_SET = ("callbacks", "verbose", "means_init")


@dataclass(frozen=True)
class Method:
    """An estimator of shoal, and the parameters that its name on the command line stands for."""

    estimator: str
    fixed: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    #: What this estimator calls the parameters that options stand for, where it is another name.
    called: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_there(self) -> bool:
        """Whether this version has it; nothing is imported to find out."""
        import shoal

        return self.estimator in shoal.__all__

    def kind(self) -> Any:
        """Give the estimator's class."""
        import shoal

        return getattr(shoal, self.estimator)


#: All that there are and will be; a class that `shoal` exports is there.
METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "kmeans": Method("KMeans"),
        "minibatch": Method("MiniBatchKMeans"),
        "nested": Method("NestedMiniBatchKMeans"),
        "vrkm": Method("VarianceReducedKMeans", MappingProxyType({"variant": "vrkm"})),
        "vrkm++": Method("VarianceReducedKMeans", MappingProxyType({"variant": "vrkm++"})),
        "sbe": Method("BackwardEulerKMeans"),
        "gmm": Method("TruncatedGaussianMixture", called=MappingProxyType({"n_clusters": "n_components"})),
        "kmodes": Method("LaplacianKModes"),
    }
)
#: Those whose models are centers about which held-out rows have an energy.
CENTERS = ("kmeans", "minibatch", "nested", "vrkm", "vrkm++", "sbe", "gmm")


def available(among: Iterable[str] = METHODS) -> tuple[str, ...]:
    """Give the names of the methods that this version has."""
    return tuple(name for name in among if METHODS[name].is_there)


def method_of(text: str) -> str:
    """Read the name of a method."""
    known = available()
    if text in known:
        return text
    if text in METHODS:
        raise argparse.ArgumentTypeError(f"{text} is not in this version, which has: {', '.join(known)}")
    raise argparse.ArgumentTypeError(f"there is no method {text!r}; this version has: {', '.join(known)}")


def methods_of(text: str) -> tuple[str, ...]:
    """Read the names of methods to compare, with commas between."""
    names = tuple(part.strip() for part in text.split(","))
    known = available(CENTERS)
    for name in names:
        if method_of(name) not in CENTERS:
            raise argparse.ArgumentTypeError(
                f"{name} has no energy to compare; those that have: {', '.join(known)}"
            )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise argparse.ArgumentTypeError(f"{', '.join(twice)} is named twice")
    return names


def addressed_setting_of(text: str) -> tuple[str | None, str, Any]:
    """Read ``[METHOD.]NAME=VALUE``; without a method, None stands for all of them."""
    name, value = setting_of(text)
    method, dot, rest = name.rpartition(".")
    # `setting_of` has made underscores of hyphens, of which no method's name has any.
    return (method_of(method), rest, value) if dot else (None, name, value)


def centers_of(model: Any) -> Any:
    """Give the centers of a model, or its modes."""
    return model.modes_ if hasattr(model, "modes_") else model.cluster_centers_


def settable(method: str) -> list[str]:
    """Give the names of the parameters of a method that its user may set."""
    kept = METHODS[method]
    return sorted(set(kept.kind()().get_params()) - set(NOT_SET) - set(kept.fixed))


def parameters(
    method: str, options: Mapping[str, Any], settings: Iterable[tuple[str, Any]]
) -> dict[str, Any]:
    """Give the parameters of a method's estimator from options, by parameter and None if not given."""
    allowed = settable(method)
    called = METHODS[method].called
    params = {called.get(name, name): value for name, value in options.items() if value is not None}
    for name in params:
        if name not in allowed:
            raise UsageError(f"--{name.replace('_', '-')}: {method} has no parameter {name!r}")
    for name, value in settings:
        if name not in allowed:
            raise UsageError(f"--set: {method} has no parameter {name!r}; it has: {', '.join(allowed)}")
        if name in params:
            raise UsageError(f"--set: {name} is given twice")
        params[name] = value
    params.setdefault("random_state", 0)
    return {**params, **METHODS[method].fixed}


def centers_file(params: Mapping[str, Any]) -> str | None:
    """Give the name of the file of first centers, if they come from one."""
    init = params.get("init")
    return init if isinstance(init, str) and init.endswith(".npy") else None


def estimator(method: str, params: Mapping[str, Any], *, progress: str | None, watchers: list[Any]) -> Any:
    """Make the estimator of a method; `progress` is what stands before its bar on stderr, None for none."""
    import numpy as np

    import shoal

    params = dict(params)
    file = centers_file(params)
    if file is not None:
        with shoal.open(file) as source:
            params["init"] = np.concatenate(list(source.blocks()))
        if "n_init" in settable(method):
            params.setdefault("n_init", 1)
    bar = [] if progress is None else [shoal.callbacks.ProgressBar(progress)]
    return METHODS[method].kind()(**params, callbacks=[*bar, *watchers])
