"""The examples in docstrings run and print what they show."""

import doctest
import importlib
import pkgutil

import pytest
import shoal

MODULES = [
    found.name
    for found in pkgutil.walk_packages(shoal.__path__, "shoal.")
    if not any(part.startswith("_") for part in found.name.split("."))
]


def cases():
    """Collect the docstrings with examples of all public modules."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    for name in ["shoal", *MODULES]:
        yield from (case for case in finder.find(importlib.import_module(name)) if case.examples)


CASES = list(cases())


def test_the_examples_are_found():
    assert {"shoal.mixture.TruncatedGaussianMixture", "shoal.kmeans.KMeans"} <= {case.name for case in CASES}
    assert len(CASES) >= 20


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_example(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = []
    result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(case, out=told.append)
    assert result.failed == 0, "".join(told)
