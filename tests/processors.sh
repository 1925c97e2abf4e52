#!/bin/sh
# Tests of the library on other processors than this machine's:
#   tests/processors.sh aarch64 [SUITE...]    cross-built with Debian's compiler and libraries, run
#                                             by qemu's user mode
#   tests/processors.sh baseline [SUITE...]   x86-64 without AVX: built without clones, run here,
#                                             with glibc and BLIS restricted to SSE
#   tests/processors.sh CPU [SUITE...]        x86-64: build/tests/check_eingrad on qemu's model CPU,
#                                             Nehalem (SSE 4.2, no AVX), Haswell (AVX2), ...
# Runs the suites, then trains a little, and prints the hashes of the checkpoints. `all` names every
# suite; without a name baseline runs all of them, the others those below. qemu takes tens of times
# as long as a processor, so this is no part of `make check`. EG_BUILD_DIR: where it builds
# (build-aarch64, build-baseline). EG_SUITE_SECONDS: what a suite may take (600). EG_RUN_TEST,
# CK_RUN_CASE: a part of a suite (tests/main.c). Installs what is missing, as root or by sudo.
# `all` takes about 6 minutes for baseline. On aarch64 most suites take seconds to a minute each of
# a processor; train takes 40 minutes, divide 20, experiments 16, seq2seq 13, halves 7, copies 2.
# The trainings take 2 minutes more.
set -eu
cd "$(dirname "$0")/.."
cpu=${1:?aarch64, baseline, or a model of x86-64 that qemu-x86_64-static -cpu help lists}
shift
all=false
[ $# -gt 0 ] || [ "$cpu" != baseline ] || set -- all
[ $# -gt 0 ] || set -- build core tensor view spec einsum pair order plan softmax pointwise reduce \
    sort index loss npz rounding
[ "$*" != all ] || all=true
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
    # check's static library, since a static program is simplest to run in qemu
    (cd "$1/debs" && export APT_CONFIG="$1/apt.conf" && apt-get update &&
        apt-get download check libblis-openmp-dev libblis4-openmp libc6 libgcc-s1 libgomp1 \
            libjsmn-dev librandom123-dev libsubunit-dev libsubunit0 zlib1g zlib1g-dev) >/dev/null
    for deb in "$1"/debs/*.deb; do dpkg -x "$deb" "$1/root"; done
    # since Debian 13 libc6 has its loader below usr, and base-files the link that qemu follows
    [ -e "$1/root/lib" ] || ln -s usr/lib "$1/root/lib"
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
            --without-cairo CPPFLAGS="-isystem $root/usr/include -DSLOWER=5" \
            BLIS_CFLAGS="-I$root/usr/include/aarch64-linux-gnu/blis-openmp" BLIS_LIBS=-lblis \
            LDFLAGS="-L$lib/blis-openmp -L$lib -L$root/lib/aarch64-linux-gnu")
    make -s -C "$build" -j"$(nproc)" eingrad tests/check_eingrad
    export EG_SPECS="${EG_SPECS:-500}" EG_EXPRESSIONS="${EG_EXPRESSIONS:-200}"
    run() { timeout "$seconds" qemu-aarch64-static -L "$root" "$@"; }
elif [ "$cpu" = baseline ]; then
    build=${EG_BUILD_DIR:-build-baseline}
    mkdir -p "$build"
    build=$(cd "$build" && pwd)
    [ -f configure ] || ./bootstrap >/dev/null
    source=$PWD
    [ -f "$build/Makefile" ] || (
        cd "$build"
        "$source/configure" --disable-shared --without-mpi CPPFLAGS=-DNO_CLONES
        sed -i '/define HAVE_TARGET_CLONES/d' config.h)
    make -s -C "$build" -j"$(nproc)" eingrad tests/check_eingrad
    export GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX,-FMA,-FMA4 BLIS_ARCH_TYPE=generic
    run() { timeout "$seconds" "$@"; }
else
    need qemu-user-static
    build=$PWD/${EG_BUILD_DIR:-build}
    run() { timeout "$seconds" qemu-x86_64-static -cpu "$cpu" "$@" 2>"$build/qemu.log"; }
fi
export CK_TIMEOUT_MULTIPLIER=200 EG_SRCDIR="$PWD" OMP_NUM_THREADS=1
seconds=0
run "$build/eingrad" info
# shellcheck disable=SC2046      # a list of words
! $all || set -- $(run "$build/tests/check_eingrad" --list)
fails=0
for suite; do
    seconds=${EG_SUITE_SECONDS:-600}
    CK_FORK=no CK_RUN_SUITE=$suite run "$build/tests/check_eingrad" >"$build/suite-$suite.log" || {
        echo "$suite: failed, or took more than $seconds s"
        tail -n 20 "$build/suite-$suite.log"
        fails=$((fails + 1))
        continue
    }
    echo "$suite: $(grep '^[0-9]*%: ' "$build/suite-$suite.log")"
done
seconds=0
train() { # TASK OPTIONS...
    run "$build/eingrad" train "$@" --goal 0 --steps 12 --threads 1 --force \
        --out "$build/short.safetensors" >"$build/short.log"
    echo "train $*, 12 steps: $(sha256sum "$build/short.safetensors" | cut -c1-16)"
}
train copy --layers 1 --d-model 16 --heads 2 --batch 4
train reverse
[ $fails = 0 ]
