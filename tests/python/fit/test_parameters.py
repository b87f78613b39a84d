"""The parameters of an estimator and those of its method in the compiled half agree."""

import inspect

import pytest
import shoal
from shoal import _core
from shoal._checks.params import for_run

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
    shoal.TruncatedGaussianMixture: {"chain_length", "means_init"},
    shoal.LaplacianKModes: {"affinity"},
}
#: Defaults that the estimator replaces before a fit: its own, and the one of the compiled half.
OTHER_DEFAULTS = {
    shoal.KMeans: {"n_init": ("auto", 1)},
    shoal.MiniBatchKMeans: {"n_init": ("auto", 1)},
    shoal.BalancedKMeans: {"n_init": ("auto", 1)},
    shoal.BackwardEulerKMeans: {"step_cap": ("auto", None)},
    shoal.LaplacianKModes: {"init": ("spectral", "k-means++")},
}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_defaults_agree(estimator):
    theirs = _core.parameters(estimator._method)
    known = inspect.signature(estimator).parameters
    differ = {}
    for name in known.keys() & theirs.keys() - {"n_clusters", "n_components"}:
        ours = for_run(name, known[name].default, auto=name in estimator._auto)
        if (type(ours), ours) != (type(theirs[name]), theirs[name]):
            differ[name] = (ours, theirs[name])
    # Without a seed, estimators draw one.
    assert differ == {"random_state": (None, 0), **OTHER_DEFAULTS.get(estimator, {})}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_names_agree(estimator):
    ours = set(inspect.signature(estimator).parameters) - {"verbose", "callbacks"}
    theirs = set(_core.parameters(estimator._method))
    assert ours - ONLY_HERE.get(estimator, set()) == theirs - set(estimator._hidden)
    assert set(estimator._hidden) <= theirs
    assert set(estimator._auto) <= theirs & ours


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
