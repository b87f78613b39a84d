"""Fixtures that all tests share."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

# Makes the modules that tests share importable.
sys.path.insert(0, str(Path(__file__).parent / "common"))


@pytest.fixture(scope="session")
def shoal_data():
    """Return a function that loads the rows of a data set in $SHOAL_DATA, as stored."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        pytest.skip("SHOAL_DATA names no folder of data sets")

    def load(name, member=None):
        with np.load(Path(folder) / f"{name}.npz") as file:
            if member is None:
                return file["X"]
            return file[member if member in file.files else f"{member}/X"]

    return load
