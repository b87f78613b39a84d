"""Links of a release, and checks of what a release uploads.

``python tests/release.py links`` makes the links of ``README.md`` absolute, because the package indexes do
not resolve relative ones, and adds ``[project.urls]`` to ``pyproject.toml``.

``python tests/release.py check DIST`` checks the source archive and the wheels of a folder. It prints what is
still a placeholder, and the exit status is 1 if something is wrong.

The address of the repository is ``repository`` in ``Cargo.toml``.
"""

import re
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from email.message import Message
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["package"]
#: No address has this domain (RFC 2606).
PLACEHOLDER = re.compile(r"https://[^/]*\.example\b")
#: Up to the target of a Markdown link or image, and the target if it is relative.
RELATIVE = re.compile(r"(!?)(\[[^\]]*\]\()(?!https?:|#)([^)]+)")
LICENSE = "MIT OR Apache-2.0"
LICENSE_FILES = {"LICENSE-APACHE", "LICENSE-MIT", "THIRD-PARTY-NOTICES.txt"}


def absolute(text: str, repository: str, version: str) -> str:
    """Return Markdown whose links and images point to the files of the tagged version."""

    def link(match: re.Match[str]) -> str:
        image, label, target = match.groups()
        return f"{image}{label}{repository}/{'raw' if image else 'blob'}/v{version}/{target}"

    return RELATIVE.sub(link, text)


def urls(repository: str, version: str) -> str:
    """Return the table of links for `pyproject.toml`."""
    return f"""
[project.urls]
Repository = "{repository}"
Documentation = "{repository}/blob/v{version}/docs/guide.md"
Changelog = "{repository}/blob/v{version}/CHANGELOG.md"
"""


def metadata_problems(name: str, metadata: Message) -> list[str]:
    """What is wrong with the metadata of an archive."""
    found = []
    expected = {"Version": PACKAGE["version"], "License-Expression": LICENSE}
    for field, value in expected.items():
        if metadata[field] != value:
            found.append(f"{name}: {field} must be {value}, got {metadata[field]}")
    if set(metadata.get_all("License-File", [])) != LICENSE_FILES:
        found.append(f"{name}: the license files must be {sorted(LICENSE_FILES)}")
    if not any(url.endswith(PACKAGE["repository"]) for url in metadata.get_all("Project-URL", [])):
        found.append(f"{name}: no Project-URL is {PACKAGE['repository']}")
    description = metadata.get_payload()
    relative = [match[3] for match in RELATIVE.finditer(str(description))]
    if relative or not description:
        found.append(f"{name}: the description must have absolute links, got {relative or 'no description'}")
    return found


def archive_problems(dist: Path) -> list[str]:
    """What is wrong with the archives of a folder."""
    found = [f"{dist}: no {kind}" for kind in ("*.tar.gz", "*.whl") if not list(dist.glob(kind))]
    for path in sorted(dist.glob("*.tar.gz")):
        with tarfile.open(path) as archive:
            member = archive.extractfile(f"{path.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert member is not None
            found += metadata_problems(path.name, message_from_string(member.read().decode()))
    for path in sorted(dist.glob("*.whl")):
        with zipfile.ZipFile(path) as wheel:
            names = wheel.namelist()
            (info,) = [name for name in names if name.endswith(".dist-info/METADATA")]
            found += metadata_problems(path.name, message_from_string(wheel.read(info).decode()))
        found += [
            f"{path.name}: holds {name}, which is neither code nor metadata"
            for name in names
            if not re.search(r"\.(py|pyi|typed|so|pyd)$|\.dist-info/", name)
        ]
    return found


def version_problems() -> list[str]:
    """Files that name another version than `Cargo.toml`."""
    version = re.escape(PACKAGE["version"])
    named = {"CITATION.cff": rf"^version: {version}$", "CHANGELOG.md": rf"^## \[{version}\]"}
    return [
        f"{file}: no line {pattern}"
        for file, pattern in named.items()
        if not re.search(pattern, (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]


def placeholders() -> list[str]:
    """What has to be filled in before a release."""
    found = []
    if PLACEHOLDER.match(PACKAGE["repository"]):
        found.append(f"Cargo.toml: `repository` is {PACKAGE['repository']}")
    heading = f"## [{PACKAGE['version']}] - unreleased"
    if heading in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        found.append(f"CHANGELOG.md: `{heading}` needs the date")
    return found


def main() -> int:
    """Write the links, or check a folder."""
    if sys.argv[1:] == ["links"]:
        readme = ROOT / "README.md"
        address = PACKAGE["repository"], PACKAGE["version"]
        readme.write_text(absolute(readme.read_text(encoding="utf-8"), *address), encoding="utf-8")
        if "[project.urls]" in (ROOT / "pyproject.toml").read_text(encoding="utf-8"):
            return 0
        with (ROOT / "pyproject.toml").open("a", encoding="utf-8") as project:
            project.write(urls(*address))
        return 0
    if len(sys.argv) != 3 or sys.argv[1] != "check":
        print(__doc__, file=sys.stderr)
        return 2
    found = version_problems() + archive_problems(Path(sys.argv[2]))
    print("".join(f"placeholder: {line}\n" for line in placeholders()), end="")
    print("".join(f"wrong: {line}\n" for line in found), end="")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
