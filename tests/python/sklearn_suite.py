"""A pytest plugin that runs scikit-learn's tests of k-means with the classes of shoal.

The tests run with ``pytest -p sklearn_suite --pyargs sklearn.cluster.tests.test_k_means``. Every case that is
expected to fail is listed with its reason and its exception. A listed case that passes is a failure.
"""

import pytest
import shoal
import sklearn.cluster

# The module of the tests imports these names from `sklearn.cluster` when it is collected, after this plugin.
SWAPPED = ("KMeans", "MiniBatchKMeans", "kmeans_plusplus")
for name in SWAPPED:
    setattr(sklearn.cluster, name, getattr(shoal, name))

#: Tests that never use a swapped name: functions that are private to scikit-learn, and `k_means`.
WITHOUT_SHOAL = {
    "test_relocate_empty_clusters",
    "test_minibatch_update_consistency",
    "test_minibatch_reassign",
    "test_k_means_function",
    "test_euclidean_distance",
    "test_inertia",
    "test_is_same_clustering",
}

PRIVATE = "reads a private attribute or method of scikit-learn's class"
WORDING = "the message has other words"
STDERR = "progress is a bar on stderr, without scikit-learn's lines on stdout"
NORMS = "kmeans_plusplus computes the norms itself and has no parameter x_squared_norms"

#: Test, the start of the parameters of its cases, exception, reason.
DIFFERENT = [
    ("test_kmeans_init_auto_with_initial_centroids", "", AttributeError, PRIVATE),
    ("test_minibatch_kmeans_init_size", "", AttributeError, PRIVATE),
    ("test_n_init_auto", "", AttributeError, PRIVATE),
    ("test_sample_weight_init", "", AttributeError, PRIVATE),
    ("test_sample_weight_zero", "", AttributeError, PRIVATE),
    ("test_minibatch_kmeans_warning_init_size", "", pytest.fail.Exception, WORDING),
    ("test_wrong_params", "param1", AssertionError, WORDING),
    ("test_wrong_params", "param2", AssertionError, WORDING),
    ("test_wrong_params", "param3", AssertionError, WORDING),
    ("test_wrong_params", "param4", AssertionError, WORDING),
    ("test_kmeans_verbose", "", AssertionError, STDERR),
    ("test_minibatch_declared_convergence", "", AssertionError, STDERR),
    ("test_kmeans_plusplus_norms", "", TypeError, NORMS),
    ("test_kmeans_plusplus_wrong_params", "param0", TypeError, NORMS),
    (
        "test_warning_elkan_1_cluster",
        "",
        pytest.fail.Exception,
        "algorithm='elkan' is exact with one cluster too, and algorithm_ shows that it ran",
    ),
]


def pytest_collection_modifyitems(config, items):
    """Deselect the tests without shoal, and mark the listed cases."""
    module = items[0].module
    for name in SWAPPED:
        assert getattr(module, name) is getattr(shoal, name), f"{name} is not shoal's"
    unused = [item for item in items if item.originalname in WITHOUT_SHOAL]
    config.hook.pytest_deselected(items=unused)
    items[:] = [item for item in items if item not in unused]
    missing = WITHOUT_SHOAL - {item.originalname for item in unused}
    for test, start, error, reason in DIFFERENT:
        cases = [item for item in items if item.originalname == test and parameters(item).startswith(start)]
        if not cases:
            missing.add(f"{test}[{start}")
        for case in cases:
            case.add_marker(pytest.mark.xfail(reason=reason, raises=error, strict=True))
    if missing:
        raise pytest.UsageError(f"scikit-learn has no such tests: {', '.join(sorted(missing))}")


def parameters(item):
    """The parameters of a case as shown in brackets."""
    return item.callspec.id if hasattr(item, "callspec") else ""
