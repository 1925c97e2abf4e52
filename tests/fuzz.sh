#!/bin/sh
# fuzz.sh SECONDS [TARGET...]: libFuzzer on what reads bytes from outside, under address and undefined-behaviour sanitizers.
# After ./quickstart build (it installs what is needed) and with clang. The library is built in build-fuzz; what it finds stays in build-fuzz/fuzz/TARGET, beside what it learned.
set -eu
seconds=${1:?seconds for each target}
shift
[ $# -gt 0 ] || set -- notation npy safetensors
cd "$(dirname "$0")/.."
checks=address,undefined
[ -x configure ] || ./bootstrap
mkdir -p build-fuzz
cd build-fuzz
{ [ -f Makefile ] || ../configure CC=clang CFLAGS="-O1 -g -fsanitize=fuzzer-no-link,$checks" LDFLAGS="-fsanitize=$checks" --disable-shared --enable-debug &&
    make -s -j"$(nproc)" libeingrad.la; } >build.log 2>&1 || { tail -n 40 build.log; exit 1; }
for target; do
    mkdir -p "fuzz/$target"
    # shellcheck disable=SC2046      # a list of words
    clang -O1 -g -std=c11 -D_GNU_SOURCE -DHAVE_CONFIG_H -I. -I../include -I../lib -fsanitize=fuzzer,$checks "../tests/fuzz/fuzz_$target.c" \
        .libs/libeingrad.a $(sed -n 's/^BLIS_LIBS = //p' Makefile) $(pkg-config --libs jansson libpng) -lm -lpthread -o "fuzz/fuzz_$target"
    seeds=
    [ "$target" = notation ] || seeds=../tests/data
    "fuzz/fuzz_$target" -max_total_time="$seconds" -max_len=512 -artifact_prefix="fuzz/$target/found-" "fuzz/$target" $seeds >"fuzz/$target.log" 2>&1 ||
        { tail -n 60 "fuzz/$target.log"; exit 1; }
    echo "$target: $(tail -n 1 "fuzz/$target.log")"
done
