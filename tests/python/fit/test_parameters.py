"""The parameters of an estimator and those of its method in the compiled half agree."""

import inspect

import numpy as np
import pytest
import shoal
from shoal import _core
from shoal._checks.params import for_run
from sklearn.base import clone

ESTIMATORS = (
    shoal.KMeans,
    shoal.MiniBatchKMeans,
    shoal.NestedMiniBatchKMeans,
    shoal.BackwardEulerKMeans,
    shoal.VarianceReducedKMeans,
    shoal.HierarchicalKMeans,
    shoal.BreathingKMeans,
    shoal.BalancedKMeans,
    shoal.TruncatedGaussianMixture,
    shoal.LaplacianKModes,
)
#: Parameters that only the estimator has, because Python alone works with them.
ONLY_HERE = {
    shoal.KMeans: {"copy_x"},
    shoal.BalancedKMeans: {"copy_x"},
    shoal.TruncatedGaussianMixture: {"chain_length", "means_init", "warm_start"},
    shoal.LaplacianKModes: {"affinity"},
}
#: Parameters of the compiled half that the estimator sets by `memory`.
OF_MEMORY = {
    shoal.KMeans: {"bounds_memory"},
    shoal.NestedMiniBatchKMeans: {"bounds_memory", "buffer_memory"},
    shoal.BackwardEulerKMeans: {"bounds_memory"},
    shoal.VarianceReducedKMeans: {"bounds_memory"},
    shoal.HierarchicalKMeans: {"memory_limit"},
    shoal.BreathingKMeans: {"bounds_memory"},
    shoal.BalancedKMeans: {"bounds_memory"},
    shoal.LaplacianKModes: {"responsibilities_memory"},
}
#: Parameters whose "auto" is None in the compiled half.
AUTO = {
    shoal.BackwardEulerKMeans: {"polish", "step_cap", "step_decay", "step_size"},
    shoal.VarianceReducedKMeans: {"learning_rate"},
    shoal.HierarchicalKMeans: {"branching_factor", "n_candidates", "tol"},
    shoal.TruncatedGaussianMixture: {"explore"},
    shoal.LaplacianKModes: {"bandwidth", "laplacian_weight", "n_neighbors", "normalize"},
}
#: Defaults that the estimator replaces before a fit: its own, and the one of the compiled half.
OTHER_DEFAULTS = {
    shoal.KMeans: {"n_init": ("auto", 1)},
    shoal.MiniBatchKMeans: {"n_init": ("auto", 1)},
    shoal.BalancedKMeans: {"n_init": ("auto", 1)},
    shoal.LaplacianKModes: {"init": ("spectral", "k-means++")},
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_defaults_agree(estimator):
    theirs = _core.parameters(estimator._method)
    known = inspect.signature(estimator).parameters
    differ = {}
    budgets = OF_MEMORY.get(estimator, set())
    # None stands for "auto".
    default = None if estimator is shoal.KMeans else for_run("memory", "1GB")
    assert {theirs[name] for name in budgets} <= {default}
    assert ("memory" in known) == bool(budgets)
    for name in known.keys() & theirs.keys() - {"n_clusters", "n_components"} - budgets:
        ours = for_run(name, known[name].default, auto=name in AUTO.get(estimator, ()))
        if (type(ours), ours) != (type(theirs[name]), theirs[name]):
            differ[name] = (ours, theirs[name])
    # Without a seed, estimators draw one.
    assert differ == {"random_state": (None, 0), **OTHER_DEFAULTS.get(estimator, {})}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_names_agree(estimator):
    ours = set(inspect.signature(estimator).parameters) - {"verbose", "callbacks"}
    theirs = set(_core.parameters(estimator._method))
    budgets = {"memory", *OF_MEMORY.get(estimator, set())}
    assert ours - ONLY_HERE.get(estimator, set()) - budgets == theirs - set(estimator._hidden) - budgets
    assert set(estimator._hidden) <= theirs


RENAMED = [
    (estimator, name)
    for estimator, names in OF_MEMORY.items()
    for name in sorted(names)
    if name in inspect.signature(estimator).parameters
]


def budgets_of(model, monkeypatch):
    """The budgets of the compiled half in a fit."""
    given = {}
    for name in ("start", "start_modes"):
        start = getattr(_core, name)

        def spy(*args, _start=start, **more):
            given.update(next(arg for arg in args if isinstance(arg, dict)))
            return _start(*args, **more)

        monkeypatch.setattr(_core, name, spy)
    model.fit(np.random.default_rng(0).normal(size=(200, 3)))
    return {name: given[name] for name in OF_MEMORY[type(model)]}


@pytest.mark.filterwarnings("ignore:.*has no room")
@pytest.mark.parametrize("estimator", OF_MEMORY)
def test_memory_sets_every_budget(estimator, monkeypatch):
    model = estimator(4, memory="70KB", random_state=0, max_iter=2)
    assert set(budgets_of(model, monkeypatch).values()) == {70_000}


@pytest.mark.parametrize(("estimator", "name"), RENAMED)
def test_the_earlier_names_of_memory_work_with_a_warning(estimator, name, monkeypatch):
    model = estimator(4, memory="70KB", random_state=0, max_iter=2, **{name: "30KB"})
    with pytest.warns(FutureWarning, match=rf"^{name} is deprecated: use memory instead$") as caught:
        budgets = budgets_of(clone(model), monkeypatch)
    assert [warning.filename for warning in caught] == [__file__]
    assert budgets == {other: 30_000 if other == name else 70_000 for other in budgets}
    with pytest.raises(ValueError, match=rf"{name} must be (None or )?an amount of memory"):
        model.set_params(**{name: "much"}).fit([[0.0], [1.0]])


def test_an_unknown_parameter_is_an_error():
    source = shoal.KMeans(1)._rows([[0.0]], reset=True)
    with pytest.raises(ValueError, match=r"tolerence.*tol"):
        _core.start("kmeans", source, {"n_clusters": 1, "tolerence": 0.1})


def test_an_unknown_method_is_an_error():
    source = shoal.KMeans(1)._rows([[0.0]], reset=True)
    with pytest.raises(ValueError, match="'magic'"):
        _core.start("magic", source, {})
    with pytest.raises(ValueError, match="'magic'"):
        _core.parameters("magic")
