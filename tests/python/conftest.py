"""What the tests share."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest

# For `import reference`, which lies beside this file.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def shoal_data():
    """A function that gives the rows of a set in the folder $SHOAL_DATA, as stored."""
    folder = os.environ.get("SHOAL_DATA")
    if not folder:
        pytest.skip("SHOAL_DATA names no folder of data sets")

    def load(name, member=None):
        with np.load(Path(folder) / f"{name}.npz") as file:
            if member is None:
                return file["X"]
            return file[member if member in file.files else f"{member}/X"]

    return load
