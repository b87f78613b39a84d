"""Messages that mark the names of parameters."""

import pickle
import traceback

import pytest
import shoal
from shoal._checks.marked import MarkedError, ParameterError, marked_text, replaced, unmarked
from shoal._checks.warn import warn


def test_python_shows_no_marks():
    error = ParameterError("`tol` must be at least 0, got -1; `shuffle`=False")
    assert str(error) == "tol must be at least 0, got -1; shuffle=False"
    assert marked_text(error) == "`tol` must be at least 0, got -1; `shuffle`=False"
    assert isinstance(error, TypeError)
    assert str(MarkedError("`a` b", "other")) == "other"
    assert unmarked("`two words` and `x`") == "`two words` and x"


@pytest.mark.parametrize("error", [MarkedError("`a` b"), ParameterError("`a` b", "other")])
def test_pickles_keep_both_texts(error):
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.args, str(again)) == (type(error), error.args, str(error))


def test_names_are_replaced_with_their_values():
    said = lambda name, value: f"<{name}|{value}>"  # noqa: E731
    for text, expected in (
        ("`tol`=0.001. Or `tol`", "<tol|0.001>. Or <tol|None>"),
        ("`columns`=['a', 'b'] and", "<columns|['a', 'b']> and"),
        ("with `key`=: 'x'", "with <key|>: 'x'"),
        ("`init`='k-means++'.", "<init|'k-means++'>."),
    ):
        assert replaced(text, said) == expected


def test_warnings_keep_their_marks():
    with pytest.warns(UserWarning, match=r"^Increase tol\.$") as caught:
        warn("Increase `tol`.", UserWarning)
    assert marked_text(caught[0].message) == "Increase `tol`."


def test_errors_of_both_halves_are_parameter_errors():
    with pytest.raises(ParameterError) as ours:
        shoal.KMeans(0).fit([[0.0], [1.0]])
    assert marked_text(ours.value) == "`n_clusters` must be an integer of at least 1, got 0"
    with pytest.raises(ParameterError) as theirs:
        shoal.knn_graph([[0.0], [1.0]], 5)
    assert marked_text(theirs.value).startswith("`n_neighbors` must be at least 1 and less than the number")
    with pytest.raises(MarkedError, match=r"^X must be finite, got NaN at row 1, column 0") as found:
        shoal.KMeans(1).fit(lambda: iter([[[0.0], [float("nan")]]]))
    assert marked_text(found.value).startswith("`X` must be finite")


@pytest.mark.parametrize("name", ["MarkedError", "ParameterError"])
def test_tracebacks_show_a_public_module(name):
    kind = MarkedError if name == "MarkedError" else ParameterError
    assert traceback.format_exception_only(kind("`a` b")) == [f"shoal.{name}: a b\n"]
    assert getattr(shoal, name) is kind
    assert name not in shoal.__all__
