#!/bin/sh
# The table of hashes: tasks, one of them with --diversity, pairs and a text, trained by 1 … 4 ranks
# of 1 and 2 threads. A row is one run, whose checkpoint must have the same bytes however it is
# divided. tests/ranks.sh runs a short form, in which each row is divided in one way; the complete
# one takes about 15 minutes:
#
#     BUILDDIR=build sh tests/ranks_table.sh
#
# STEPS: of each run (12). WAYS: RANKSxTHREADS, a word each; "turn": one of them for each row.
: "${BUILDDIR:?the folder of the build}"
build=$(cd "$BUILDDIR" && pwd) || exit 1
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
steps=${STEPS:-12} ways=${WAYS:-1x2 2x1 2x2 3x1 3x2 4x1 4x2}
stage=$build/tests/stage/ranks_table
rm -rf "$stage" && mkdir -p "$stage" && cd "$stage" || exit 1
EINGRAD_MODULES=$build
export EINGRAD_MODULES
# shellcheck source=tests/mpirun.sh
. "$top/tests/mpirun.sh"
fails=0 row=0
hash_of() { sha256sum "$1" 2>/dev/null | cut -c1-16; }
# run RANKS THREADS FILE OPTIONS...: a checkpoint in FILE; what was printed in out
run() {
    ranks=$1 threads=$2 file=$3; shift 3
    rm -f "$file"
    # the same words under mpirun, from which rank 0 takes its threads
    set -- "$build/eingrad" train "$@" --threads "$threads" --steps "$steps" --out "$file"
    if [ "$ranks" != 1 ]; then # shellcheck disable=SC2086
        set -- $mpirun -n "$ranks" "$@"; fi
    timeout 300 "$@" >out 2>&1 </dev/null || { cat out; fails=$((fails + 1)); }
}
# table NAME OPTIONS...: a row
table() {
    name=$1; shift
    row=$((row + 1))
    run 1 1 one.safetensors "$@"
    want=$(hash_of one.safetensors)
    mine=$ways
    if [ "${ways%% *}" = turn ]; then # shellcheck disable=SC2086
        mine=$(set -- $ways; shift "$((1 + row % ($# - 1)))"; echo "$1"); fi
    printf '%-22s %s  1x1' "$name" "$want"
    for way in $mine; do
        run "${way%x*}" "${way#*x}" many.safetensors "$@"
        if [ -n "$want" ] && [ "$(hash_of many.safetensors)" = "$want" ]; then
            printf ' %s' "$way"
        else
            printf ' %s:DIFFERS' "$way"
            fails=$((fails + 1))
        fi
    done
    echo
}
small='--d-model 32 --heads 2 --batch 21 --block 2 --dropout 0.1 --clip 0.5 --goal 0 --evaluate 5'
for task in reverse copy sort addition parity recall induction majority; do
    # shellcheck disable=SC2086
    table "$task" "$task" --layers 1 $small
done
# shellcheck disable=SC2086
table 'copy, seq2seq' copy --model seq2seq --layers 1 $small
# shellcheck disable=SC2086
table 'copy, diversity' copy --diversity 0.5 --layers 2 $small
# shellcheck disable=SC2086
table 'pairs' --pairs "$top/examples/data/dates.tsv" --layers 1 $small
# shellcheck disable=SC2086
table 'a text' --text "$top/docs/design.md" --layers 2 --context 32 $small
[ "$fails" = 0 ] && echo "$row rows: one hash each"
[ "$fails" = 0 ]
