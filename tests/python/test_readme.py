"""The examples of the README and of the guides run as written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Pages whose examples run in the tests of an engine, which has to be started.
ENGINES = {"ray.md", "spark.md"}


def examples(page):
    """The Python code blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_the_examples_are_found():
    assert len(examples(ROOT / "README.md")) >= 1
    assert len(examples(ROOT / "docs" / "data.md")) >= 5


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if examples(page) and page.name not in ENGINES],
    ids=lambda page: page.name,
)
def test_the_examples_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {}
    for example in examples(page):
        exec(compile(example, str(page), "exec"), names)
    assert (tmp_path / "labels.npy").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_resolve(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if not (page.parent / target).exists()] == []
