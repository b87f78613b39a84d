"""The measured figures of the pages agree with their tables, and no figure is without a table."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module", autouse=True)
def _programs():
    """The benchmark programs import each other from their own folder."""
    sys.path.insert(0, str(ROOT / "benches" / "python"))
    yield
    sys.path.remove(str(ROOT / "benches" / "python"))


@pytest.fixture
def claims(monkeypatch, tmp_path):
    """The program, with one page, one table and one claim in a folder of their own."""
    import claims as program
    import tables

    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("A fit takes 2.0\n(1.0 to 3.0) times as long.\n")
    table = tmp_path / "benches" / "results" / "amd-epyc" / "2026-01-02-fits.csv"
    table.parent.mkdir(parents=True)
    table.write_text("# cpu: x\ndata,rounds,time\na,3,2\nb,3,1\nc,3,3\n")

    def times(t):
        values = t("fits")["time"]
        return [sorted(values)[1], min(values), max(values)]

    for module in (program, tables):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "benches" / "results")
    monkeypatch.setattr(
        program, "CLAIMS", {"README.md": [("takes {:.1f} ({:.1f} to {:.1f}) times as long", times)]}
    )
    monkeypatch.setattr(program, "PICTURES", [])
    monkeypatch.setattr(program, "EXEMPT", {})
    assert program.run(write=False) == []
    return program, table


def test_pages_agree_with_their_tables():
    import claims

    assert claims.run(write=False) == [], "make claims"


def test_a_number_that_its_table_does_not_give(claims):
    program, table = claims
    table.write_text(table.read_text().replace("c,3,3", "c,3,4"))
    assert program.run(write=False) == ["README.md: 3.0 must be 4.0"]
    assert program.run(write=True) == []
    assert (program.ROOT / "README.md").read_text() == "A fit takes 2.0\n(1.0 to 4.0) times as long.\n"
    assert program.run(write=False) == []


def test_the_newest_table_counts(claims):
    program, table = claims
    for name in ("2026-01-02-fits-2.csv", "2026-01-02-fits-2-threads.csv", "2026-01-01-fits-3.csv"):
        table.with_name(name).write_text(table.read_text().replace("b,3,1", f"b,3,0.{len(name)}"))
    assert program.run(write=False) == ["README.md: 1.0 must be 0.2"]


@pytest.mark.parametrize("rounds", [None, 2])
def test_a_missing_table(claims, rounds):
    program, table = claims
    text = table.read_text()
    table.unlink()
    if rounds:
        table.write_text(text.replace(",3,", f",{rounds},"))
    (wrong,) = program.run(write=False)
    assert "no machine has all tables" in wrong
    assert ("fewer than 3" if rounds else "has no table of fits") in wrong


def test_a_sentence_that_the_page_does_not_have(claims):
    program, _ = claims
    page = program.ROOT / "README.md"
    page.write_text(page.read_text().replace("takes", "took"))
    (wrong,) = program.run(write=False)
    assert "found 0 times instead of once" in wrong


@pytest.mark.parametrize(
    "text",
    [
        "It is 5 times as fast.",
        "It is three times as fast.",
        "It is lower by 0.3%.",
        "A sweep takes 12 ms.",
        "It took\n3.5 seconds.",
        "It grows 15-fold.",
        "| sets | ratio |\n|---|---|\n| a | 1.7 |",
    ],
)
@pytest.mark.parametrize("page", ["README.md", "docs/page.md", "python/shoal/a.py", "src/a.rs"])
def test_a_figure_without_a_claim(claims, page, text):
    program, _ = claims
    path = program.ROOT / page
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.read_text() if path.exists() else ""
    inside = {
        ".py": f'"""Title.\n\n>>> f()\n3\n\n{text}\n"""\n',
        ".rs": "/// " + text.replace("\n", "\n/// "),
    }
    path.write_text(before + inside.get(path.suffix, text))
    (wrong,) = program.run(write=False)
    assert wrong.startswith(f"{page}: no claim for")


@pytest.mark.parametrize(
    "text", ["```\ntook 5 s\n```", "`5 s`", "[a](b/5%.csv)", "five rows", "version 1.9.1"]
)
def test_code_and_other_numbers_need_no_claim(claims, text):
    program, _ = claims
    (program.ROOT / "docs" / "page.md").write_text(text)
    assert program.run(write=False) == []


def test_an_exempt_figure(claims, monkeypatch):
    program, _ = claims
    (program.ROOT / "docs" / "page.md").write_text("At most\n1 GB, and 2 GB.")
    monkeypatch.setattr(program, "EXEMPT", {"a limit": {"docs/page.md": ("At most 1 GB", "gone")}})
    first, second = program.run(write=False)
    assert "the exempt phrase 'gone' is not there" in first
    assert "no claim for '2 GB'" in second


def test_a_picture_of_another_table(claims, monkeypatch):
    program, table = claims
    picture = program.Picture("a.png", ("README.md",), ("fits",), "methods")
    monkeypatch.setattr(program, "PICTURES", [picture])
    picture.path.parent.mkdir()
    picture.path.write_bytes(b"PNG " + picture.stamp(program.Results("amd-epyc")).encode())
    assert program.run(write=False) == []
    table.write_text(table.read_text().replace("a,3,2", "a,3,2.0"))
    (wrong,) = program.run(write=False)
    assert "a.png is not drawn from amd-epyc/2026-01-02-fits.csv" in wrong


def test_tables_that_pages_show_exist():
    shown = [
        (page.relative_to(ROOT).as_posix(), name)
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"^```\{results\} (\S+)", page.read_text(), re.MULTILINE)
    ]
    assert shown
    missing = [(page, name) for page, name in shown if not (ROOT / "benches/results" / name).exists()]
    assert missing == []
