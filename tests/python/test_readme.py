"""The examples of the README do what they show."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_examples_run_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    examples = re.findall(
        r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(examples) >= 3
    names = {}
    for example in examples:
        exec(compile(example, str(README), "exec"), names)
    assert (tmp_path / "model.safetensors").is_file()
    assert (tmp_path / "labels.npy").is_file()
