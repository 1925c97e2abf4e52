#!/bin/sh
# Two ranks of one thread compared with one process of two threads, in turns: tokens per second of a
# step, and the median of the ratios. On a quiet machine with at least two free cores:
#
#     BUILDDIR=build sh tests/ranks_time.sh [TURNS [OPTIONS OF TRAIN...]]    (15 turns of reverse)
: "${BUILDDIR:?the folder of the build}"
build=$(cd "$BUILDDIR" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd) || exit 1
turns=${1:-15}
[ $# = 0 ] || shift
[ $# != 0 ] || set -- reverse --steps 60 --goal 0
stage=$build/tests/stage/ranks_time
rm -rf "$stage" && mkdir -p "$stage" && cd "$stage" || exit 1
EINGRAD_MODULES=$build
export EINGRAD_MODULES
# shellcheck source=tests/mpirun.sh
. "$here/mpirun.sh"
# the median of the steps' rates, without the first ten
rate_of() {
    sed -n 's/.*"tokens_per_second": \([0-9]*\).*/\1/p' "$1" | sed 1,10d | sort -n |
        awk '{ r[NR] = $1 } END { print NR ? r[int((NR + 1) / 2)] : 0 }'
}
seq "$turns" | while read -r _; do
    rm -f ./*.safetensors ./*.log
    "$build/eingrad" train "$@" --threads 2 --log one.log --out one.safetensors >out 2>&1 ||
        { cat out; exit 1; }
    # shellcheck disable=SC2086
    $mpirun -n 2 "$build/eingrad" train "$@" --threads 1 --log two.log --out two.safetensors \
        >out 2>&1 </dev/null || { cat out; exit 1; }
    echo "$(rate_of one.log) $(rate_of two.log)"
done | sort -k1n | awk '
    { one[NR] = $1; ratio[NR] = $2 / $1; printf "two threads %d tokens/s, two ranks %d: %.2f\n",
      $1, $2, ratio[NR] }
    END {
        for (i = 1; i <= NR; i++) for (j = i + 1; j <= NR; j++)
            if (ratio[j] < ratio[i]) { x = ratio[i]; ratio[i] = ratio[j]; ratio[j] = x }
        printf "median of %d ratios: %.2f\n", NR, ratio[int((NR + 1) / 2)]
    }'
