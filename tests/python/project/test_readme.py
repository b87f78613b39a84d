"""The examples of the README and of the guides print what the pages say, and links between pages resolve."""

import re
from pathlib import Path

import numpy as np
import pytest
import shoal
from pages import DOCS, ROOT, agrees, commands, examples, run, run_command
from shoal import cli

#: Folders of `docs` whose pages are made when the site is built.
MADE = {"_build", "api", "gallery"}
GUIDES = [page for page in sorted(DOCS.rglob("*.md")) if page.relative_to(DOCS).parts[0] not in MADE]
PAGES = [ROOT / "README.md", *GUIDES]
#: Links to pages that are made when the site is built.
MADE_TARGETS = re.compile(r"(gallery|api)/[\w./]+\.rst")
#: Pages whose examples run in the tests of an engine, which has to be started.
ENGINES = {"ray.md", "spark.md"}


def test_shoal_alone_shows_five_commands(tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([])
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.splitlines()[-1].startswith("shoal: error: shoal needs a COMMAND, one of fit, ")
    lines = [re.split(" {2,}", line.strip())[0] for line in err.splitlines() if line.startswith("  shoal ")]
    assert len(lines) == 5
    monkeypatch.chdir(tmp_path)
    make_files()
    for line in lines:
        run_command(line)


def named(page):
    """The name of a page in the list of tests."""
    return str(page.relative_to(ROOT)).removeprefix("docs/")


def test_the_examples_are_found():
    assert len(examples(ROOT / "README.md")) >= 1
    assert {"data.md", "tour.md", "recipes.md", "streams.md"} <= {named(page) for page in GUIDES}
    assert len(examples(DOCS / "tour.md")) >= 8
    assert len(commands(DOCS / "cli.md")) >= 10
    assert len(commands(DOCS / "recipes.md")) >= 4


@pytest.mark.parametrize(
    ("stated", "printed", "same"),
    [
        ("5 0.5001 <k=3, inertia=1e+06>", "5 0.5 <k=3,\n inertia=1.0001e+06>", True),
        ("6 0.5", "5 0.5", False),
        ("5 0.51", "5 0.5", False),
        ("5 patience", "5 max-iter", False),
        ("[18 10 ...] -3.2e-05 ... end", "[18 10 7] -3.2e-05 x 3 end", True),
        ("[18 10 ...]", "[18 11 7]", False),
        ("5", "5 6", False),
        ("float32 x0", "float64 x0", False),
    ],
)
def test_outputs_are_compared(stated, printed, same):
    assert agrees(stated, printed) == same


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if examples(page) and page.name not in ENGINES], ids=named
)
def test_the_examples_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(page)
    written = {"labels.npy"} if "labels.npy" in "".join(examples(page)) else set()
    assert written <= {path.name for path in tmp_path.iterdir()}


def make_files():
    """Write the files that the shell examples read."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = np.random.default_rng(0).normal(size=(1200, 16)).astype(np.float32)
    for name in ("vectors.npy", "more.npy", "rows.npy"):
        np.save(name, rows)
    np.concatenate([np.full((1200, 1), 16, "<i4").view("<f4"), rows], axis=1).tofile("more.fvecs")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 16)
    table = pa.table({"id": range(1200), "title": ["..."] * 1200, "vector": vectors})
    parquet.write_table(table, "articles.parquet")
    np.random.default_rng(0).integers(256, size=(10_000, 128), dtype=np.uint8).tofile("raw.bin")
    Path("parts").mkdir()
    for part in range(3):
        np.save(f"parts/part-{part}.npy", rows[part::3])


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page) and not examples(page)], ids=named)
def test_the_commands_run_one_after_the_other(page, tmp_path, monkeypatch):
    """Of pages with examples, they run between the examples, on files that the examples have made."""
    monkeypatch.chdir(tmp_path)
    make_files()
    run_command("shoal fit vectors.npy -k 5 --quiet -o model.safetensors")
    for command in commands(page):
        run_command(command)


def test_every_call_in_the_table_of_the_readme_runs_as_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    table = text.partition("| your data | the call |\n")[2].partition("\n\n")[0]
    calls = [call for row in table.splitlines()[1:] for call in re.findall(r"`([^`]+)`", row.split(" | ")[1])]
    assert len(calls) >= 14
    names = {}
    exec(examples(ROOT / "README.md")[0], names)
    make_files()
    names["model"] = shoal.KMeans(5, random_state=0).fit("vectors.npy")
    for call in calls:
        # The tests of Dask run the program of its page, which starts a client.
        if "dask" not in call:
            exec(call, names)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_between_pages_resolve(page):
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8"))
    missing = [target for target in targets if not (page.parent / target).exists()]
    assert [target for target in missing if not MADE_TARGETS.fullmatch(target)] == []


def test_every_picture_of_the_gallery_has_a_program():
    folder = ROOT / "examples" / "gallery"
    programs = {str(path.relative_to(folder).with_suffix("")) for path in folder.glob("*/plot_*.py")}
    linked = {
        name for page in PAGES for name in re.findall(r"gallery/(\w+/plot_\w+)\.rst", page.read_text("utf-8"))
    }
    assert linked <= programs
    assert len(programs) >= 12
