#!/bin/sh
# Ranks that mpirun starts: sums with the bits of one process, bytes as predicted, and runs that end
# on all ranks when one of them fails. Left out, with a line, where MPI is missing.
: "${BUILDDIR:?is set by make check}"
build=$(cd "$BUILDDIR" && pwd) || exit 1
[ -f "$build/libeingrad-mpi.so" ] || { echo 'left out: configure found no MPI'; exit 0; }
command -v mpirun >/dev/null || { echo 'left out: there is no mpirun'; exit 0; }
stage=$build/tests/stage/ranks
rm -rf "$stage" && mkdir -p "$stage" && cd "$stage" || exit 1
EINGRAD_MODULES=$build
export EINGRAD_MODULES
fails=0 count=0
bad() { echo "FAILED: $*"; fails=$((fails + 1)); }
# on RANKS SECONDS COMMAND...: status in $status, output in out and err
on() {
    ranks=$1 seconds=$2; shift 2
    count=$((count + 1))
    timeout "$seconds" mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$ranks" "$@" \
        >out 2>err </dev/null
    status=$?
}
for p in 1 2 3 4; do
    on $p 60 "$build/tests/on_ranks" sum
    [ $status = 0 ] || bad "sum on $p ranks: status $status: $(cat out err)"
    [ "$(wc -l <out)" = 1 ] || bad "sum on $p ranks printed $(cat out)"
done
grep -q '^4 ranks: the bits of one' out || bad "sum on 4 ranks printed $(cat out)"
# A rank that is killed, that exits, or that fails alone ends the run on all ranks, within 30 s and
# with a sentence.
for end in killed exits leaves; do
    on 3 30 "$build/tests/on_ranks" $end
    if [ $status = 0 ] || [ $status = 124 ]; then bad "a rank $end: status $status"; fi
    [ -s err ] || bad "a rank $end: not a word"
done
on 3 30 "$build/tests/on_ranks" tells
[ $status != 124 ] || bad 'an error that is told: still there after 30 s'
grep -q '^rank 1: an error of one rank' out || bad "an error that is told: $(cat out err)"
on 2 30 "$build/tests/on_ranks" differs
grep -q 'eg_flush of rank 0 are "off", but those of rank 1 "on"' out || bad "differ: $(cat out err)"
# without the module
EINGRAD_MODULES=/nonexistent
on 2 30 "$build/tests/on_ranks" sum
grep -q 'there is no MPI for them' out || bad "without MPI: $(cat out err)"
[ $status != 0 ] || bad 'without MPI: status 0'
echo "$count runs of mpirun"
[ "$fails" = 0 ]
