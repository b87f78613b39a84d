"""Rows and a check that the tests of bad input share."""

import re

import numpy as np
import pytest

X = np.random.default_rng(0).normal(size=(50, 3))


def refused(error, text, use):
    """Call a function that must fail, and match its whole message."""
    with pytest.raises(error) as caught:
        use()
    assert re.search(text, str(caught.value)), f"{caught.value} is not {text}"
    return caught.value
