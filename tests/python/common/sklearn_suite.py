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

SHAPE = "init has another shape; the message states both shapes"
LINES = "progress is a bar on stderr, without scikit-learn's lines on stdout"
NORMS = "kmeans_plusplus computes the norms itself and has no parameter x_squared_norms"

#: Test, the start of the parameters of its cases, exception, a part of its message, reason.
DIFFERENT = [
    (
        "test_kmeans_init_auto_with_initial_centroids",
        "",
        AttributeError,
        "no attribute '_n_init'",
        "reads the private number of starts; test_auto_is_a_number_of_starts compares results",
    ),
    (
        "test_n_init_auto",
        "",
        AttributeError,
        "no attribute '_n_init'",
        "reads the private number of starts; test_auto_is_a_number_of_starts compares results",
    ),
    (
        "test_minibatch_kmeans_init_size",
        "",
        AttributeError,
        "no attribute '_init_size'",
        "reads the private size of the sample of the seeding, which is another one by default",
    ),
    (
        "test_sample_weight_init",
        "",
        AttributeError,
        "no attribute '_init_centroids'",
        "calls the private seeding; test_seedings_draw_by_weight calls the public ones",
    ),
    (
        "test_sample_weight_zero",
        "",
        AttributeError,
        "no attribute '_init_centroids'",
        "calls the private seeding; test_seedings_draw_by_weight calls the public ones",
    ),
    (
        "test_minibatch_kmeans_warning_init_size",
        "",
        pytest.fail.Exception,
        "init_size must be at least n_clusters=20, got 10. init_size=60 is used instead.",
        "warns with this message instead of 'init_size should be larger than n_clusters'",
    ),
    ("test_wrong_params", "param1", AssertionError, "init must have shape (8, 5), got (2, 5)", SHAPE),
    ("test_wrong_params", "param2", AssertionError, "init must have shape (8, 5), got (2, 5)", SHAPE),
    ("test_wrong_params", "param3", AssertionError, "init must have shape (8, 5), got (8, 2)", SHAPE),
    ("test_wrong_params", "param4", AssertionError, "init must have shape (8, 5), got (8, 2)", SHAPE),
    ("test_kmeans_verbose", "", AssertionError, "'Initialization complete', ''", LINES),
    (
        "test_minibatch_declared_convergence",
        "0.0001",
        AssertionError,
        "assert 'Converged (small centers change)' in ''",
        LINES,
    ),
    (
        "test_minibatch_declared_convergence",
        "0-10",
        AssertionError,
        "assert 'Converged (lack of improvement in inertia)' in ''",
        LINES,
    ),
    ("test_kmeans_plusplus_norms", "", TypeError, "argument 'x_squared_norms'", NORMS),
    ("test_kmeans_plusplus_wrong_params", "param0", TypeError, "argument 'x_squared_norms'", NORMS),
    (
        "test_warning_elkan_1_cluster",
        "",
        pytest.fail.Exception,
        "DID NOT WARN",
        "algorithm='elkan' is exact with one cluster too, and algorithm_ shows that it ran",
    ),
]

#: The part of the message of a case that is expected to fail.
MESSAGE = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Fail a listed case whose exception has another message: then it has another reason."""
    try:
        return (yield)
    except (Exception, pytest.fail.Exception) as error:
        expected = item.stash.get(MESSAGE, None)
        if expected is not None and expected not in str(error):
            # No case is expected to raise this type.
            raise RuntimeError(f"the message has no {expected!r}") from error
        raise


def pytest_collection_modifyitems(config, items):
    """Deselect the tests without shoal, and mark the listed cases."""
    module = items[0].module
    for name in SWAPPED:
        assert getattr(module, name) is getattr(shoal, name), f"{name} is not shoal's"
    unused = [item for item in items if item.originalname in WITHOUT_SHOAL]
    config.hook.pytest_deselected(items=unused)
    items[:] = [item for item in items if item not in unused]
    missing = WITHOUT_SHOAL - {item.originalname for item in unused}
    for test, start, error, message, reason in DIFFERENT:
        cases = [item for item in items if item.originalname == test and parameters(item).startswith(start)]
        if not cases:
            missing.add(f"{test}[{start}")
        for case in cases:
            case.stash[MESSAGE] = message
            case.add_marker(pytest.mark.xfail(reason=reason, raises=error, strict=True))
    if missing:
        raise pytest.UsageError(f"scikit-learn has no such tests: {', '.join(sorted(missing))}")


def parameters(item):
    """The parameters of a case as shown in brackets."""
    return item.callspec.id if hasattr(item, "callspec") else ""
