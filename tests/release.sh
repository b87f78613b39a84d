#!/usr/bin/env bash
# Rehearses a release of the last commit in a temporary folder, without publishing: source archive, wheel, crate and their metadata.
# The wheel is built from the source archive, without the checkout, and tested without Rust.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(command -v "${PYTHON:-python3}")
away=$(mktemp -d)
trap 'rm -rf "$away"' EXIT
export CARGO_TARGET_DIR=$PWD/target/release-check
unset VIRTUAL_ENV PYO3_PYTHON PYTHONPATH

mkdir "$away/source" "$away/dist" "$away/elsewhere"
git archive HEAD | tar -x -C "$away/source"
cd "$away/source"
"$python" tests/release.py links

"$python" -m venv "$away/tools"
"$away/tools/bin/python" -m pip install --quiet 'maturin>=1.14,<2' 'twine>=6.2,<8'
"$away/tools/bin/maturin" sdist --out "$away/dist"
(
  cd "$away/elsewhere"
  "$away/tools/bin/python" -m pip wheel --quiet --no-deps --wheel-dir "$away/dist" "$away"/dist/*.tar.gz
  "$python" -m venv venv
  wheel=$(echo "$away"/dist/*-abi3-*.whl)
  export PATH=$PWD/venv/bin:/usr/bin:/bin
  if hash cargo 2>/dev/null; then echo "cargo is still on the PATH: $PATH" >&2; exit 1; fi
  python -m pip install --quiet --only-binary :all: "$wheel"
  python -m pip check
  shoal demo --compare --out demo
)
"$away/tools/bin/twine" check --strict "$away"/dist/*

# The registry, if it can be reached, also checks the metadata.
rm -rf "$CARGO_TARGET_DIR/package"
cargo package --locked --allow-dirty
# Outside of the workspace of the checkout.
crate=$away/crate
cp -r "$CARGO_TARGET_DIR"/package/shoal-cluster-*/ "$crate"
RUSTDOCFLAGS='-D warnings' cargo doc --locked --no-deps --quiet --manifest-path "$crate/Cargo.toml"
cargo publish --dry-run --locked --allow-dirty --no-verify

"$python" tests/release.py check "$away/dist"
echo 'the rehearsal passed; RELEASING.md lists the other steps'
