"""Write the notices of the software that is compiled into the Python module, or check them.

Usage: ``python tests/notices.py [--check]``. The wheel holds the file, as the licenses of the packages ask
for. With ``--check``, the exit status is 1 if the file differs from what would be written.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTICES = ROOT / "THIRD-PARTY-NOTICES.txt"
TEXTS = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
HEAD = """\
Third-party software in the compiled module of the Python package shoal-cluster.
Written by `make notices`; do not edit.

The Rust standard library, by the Rust Project Developers: MIT OR Apache-2.0, <https://www.rust-lang.org/policies/licenses>.
"""


def linked(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the packages that are linked into the module on some system, by name."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    found: set[str] = set()
    waiting = [metadata["resolve"]["root"]]
    while waiting:
        of = waiting.pop()
        macro = any("proc-macro" in target["kind"] for target in packages[of]["targets"])
        if of in found or macro:
            continue
        found.add(of)
        deps = nodes[of]["deps"]
        waiting += [dep["pkg"] for dep in deps if any(kind["kind"] is None for kind in dep["dep_kinds"])]
    found.discard(metadata["resolve"]["root"])
    return sorted((packages[of] for of in found), key=lambda package: (package["name"], package["version"]))


def texts(package: dict[str, Any]) -> list[str]:
    """Return the license texts of a package: that of the MIT license alone, if the package offers it."""
    folder = Path(package["manifest_path"]).parent
    files = sorted(path for path in folder.iterdir() if path.is_file() and TEXTS.fullmatch(path.name))
    if re.search(r"\bMIT\b", package["license"]) and " AND " not in package["license"]:
        mit = [path for path in files if "MIT" in path.name.upper()]
        files = mit or [path for path in files if "APACHE" not in path.name.upper()] or files
    return [clean(path.read_text(encoding="utf-8")) for path in files]


def clean(text: str) -> str:
    """Return a text without trailing spaces and blank lines around it."""
    return "\n".join(line.rstrip() for line in text.expandtabs().splitlines()).strip()


def notices(packages: list[dict[str, Any]]) -> str:
    """Return the file: a list of the packages, then every text with the packages that it belongs to."""
    lines, users = [HEAD], {}
    for package in packages:
        name = f"{package['name']} {package['version']}"
        by = ", ".join(re.sub(r"\s*<.*?>", "", author) for author in package["authors"])
        where = package["repository"] or package["homepage"] or f"https://crates.io/crates/{package['name']}"
        lines.append(f"{name}: {package['license']}{f', by {by}' if by else ''}, <{where}>")
        for text in texts(package):
            users.setdefault(text, []).append(name)
    for text, names in users.items():
        lines.append(f"\n{'-' * 78}\n{', '.join(names)}\n\n{text}")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the file, or compare it with what would be written."""
    cargo = os.environ.get("CARGO", "cargo")
    command = [cargo, "metadata", "--locked", "--features", "python", "--format-version", "1"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    new = notices(linked(metadata))
    if "--check" not in sys.argv[1:]:
        NOTICES.write_text(new, encoding="utf-8")
    elif not NOTICES.exists() or NOTICES.read_text(encoding="utf-8") != new:
        print(f"{NOTICES.name} is out of date: run `make notices`")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
