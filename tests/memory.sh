#!/bin/sh
# Processes without enough memory: every command of the program, where allocation number n fails,
# alone or together with all later ones. Each run must end with 0, or with an exit status of 1 to
# 125 and an error message, but not by a signal or by a timeout.
#   STRIDE=1 tests every n of every command (minutes); otherwise about 12 of each.
#   BUILDDIR and CC as `make check` sets them; nothing is tested under sanitizers, which have their
#   own allocators.
[ -z "$SANITIZER_CFLAGS" ] || { echo 'left out: sanitizers have their own allocators'; exit 0; }
stage=$(mktemp -d) || exit 1
trap 'rm -rf "$stage"' EXIT
eingrad=$(cd "$BUILDDIR" && pwd)/eingrad
$CC -O1 -shared -fPIC "$EG_SRCDIR/tests/refuse.c" -o "$stage/refuse.so" || exit 1
cd "$stage" || exit 1
export LD_PRELOAD="$stage/refuse.so"
runs=0 bad=0

# run ENVIRONMENT... -- COMMAND...: one run, and a test of its end
run() {
    rm -f new.*
    timeout 60 env "$@" </dev/null >out 2>err
    status=$?
    runs=$((runs + 1))
    [ $status = 0 ] && return
    if grep -qE 'is not a JSON object|is no log|is no checkpoint' err; then
        echo "a good file is called a bad one: env $*: $(cat err)"; bad=$((bad + 1)); fi
    if [ $status -gt 125 ] && ! grep -q 'error while loading shared libraries' err; then
        echo "exit status $status: env $*"; bad=$((bad + 1))
    elif [ $status -ne 0 ] && ! [ -s err ]; then
        echo "no error message, exit status $status: env $*"; bad=$((bad + 1))
    fi
}
# each COMMAND...: counts its allocations, then lets each n-th fail in turn, from an offset that
# differs between commands
offset=1
each() {
    rm -f new.* count
    EG_REFUSE_LOG=count "$eingrad" "$@" </dev/null >out 2>err || {
        echo "$*: exit status $?: $(cat err)"; bad=$((bad + 1)); return; }
    read -r total <count
    step=${STRIDE:-$((total / 12 + 1))}
    n=$(((offset - 1) % step + 1))
    while [ "$n" -le "$total" ]; do
        run EG_REFUSE=$n "$eingrad" "$@"
        run EG_REFUSE=$n EG_REFUSE_ALL=1 "$eingrad" "$@"
        n=$((n + step))
    done
    offset=$((offset + 1))
    [ -z "$STRIDE" ] || echo "$total allocations: $*"
}

tiny='--layers 1 --d-model 16 --heads 2 --batch 8 --goal 0 --threads 2'
printf 'the quick brown fox jumps over the lazy dog. %.0s' 1 2 3 4 5 6 7 8 9 10 >text.txt
awk 'BEGIN { for (k = 0; k < 60; k++) print "a" k "\tb" k }' >pairs.tsv
# shellcheck disable=SC2086   # a list of words
{
    "$eingrad" train reverse $tiny --steps 4 --out old.st --log old.json >out 2>err || {
        cat err; exit 1; }
    "$eingrad" train --text text.txt $tiny --context 8 --steps 4 --out text.st >out 2>err || {
        cat err; exit 1; }
    each train reverse $tiny --steps 3 --evaluate 2 --out new.st --best new.best --log new.json \
        --curve new.svg
    each train --pairs pairs.tsv $tiny --steps 2 --model seq2seq --out new.st
    each train --text text.txt $tiny --context 8 --steps 2 --out new.st
}
unset LD_PRELOAD
write_npy() { printf '\223NUMPY\001\000\166\000%-117s\n' \
    "{'descr': '<f4', 'fortran_order': False, 'shape': ($1,$1), }" &&
    head -c $((4 * $1 * $1)) /dev/zero; }
write_npy 8 >a.npy
write_npy 300 >b.npy
export LD_PRELOAD="$stage/refuse.so"
each predict old.st abc
"$eingrad" info | grep -q "no cairo" || each attend old.st abc -o new.png
each attend old.st abc -o new.svg
each curve old.json -o new.svg
each compare old.st old.st --input abc
each grid copy --layers 1 --d-model 16 --heads 2 --steps 1 --seeds 1 --jobs 1 --out grid
each evaluate old.st
each generate text.st --length 5
each einsum ij,jk-\>ik a.npy a.npy -o new.npy
each einsum ij,jk-\>ik b.npy b.npy -o new.npy
each explain ibhd,jbhd-\>ijbh 2x1x2x4 3x1x2x4
each gradcheck ij,jk-\>ik 3x4 4x2
each mask 'j <= i' i=4 j=4
each ops
each info
[ $bad = 0 ] || { echo "$bad of $runs runs crash, time out or have no error message"; exit 1; }
echo "$runs runs, each with an allocation refused"
