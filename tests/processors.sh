#!/bin/sh
# The library on processors that this machine is not, by qemu's user mode:
#   tests/processors.sh aarch64 [SUITE...]    cross-built with Debian's compiler and libraries
#   tests/processors.sh CPU [SUITE...]        x86-64: build/tests/check_eingrad on qemu's model CPU,
#                                             Nehalem (SSE 4.2, no AVX), Haswell (AVX2), ...
# Runs the suites (default: below), then a short training, and prints the hash of its checkpoint.
# It takes some minutes of a quiet core, so it is no part of `make check`. EG_BUILD_DIR: where it
# builds (build-aarch64). Installs what is missing, as root or by sudo.
set -eu
cd "$(dirname "$0")/.."
cpu=${1:?aarch64, or a model of x86-64 that qemu-x86_64-static -cpu help lists}
shift
[ $# -gt 0 ] || set -- build core tensor view spec einsum pair order plan softmax pointwise reduce \
    sort index loss npz rounding
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
need() {
    for package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed &&
            continue
        as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -y --no-install-recommends "$@"
        return
    done
} >/dev/null

# foreign FOLDER: unpacks Debian's libraries for arm64, as apt finds them for a system of its own in
# FOLDER; this one gets no second architecture
foreign() {
    [ ! -e "$1/root/.complete" ] || return 0
    mkdir -p "$1/lists/partial" "$1/cache/archives/partial" "$1/debs" "$1/root"
    : >"$1/status"
    # shellcheck source=/dev/null
    codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg]" \
        "http://deb.debian.org/debian $codename main" >"$1/sources"
    printf '%s\n' "Dir::State \"$1\";" "Dir::State::status \"$1/status\";" \
        "Dir::Cache \"$1/cache\";" "Dir::Etc::SourceList \"$1/sources\";" \
        'Dir::Etc::SourceParts "-";' 'APT::Architecture "arm64";' \
        'APT::Architectures { "arm64"; };' 'APT::Sandbox::User "root";' >"$1/apt.conf"
    # check's static library, since a program of qemu is simplest without
    (cd "$1/debs" && export APT_CONFIG="$1/apt.conf" && apt-get update &&
        apt-get download check libblis-openmp-dev libblis4-openmp libc6 libgcc-s1 libgomp1 \
            libjsmn-dev librandom123-dev libsubunit-dev libsubunit0 zlib1g zlib1g-dev) >/dev/null
    for deb in "$1"/debs/*.deb; do dpkg -x "$deb" "$1/root"; done
    : >"$1/root/.complete"
}

if [ "$cpu" = aarch64 ]; then
    need gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
    build=${EG_BUILD_DIR:-build-aarch64}
    mkdir -p "$build"
    build=$(cd "$build" && pwd)
    foreign "$build/debian"
    root=$build/debian/root
    lib=$root/usr/lib/aarch64-linux-gnu
    [ -f configure ] || ./bootstrap >/dev/null
    [ -f "$build/Makefile" ] || (
        source=$PWD
        cd "$build"
        PKG_CONFIG_LIBDIR=$lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root \
            "$source/configure" --host=aarch64-linux-gnu --disable-shared --without-mpi \
            --without-cairo CPPFLAGS="-isystem $root/usr/include" \
            BLIS_CFLAGS="-I$root/usr/include/aarch64-linux-gnu/blis-openmp" BLIS_LIBS=-lblis \
            LDFLAGS="-L$lib/blis-openmp -L$lib -L$root/lib/aarch64-linux-gnu")
    make -s -C "$build" -j"$(nproc)" eingrad tests/check_eingrad
    run() { qemu-aarch64-static -L "$root" "$@"; }
else
    need qemu-user-static
    build=$PWD/${EG_BUILD_DIR:-build}
    run() { qemu-x86_64-static -cpu "$cpu" "$@" 2>"$build/qemu.log"; }
fi
export CK_TIMEOUT_MULTIPLIER=200 EG_SRCDIR="$PWD" OMP_NUM_THREADS=1
run "$build/eingrad" info
fails=0
for suite; do
    CK_FORK=no CK_RUN_SUITE=$suite run "$build/tests/check_eingrad" >"$build/suite-$suite.log" ||
        { fails=$((fails + 1)); tail -n 20 "$build/suite-$suite.log"; continue; }
    echo "$suite: $(tail -n 1 "$build/suite-$suite.log")"
done
run "$build/eingrad" train copy --layers 1 --d-model 16 --heads 2 --batch 4 --steps 12 --goal 0 \
    --threads 1 --force --out "$build/short.safetensors" >"$build/short.log"
echo "train copy, 12 steps: $(sha256sum "$build/short.safetensors" | cut -c1-16)"
[ $fails = 0 ]
