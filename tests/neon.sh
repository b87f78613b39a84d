#!/usr/bin/env bash
# Compile the tests for aarch64 and run them under QEMU, on x86-64 Debian 12.
#
# Make recipe:   neon: ; tests/neon.sh --lib kernel
#
# Usage:         tests/neon.sh [arguments of `cargo test`]     (default: --lib kernel)
#   tests/neon.sh --lib kernel -- --nocapture
#   QEMU_CPU=cortex-a57 tests/neon.sh    a core with NEON and no later extension
#
#   SHOAL_NEON_DIR       where the tools and the build go (default: target/neon);
#                        delete it to fetch newer tools
#   SHOAL_NEON_MANIFEST  the Cargo.toml to test (default: this crate's)
#
# The first run fetches about 220 MB of Debian packages and unpacks them into
# that folder (about 0.7 GB, and 0.4 GB of build). Nothing is installed and no
# setting of the system changes; root is not needed. It checks correctness:
# emulated time says nothing about speed.
set -euo pipefail

target=aarch64-unknown-linux-gnu
here=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
manifest=$(realpath -m "${SHOAL_NEON_MANIFEST:-$here/Cargo.toml}")
dir=$(realpath -m "${SHOAL_NEON_DIR:-$here/target/neon}")
root=$dir/root

say() { printf 'neon: %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }

[[ -f $manifest ]] || die "there is no $manifest"
# Cargo splits the runner's command line at blanks.
[[ $dir != *[[:space:]]* ]] || die "SHOAL_NEON_DIR must not contain blanks: $dir"
# `cc` links the build scripts and the procedural macros, which run on the host.
for tool in apt-get apt-cache dpkg dpkg-deb tar ldd cargo cc; do
    command -v "$tool" >/dev/null || die "'$tool' is missing (Debian 12 with cargo and a C compiler is needed)"
done
case $(dpkg --print-architecture) in
    amd64) ;;
    arm64) die "this machine has NEON itself: run 'cargo test'" ;;
    *) die "only amd64 hosts are supported" ;;
esac

# Fetch the packages and unpack them into $root.
fetch() {
    mkdir -p "$dir"
    # Global, because the trap runs after this function's locals are gone.
    stage=$(mktemp -d "$dir/fetch.XXXXXX")
    trap 'rm -rf "$stage"' EXIT
    mkdir -p "$stage"/{lists/partial,cache/archives/partial,debs,root/bin}
    : >"$stage/status"
    # The system's sources and keys, with package lists of our own: they have to
    # cover arm64 too, which the system's lists mostly do not.
    cat >"$stage/apt.conf" <<EOF
#clear APT::Architectures;
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
APT::Architecture "amd64";
APT::Architectures { "amd64"; "arm64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Dir::State::Lists "$stage/lists";
Dir::State::status "$stage/status";
Dir::Cache "$stage/cache";
EOF
    say "reading the package lists"
    # One broken source need not matter: the download decides.
    apt-get -qq -c "$stage/apt.conf" update >&2 || say "warning: not every package list could be read"

    field() { apt-cache -c "$stage/apt.conf" show --no-all-versions "$2" 2>/dev/null | sed -n "s/^$1: //p"; }
    # The first dependency of package $1 whose name matches $2.
    dependency() { field Depends "$1" | grep -oE "(^|[ ,])$2" | tr -d ' ,' | head -n 1; }

    # rustc-web is the recent compiler that Debian 12 builds its browsers with.
    # Its library for arm64 must be the very build, or rustc refuses it.
    local version std llvm gcc n
    version=$(field Version rustc-web:amd64) || true
    [[ -n $version ]] || die "the apt sources have no package rustc-web (Debian 12, main and security, has)"
    [[ -n $(field Version "libstd-rust-web-dev:arm64=$version") ]] ||
        die "the apt sources have no libstd-rust-web-dev:arm64 $version (is a source limited to amd64?)"
    # These names carry versions that move with security updates.
    std=$(dependency libstd-rust-web-dev:amd64 'libstd-rust-web-[0-9.]+') || die "cannot find rustc's library package"
    llvm=$(dependency "$std:amd64" 'libllvm[0-9]+') || die "cannot find the LLVM package of $std"
    gcc=$(dependency gcc-aarch64-linux-gnu:amd64 'gcc-[0-9]+-aarch64-linux-gnu') || die "cannot find a cross gcc"
    n=${gcc#gcc-} n=${n%%-*}

    say "fetching rustc-web $version, $gcc and qemu-user-static"
    # cpp-N holds cc1: build scripts of dependencies compile C and assembly.
    (cd "$stage/debs" && apt-get -qq -c "$stage/apt.conf" download >&2 \
        "rustc-web=$version" "$std=$version" "$llvm" \
        "libstd-rust-web-dev:amd64=$version" "libstd-rust-web-dev:arm64=$version" \
        "$gcc" "cpp-$n-aarch64-linux-gnu" binutils-aarch64-linux-gnu libbinutils libjansson4 \
        "libgcc-$n-dev-arm64-cross" libgcc-s1-arm64-cross \
        libc6-arm64-cross libc6-dev-arm64-cross linux-libc-dev-arm64-cross \
        qemu-user-static) || die "the download failed"

    say "unpacking"
    local deb pick
    for deb in "$stage"/debs/*.deb; do
        # Left out: documentation, link-time optimization, sanitizers, debuggers,
        # and 29 of QEMU's 30 architectures.
        pick=(--exclude=./usr/share --exclude=./usr/libexec --exclude='*/lto1'
            --exclude='*-lto-dump-*' --exclude='*/lib*san*')
        [[ $deb != */qemu-user-static_* ]] || pick=(./usr/bin/qemu-aarch64-static)
        dpkg-deb --fsys-tarfile "$deb" | tar -x --no-same-owner -C "$stage/root" "${pick[@]}"
    done

    # Each tool in a wrapper that finds its own libraries: exporting the library
    # path instead would hand them to every program that cargo starts.
    wrap() {
        cat >"$stage/root/bin/$1" <<EOF
#!/bin/sh
root=\$(dirname "\$0")/..
LD_LIBRARY_PATH=\$root/usr/lib/x86_64-linux-gnu\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH} exec $2 "\$@"
EOF
        chmod +x "$stage/root/bin/$1"
    }
    # shellcheck disable=SC2016 # The wrapper expands $root.
    {
        wrap rustc '"$root/usr/bin/rustc"'
        # libc.so is a linker script of absolute paths: hence --sysroot.
        wrap cc "\"\$root/usr/bin/aarch64-linux-gnu-gcc-$n\" \"--sysroot=\$root\""
        wrap ar '"$root/usr/bin/aarch64-linux-gnu-ar"'
    }
    # In one step, so that an interrupted run leaves no half of it.
    mv -T "$stage/root" "$root"
    rm -rf "$stage"
    trap - EXIT
}

[[ -d $root ]] || fetch

# Libraries every C compiler and LLVM need come from the system: name any it lacks.
missing=$(LD_LIBRARY_PATH=$root/usr/lib/x86_64-linux-gnu ldd \
    "$root"/usr/lib/x86_64-linux-gnu/lib{rustc_driver-*.so,LLVM*.so*} \
    "$root"/usr/bin/aarch64-linux-gnu-{as,ar,ld,gcc-[0-9]*} \
    "$root"/usr/lib/gcc-cross/aarch64-linux-gnu/*/{cc1,collect2} |
    sed -n 's/^[[:space:]]*\(.*\) => not found$/\1/p' | sort -u | tr '\n' ' ')
[[ -z $missing ]] || die "install the packages that hold these libraries: $missing"

# Flags and wrappers for the host's compiler would reach this one: another CPU,
# another version.
unset RUSTFLAGS CARGO_ENCODED_RUSTFLAGS CARGO_BUILD_RUSTFLAGS RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER

# This rustc compiles the host's part as well: cargo takes one compiler for both.
export RUSTC=$root/bin/rustc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=$root/bin/cc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$root/usr/bin/qemu-aarch64-static -L $root/usr/aarch64-linux-gnu"
export CC_aarch64_unknown_linux_gnu=$root/bin/cc
export AR_aarch64_unknown_linux_gnu=$root/bin/ar
# A build folder of its own: ordinary builds neither wait for it nor are undone.
export CARGO_TARGET_DIR=$dir/build
# Less to write: a failing test is debugged elsewhere.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0

(($#)) || set -- --lib kernel
say "$("$RUSTC" --version), $("$root/usr/bin/qemu-aarch64-static" --version | head -n 1)"
cd "$(dirname "$manifest")"
# Nearly all of the build is test dependencies that do little or nothing here.
exec cargo test --manifest-path "$manifest" --target "$target" \
    --config 'profile.test.package."*".opt-level=1' "$@"
