"""scikit-learn's own tests of k-means pass with the classes of shoal, up to the cases in `sklearn_suite`."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_scikit_learns_tests_of_k_means(tmp_path):
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")
    # Options for the outer run do not reach the inner one.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1] / "common"), *filter(None, sys.path)]),
        "SKLEARN_RUN_FLOAT32_TESTS": "1",
        "SKLEARN_TESTS_GLOBAL_RANDOM_SEED": "42",
    }
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "-p", "sklearn_suite", "-q", "-ra"]
    command += ["-p", "no:cacheprovider", "--tb=short", "--pyargs", "sklearn.cluster.tests.test_k_means"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    # A suite that collects little shows nothing.
    assert int(re.search(r"(\d+) passed", ran.stdout)[1]) >= 200, ran.stdout
    assert "skipped" not in ran.stdout.splitlines()[-1], ran.stdout
