"""The scripts that `make lint` runs find what they are for."""

import importlib.util
import io
import re
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]


def script(name):
    """The module of a file in `tests`."""
    spec = importlib.util.spec_from_file_location(f"shoal_lint_{name}", TESTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Put together here, so that the script does not find them in this file.
PHRASE = "gone" + " on with"
RUST = f'''// It is gone
// on with, and `{PHRASE}` is code.
fn f<'a>(c: char) -> &'a str {{
    if c == '"' {{ "a {PHRASE} b" }} else {{ r#"{PHRASE}"# }}
}}
let {PHRASE.replace(" ", "_")} = 1;
/* {PHRASE} */
'''
BROKEN = PHRASE.replace(" ", "\n", 1)
PYTHON = f'''"""It is
{PHRASE}."""
x = "a " f"gone {{x}} on with" + ("gone on "
     "with")  # {PHRASE}
'''
MARKDOWN = f"""Text `{PHRASE}` {PHRASE}.

```
{PHRASE}
```

{BROKEN}
"""


@pytest.mark.parametrize(
    ("source", "suffix", "lines"),
    [(RUST, ".rs", [1, 4, 4, 7]), (PYTHON, ".py", [2, 3, 4]), (MARKDOWN, ".md", [1, 7])],
    ids=["rust", "python", "markdown"],
)
def test_phrases_are_found_in_prose_only(source, suffix, lines):
    assert [line for line, _, _ in script("prose").offences(source, suffix)] == lines


def test_long_lines_are_found_in_paragraphs_only():
    prose = script("prose")
    words = "word " * prose.WIDTH
    lines = [f"{words}end", f"| {words}|", f"[a]({words})", "```", words, "```", "x" * prose.WIDTH, "x" * 101]
    assert [line for line, _, _ in prose.offences("\n".join(lines), ".md")] == [1, 8]
    assert prose.offences(f"# {words}", ".py") == []


def test_dependencies_are_checked():
    dependencies = script("dependencies")
    good = {
        "name": "good",
        "version": "1.0.0",
        "source": dependencies.REGISTRY,
        "license": "(MIT OR LGPL-2.1-or-later) AND Apache-2.0 WITH LLVM-exception",
        "rust_version": "1.89.0",
    }
    licenses = {"MIT", "Apache-2.0 WITH LLVM-exception"}
    bad = [good | change for change in ({"license": "GPL-3.0"}, {"source": "git"}, {"rust_version": "1.90"})]
    assert dependencies.problems([good, good | {"source": None, "license": None}], licenses, "1.89") == []
    assert len(dependencies.problems(bad, licenses, "1.89")) == 3


def test_notices_name_what_is_linked():
    notices = script("notices")

    def package(name, kind="lib"):
        return {"id": name, "name": name, "version": "1.0", "targets": [{"kind": [kind]}]}

    def dep(name, kind=None):
        return {"pkg": name, "dep_kinds": [{"kind": kind}]}

    deps = {
        "own": [dep("one"), dep("build", "build"), dep("test", "dev"), dep("macro")],
        "one": [dep("two"), dep("one")],
        "macro": [dep("parser")],
    }
    names = ["own", "two", "one", "build", "test", "parser"]
    metadata = {
        "packages": [*map(package, names), package("macro", "proc-macro")],
        "resolve": {
            "root": "own",
            "nodes": [{"id": name, "deps": deps.get(name, [])} for name in [*names, "macro"]],
        },
    }
    assert [package["name"] for package in notices.linked(metadata)] == ["one", "two"]


def test_hints_name_extras_that_exist():
    root = TESTS.parent
    extras = set(
        tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    )
    found = set()
    for folder, pattern in (("python", "*.py"), ("docs", "*.md"), (".", "README.md")):
        for path in (root / folder).rglob(pattern):
            if ".venv" in path.parts:
                continue
            for name, extra in re.findall(r"install '([\w-]+)\[([\w{},]+)\]'", path.read_text("utf-8")):
                assert name == "shoal-cluster", path
                found.add(extra)
    assert found - {"{extra}"} <= extras
    assert {"all", "plot", "dask"} <= found


README = """[guide](docs/guide.md#top) ![chart](docs/a.png) [site](https://a.example/b) [below](#below)"""


def test_links_of_the_readme_become_absolute():
    release = script("release")
    text = release.absolute(README, "https://r.example/shoal", "1.2.3")
    assert text.splitlines()[0] == (
        "[guide](https://r.example/shoal/blob/v1.2.3/docs/guide.md#top) "
        "![chart](https://r.example/shoal/raw/v1.2.3/docs/a.png) [site](https://a.example/b) [below](#below)"
    )
    whole = release.absolute(TESTS.parent.joinpath("README.md").read_text(encoding="utf-8"), "https://r", "1")
    assert "](docs/" not in whole
    assert "](LICENSE" not in whole
    assert not release.RELATIVE.search(whole)
    project = TESTS.parent.joinpath("pyproject.toml").read_text(encoding="utf-8")
    added = tomllib.loads(project + release.urls("https://r.example/shoal", "1.2.3"))["project"]["urls"]
    assert added["Repository"] == "https://r.example/shoal"
    for url in added.values():
        path = url.partition("/v1.2.3/")[2]
        assert (TESTS.parent / path).exists()


def archives(folder, release, *, license=None, text="[a](https://a)", extra=None):
    """Write a source archive and a wheel with their metadata."""
    version, repository = release.PACKAGE["version"], release.PACKAGE["repository"]
    fields = [f"Version: {version}", f"License-Expression: {license or release.LICENSE}"]
    fields += [f"License-File: {name}" for name in sorted(release.LICENSE_FILES)]
    info = "\n".join([*fields, f"Project-URL: Source Code, {repository}", "", text]).encode()
    name = f"shoal_cluster-{version}"
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as archive:
        member = tarfile.TarInfo(f"{name}/PKG-INFO")
        member.size = len(info)
        archive.addfile(member, io.BytesIO(info))
    with zipfile.ZipFile(folder / f"{name}-cp311-abi3-linux_x86_64.whl", "w") as wheel:
        wheel.writestr(f"{name}.dist-info/METADATA", info)
        wheel.writestr("shoal/__init__.py", "")
        if extra:
            wheel.writestr(extra, "")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({}, None),
        ({"license": "MIT"}, "License-Expression must be MIT OR Apache-2.0, got MIT"),
        ({"text": "[a](docs/a.md)"}, "must have absolute links"),
        ({"extra": "shoal/_data/images.npz"}, "holds shoal/_data/images.npz"),
    ],
    ids=["good", "license", "links", "data"],
)
def test_archives_of_a_release_are_checked(tmp_path, broken, message):
    release = script("release")
    archives(tmp_path, release, **broken)
    found = release.archive_problems(tmp_path)
    assert bool(found) == (message is not None)
    assert message is None or message in found[0]


def test_placeholders_of_a_release_are_named(monkeypatch):
    release = script("release")
    monkeypatch.setitem(release.PACKAGE, "repository", "https://shoal.example/shoal")
    assert any("`repository` is https://shoal.example/shoal" in line for line in release.placeholders())
    monkeypatch.setitem(release.PACKAGE, "repository", "https://forge.org/shoal")
    assert not any("`repository`" in line for line in release.placeholders())
    assert release.version_problems() == []
    monkeypatch.setitem(release.PACKAGE, "version", "9.9.9")
    assert len(release.version_problems()) == 2
