#!/bin/sh
# fuzz.sh SECONDS [TARGET...]: libFuzzer on the functions that read bytes from outside, under
# address and undefined-behaviour sanitizers. Run it after ./quickstart build (which installs what
# is needed), with clang. The library is built in build-fuzz; findings and the corpus are in
# build-fuzz/fuzz/TARGET. As many targets run at a time as there are cores. Prints a line for each
# target with libFuzzer's cov, the number of edges of code that were reached. It is an error if that
# is below the target's minimum: then the seeds do not reach the function under test. libFuzzer's
# random numbers start at FUZZ_SEED (default 1), so that a tree is always tested with the same
# inputs; 0 takes others each time.
set -eu
seconds=${1:?seconds for each target}
shift
[ $# -gt 0 ] || set -- notation predicate expression npy npz dlpack safetensors checkpoint pairs \
    alias config
cd "$(dirname "$0")/.."
checks=address,undefined
[ -x configure ] || ./bootstrap
mkdir -p build-fuzz
cd build-fuzz
# Code that computes on tensors reads no foreign bytes and is not instrumented here: compiling would
# take twice the time, and the suites and mutate_checkpoint run it under sanitizers. configure.ac
# says why null and object-size are left out.
computes='attention|autograd|contraction|gradcheck|ops|ranks'
# shellcheck disable=SC2046      # a list of words
{ [ -f Makefile ] ||
    ../configure CC=clang \
    CFLAGS="-O1 -g -fsanitize=fuzzer-no-link,$checks -fno-sanitize=null,object-size" \
    LDFLAGS="-fsanitize=$checks" --disable-shared --enable-debug &&
    make -s -j"$(nproc)" CFLAGS=-O1 libkernels.la libtiles.la \
        $(grep -oE "lib/($computes)/libparts_la-[a-z0-9_]+\.lo" Makefile | sort -u) &&
    make -s -j"$(nproc)" libeingrad.la; } >build.log 2>&1 || { tail -n 40 build.log; exit 1; }

# compile TARGET PROGRAM FLAG...: a target with the library
compile() {
    target=$1 program=$2
    shift 2
    # shellcheck disable=SC2046      # a list of words
    clang -O1 -g -std=c11 -D_GNU_SOURCE -DHAVE_CONFIG_H -I. -I../include -I../lib "$@" \
        "../tests/fuzz/fuzz_$target.c" \
        .libs/libeingrad.a $(sed -n 's/^BLIS_LIBS = //p' Makefile) $(pkg-config --libs zlib) -lm \
            -lpthread -o "$program"
}

# seeds TARGET FOLDER: writes complete files of the target's format
seeds() {
    mkdir -p "$2"
    case $1 in
        npy) cp ../tests/data/*.npy "$2" ;;
        npz) cp ../tests/data/*.npz "$2" ;;
        safetensors)
            for name in exact wide f8; do cp "../tests/data/$name.safetensors" "$2"; done ;;
        checkpoint)
            compile checkpoint fuzz/make_checkpoint "-fsanitize=$checks" -DFUZZ_MAIN &&
                fuzz/make_checkpoint --seeds "$2" ;;
        config)
            for case in ../tests/data/models/*; do
                cp "$case/config.json" "$2/$(basename "$case")"
            done ;;
        *) cp "../tests/fuzz/seeds/$1"/* "$2" ;;
    esac
}

# the number of edges that the seeds reach, rounded down; new code increases it
floor() {
    case $1 in
        notation) echo 900 ;;
        predicate) echo 500 ;;
        expression) echo 4000 ;;
        npy) echo 500 ;;
        npz) echo 2000 ;;
        dlpack) echo 1200 ;;
        safetensors) echo 700 ;;
        checkpoint) echo 4000 ;;
        pairs) echo 400 ;;
        alias) echo 2000 ;;
        config) echo 1200 ;;
    esac
}

# fuzz TARGET: builds and runs it
fuzz() {
    target=$1
    mkdir -p "fuzz/$target"
    compile "$target" "fuzz/fuzz_$target" -fsanitize=fuzzer,$checks
    seeds "$target" "fuzz/seeds-$target"
    most=4096
    [ "$target" != checkpoint ] || most=65536
    "fuzz/fuzz_$target" -seed="${FUZZ_SEED:-1}" -max_total_time="$seconds" -max_len=$most \
        -artifact_prefix="fuzz/$target/found-" "fuzz/$target" "fuzz/seeds-$target" \
        >"fuzz/$target.log" 2>&1 || { tail -n 60 "fuzz/$target.log"; exit 1; }
    cov=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "fuzz/$target.log" | tail -n 1)
    echo "$target: cov ${cov:-0} (at least $(floor "$target")), $(tail -n 1 "fuzz/$target.log")"
    [ "${cov:-0}" -ge "$(floor "$target")" ] || {
        echo "fuzz.sh: $target reaches too few edges: do its seeds have the right format?" >&2
        exit 1; }
}

if [ $# = 1 ]; then
    fuzz "$1"
else # the library is built: each target in a shell of its own; 255 ends all
    # shellcheck disable=SC2016      # expanded by the inner shell
    printf '%s\n' "$@" |
        xargs -P "$(nproc)" -I{} sh -c '"$0" "$1" {} || exit 255' ../tests/fuzz.sh "$seconds"
fi
