"""Check the license, the source and the minimum Rust version of every dependency of the crate.

Usage: ``python tests/dependencies.py``. The allowed licenses are those of ``deny.toml``. The exit status is
1 if a dependency breaks a rule.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def allowed(expression: str, licenses: set[str]) -> bool:
    """Whether an SPDX expression can be met with the given licenses."""

    def value(match: re.Match[str]) -> str:
        word = match.group()
        return word.lower() if word in ("AND", "OR") else str(word in licenses)

    terms = re.sub(r"[\w.+-]+( WITH [\w.-]+)?", value, expression.replace("/", " OR "))
    return bool(eval(terms, {"__builtins__": {}}))


def version(text: str) -> tuple[int, ...]:
    """Numbers of a version, with trailing zeros removed, so that 1.89 equals 1.89.0."""
    numbers = [int(part) for part in text.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def problems(packages: list[dict[str, Any]], licenses: set[str], rust: str) -> list[str]:
    """What is wrong with the dependencies; a package without a source is our own."""
    found = []
    for package in packages:
        name = f"{package['name']} {package['version']}"
        if package["source"] is None:
            continue
        if package["source"] != REGISTRY:
            found.append(f"{name}: the source must be crates.io, got {package['source']}")
        if not package["license"] or not allowed(package["license"], licenses):
            found.append(f"{name}: the license must be one of deny.toml, got {package['license']}")
        if package["rust_version"] and version(package["rust_version"]) > version(rust):
            found.append(f"{name}: needs Rust {package['rust_version']}, but Cargo.toml promises {rust}")
    return found


def main() -> int:
    """Print what is wrong."""
    cargo = [
        os.environ.get("CARGO", "cargo"),
        "metadata",
        "--locked",
        "--all-features",
        "--format-version",
        "1",
    ]
    packages = json.loads(subprocess.run(cargo, cwd=ROOT, check=True, capture_output=True).stdout)["packages"]
    licenses = set(tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["licenses"]["allow"])
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["package"]["rust-version"]
    found = problems(packages, licenses, rust)
    print("".join(f"{problem}\n" for problem in found), end="")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
