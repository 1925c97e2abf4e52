#!/bin/sh
# Kills one of three ranks at a random moment of a run, repeatedly. Each time all processes must end
# within 30 s, with an error message; the last checkpoint must be complete, and must continue to the
# bytes of an undisturbed run, on 1, 2 or 3 ranks.
#
#     BUILDDIR=build sh tests/ranks_kill.sh [TIMES [SEED]]       (20 times: about 5 minutes)
: "${BUILDDIR:?the folder of the build}"
build=$(cd "$BUILDDIR" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd) || exit 1
times=${1:-20} seed=${2:-$$}
stage=$build/tests/stage/ranks_kill
rm -rf "$stage" && mkdir -p "$stage" && cd "$stage" || exit 1
EINGRAD_MODULES=$build
export EINGRAD_MODULES
fails=0
bad() { echo "FAILED, kill $k: $*"; fails=$((fails + 1)); }
# rolls a number below $1, from the seed
roll() { seed=$(((seed * 1103515245 + 12345) % 2147483648)); rolled=$((seed / 65536 % $1)); }
now() { date +%s%N; }
# true while the process computes; one that has ended may wait for its parent
alive() { grep -q '^State:[[:space:]]*[^ZX]' "/proc/$1/status" 2>/dev/null; }
train='train addition --layers 1 --d-model 32 --heads 2 --batch 24 --block 2 --goal 0 --every 1'
train="$train --evaluate 10 --threads 1 --steps 120"
# shellcheck source=tests/mpirun.sh
. "$here/mpirun.sh"
on="$mpirun -n"
begin=$(now)
# shellcheck disable=SC2086
$on 3 "$build/eingrad" $train --best whole.best --out whole.safetensors >out 2>err </dev/null ||
    { cat out err; exit 1; }
long=$((($(now) - begin) / 1000000))
none=0 before=0 slowest=0
for k in $(seq "$times"); do
    rm -f part.safetensors part.best
    # shellcheck disable=SC2086
    $on 3 "$build/eingrad" $train --best part.best --out part.safetensors >out 2>err </dev/null &
    mpi=$!
    roll "$long"; late=$rolled
    roll 3; which=$rolled
    sleep "$((late / 1000)).$(printf %03d $((late % 1000)))"
    # mpirun's children are the ranks, in their order
    victim=$(pgrep -P "$mpi" | sort -n | sed -n "$((which + 1))p")
    all=$(pgrep -P "$mpi")
    if [ -z "$victim" ] || ! kill -9 "$victim" 2>/dev/null; then
        wait "$mpi"; before=$((before + 1)) # not begun, or over
    else
        killed=$(now)
        wait "$mpi" && bad "rank $which after $late ms: status 0"
        for one in $all; do # mpirun has told them to end
            while alive "$one" && [ $((($(now) - killed) / 1000000)) -lt 30000 ]; do
                sleep 0.1
            done
            alive "$one" && bad "process $one is still there"
        done
        took=$((($(now) - killed) / 1000000))
        [ "$took" -lt 30000 ] || bad "rank $which after $late ms: $took ms until the end"
        [ "$took" -le "$slowest" ] || slowest=$took
        [ -s err ] || bad "rank $which after $late ms: not a word"
    fi
    if [ ! -f part.safetensors ]; then
        none=$((none + 1))
        continue
    fi
    roll 3
    # shellcheck disable=SC2086
    $on $((rolled + 1)) "$build/eingrad" train --resume part.safetensors --every 1 --threads 1 \
        --best part.best >out 2>err </dev/null || bad "it does not go on: $(cat out err)"
    cmp -s whole.safetensors part.safetensors || bad "after $late ms it goes on to other bytes"
    [ -z "$(find . -name '.eingrad-*' | head -1)" ] || bad 'a temporary file is left'
done
echo "$times kills in $long ms: $before outside the run, $none before the first checkpoint;" \
    "the slowest end took $slowest ms"
[ "$fails" = 0 ]
