"""Damaged command lines end with a message, not with an error of Python."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("faiss")


def test_damaged_command_lines_are_refused_or_run(tmp_path):
    program = Path(__file__).parents[1] / "common" / "command_lines.py"
    done = subprocess.run(
        [sys.executable, program, tmp_path, "250"], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    came = json.loads(done.stdout)
    ends = came["outcomes"]
    assert set(ends) <= {"done", "refused", "interrupted"}, ends
    assert ends["refused"] > 50
    assert ends["done"] > 10
    assert came["megabytes"] < 600
