#!/bin/sh
# Ranks that mpirun starts: sums with the bits of one process, the predicted bytes, and runs that
# end on all ranks when one of them fails. Skipped, with a line, if MPI is missing.
: "${BUILDDIR:?is set by make check}"
build=$(cd "$BUILDDIR" && pwd) || exit 1
here=$(cd "$(dirname "$0")" && pwd) || exit 1
[ -f "$build/libeingrad-mpi.so" ] || { echo 'left out: configure found no MPI'; exit 0; }
command -v mpirun >/dev/null || { echo 'left out: there is no mpirun'; exit 0; }
# shellcheck source=tests/mpirun.sh
. "$here/mpirun.sh"
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
    # shellcheck disable=SC2086
    timeout "$seconds" $mpirun -n "$ranks" "$@" >out 2>err </dev/null
    status=$?
}
for p in 1 2 3 4; do
    on $p 60 "$build/tests/on_ranks" sum
    [ $status = 0 ] || bad "sum on $p ranks: status $status: $(cat out err)"
    [ "$(wc -l <out)" = 1 ] || bad "sum on $p ranks printed $(cat out)"
done
grep -q '^4 ranks: the bits of one' out || bad "sum on 4 ranks printed $(cat out)"
# a transformer over a divided length: the bits of the logits of one rank
for p in 1 2 3 4; do
    on $p 60 "$build/tests/on_ranks" model
    [ $status = 0 ] || bad "a model on $p ranks: status $status: $(cat out err)"
    [ $p = 1 ] && cp out model
    cmp -s out model || bad "a model on $p ranks: $(cat out), but on one rank $(cat model)"
done
grep -q '^logits [0-9a-f]*, loss [0-9]' model || bad "a model on one rank: $(cat model)"
for p in 2 3 4; do
    on $p 120 "$build/tests/on_ranks" warm
    if [ $status != 0 ] || ! grep -q '^warm steps call no allocator' out; then
        bad "warm steps on $p ranks: status $status: $(cat out err)"
    fi
done
# an error that one rank has in a backward pass, a loss or a step
for p in 1 2 3 4; do
    on $p 60 "$build/tests/on_ranks" fails
    if [ $status != 0 ] || ! grep -q '^every rank has the error of one' out; then
        bad "a rank fails, of $p: status $status: $(cat out err)"
    fi
done
# A rank that is killed, that exits, or that fails alone ends the run on all ranks, within 30 s and
# with an error message.
for end in killed exits leaves; do
    on 3 30 "$build/tests/on_ranks" $end
    if [ $status = 124 ] || { [ $status = 0 ] && { $tells || [ $end != exits ]; }; }; then
        bad "a rank $end: status $status"; fi
    [ -s err ] || ! $tells || bad "a rank $end: not a word"
done
# a rank that closes its group before the others do
on 2 30 "$build/tests/on_ranks" closes
if [ $status = 0 ] || ! grep -q 'rank 1 has closed the group, and this rank waits for a call' out
then bad "a rank closes: status $status: $(cat out err)"; fi
on 3 30 "$build/tests/on_ranks" tells
[ $status != 124 ] || bad 'an error that is told: still there after 30 s'
grep -q '^rank 1: an error of one rank' out || bad "an error that is told: $(cat out err)"
on 2 30 "$build/tests/on_ranks" differs
grep -q 'eg_flush of rank 0 are "off", but those of rank 1 "on"' out || bad "differ: $(cat out err)"
# eingrad train: one hash of the checkpoint for any number of ranks and threads, resumed or not
eingrad=$build/eingrad
train() { # train RANKS THREADS OUT OPTIONS...
    p=$1 threads=$2 file=$3; shift 3
    on "$p" 120 "$eingrad" train "$@" --threads "$threads" --out "$file"
    [ $status = 0 ] || bad "train on $p ranks: status $status: $(cat out err)"
    [ "$(grep -c 'seed 0, threads' out)" = 1 ] || bad "train on $p ranks: more than one rank prints"
}
small='--layers 1 --d-model 16 --heads 2 --batch 13 --block 2 --dropout 0.1 --clip 0.5 --goal 0'
# every row of the table of hashes, divided in one way (the whole: tests/ranks_table.sh)
BUILDDIR=$build STEPS=4 WAYS='turn 2x1 3x1 2x2 4x1 3x2' sh "$here/ranks_table.sh" >table 2>&1 ||
    bad "the table of hashes: $(cat table)"
count=$((count + $(grep -c '1x1' table)))
# files that are written during the run: every second step, and for the best loss
# shellcheck disable=SC2086
"$eingrad" train copy $small --steps 7 --every 2 --evaluate 3 --threads 1 --force --best one.best \
    --out one.safetensors >one.out 2>&1
# shellcheck disable=SC2086
train 3 1 many.safetensors copy $small --steps 7 --every 2 --evaluate 3 --best many.best
if ! cmp -s one.safetensors many.safetensors || ! cmp -s one.best many.best; then
    bad 'saved during the run: another checkpoint'; fi
# shellcheck disable=SC2086
train 2 1 part.safetensors addition $small --steps 2
train 3 1 part.safetensors --resume part.safetensors --steps 4
# shellcheck disable=SC2086
"$eingrad" train addition $small --steps 2 --threads 1 --out two.safetensors >out 2>&1
"$eingrad" train --resume two.safetensors --steps 4 --threads 1 >out 2>&1
cmp -s two.safetensors part.safetensors || bad 'resumed on other ranks: another checkpoint'
# shellcheck disable=SC2086
train 9 1 idle.safetensors copy $small --steps 2
grep -q '2 of them have nothing to compute: a batch has 7 leaves' out || bad "idle: $(cat out)"
# shellcheck disable=SC2016      # the rank is of the process that mpirun starts
on 2 30 sh -c "$rank"'exec "$0" train copy --steps 3 --seed $rank --out x' "$eingrad"
if [ $status = 0 ] || ! grep -q 'the options of rank 0 are' err; then
    bad "other options: status $status: $(cat err)"; fi
# Only one rank prints: errors of usage, of a file that one rank does not see, and other commands.
once() { # once WHAT WORDS-IN-ERR
    if [ $status = 0 ] || [ "$(grep -c '^eingrad: ' err)" != 1 ] || ! grep -q "^eingrad: .*$2" err
    then bad "$1: status $status: $(cat out err)"; fi
}
on 3 30 "$eingrad" train copy --stpes 3
once 'a wrong option' 'stpes'
on 3 30 "$eingrad" train copy --steps 3 --heads 3 --out x
once 'a wrong model' 'heads'
printf 'ab\tba\ncd\tdc\nef\tfe\n' >0.tsv
printf 'ab\tba\ncd\tdc\nfe\tef\n' >1.tsv
# shellcheck disable=SC2016
on 2 30 sh -c "$rank"'exec "$0" train --pairs $rank.tsv --steps 3 --out x' "$eingrad"
once 'other data' 'the data of rank 0 are "0.tsv, 3 examples'
# shellcheck disable=SC2016
on 3 30 sh -c "$rank"'test $rank = 2 && cd /; exec "$0" train --pairs 0.tsv --out x' \
    "$eingrad"
once 'data that one rank does not see' 'rank 2: .*0.tsv'
for k in 0 1; do "$eingrad" train copy --steps $((k + 2)) --out $k.safetensors >out 2>&1; done
# shellcheck disable=SC2016
on 2 30 sh -c "$rank"'exec "$0" train --resume $rank.safetensors --steps 5 --out x' \
    "$eingrad"
once 'another checkpoint' 'the steps done of rank 0 are "2", but those of rank 1 "3"'
# shellcheck disable=SC2016
on 3 30 sh -c "$rank"'test $rank = 2 && cd /; exec "$0" train --resume 0.safetensors' \
    "$eingrad"
once 'a checkpoint that one rank does not see' 'rank 2: .*0.safetensors'
# shellcheck disable=SC2016
on 2 30 sh -c "$rank"'exec "$0" train copy --out x --steps 3$(test $rank = 0 || echo x)' \
    "$eingrad"
once 'an option that only one rank refuses' 'rank 1: --steps must be an integer'
on 3 30 "$eingrad" info
if [ $status != 0 ] || [ "$(grep -c '^eingrad ' out)" != 1 ]; then bad "info: $(cat out err)"; fi
# Open MPI gives rank 0 a pseudo-terminal: no bar and no colours reach the file
on 2 30 "$eingrad" train copy --steps 2 --out bar.safetensors
if [ $status != 0 ] || grep -q "$(printf '\033')" out; then bad "a bar: $(cat -v out err)"; fi
# without the module
EINGRAD_MODULES=/nonexistent
on 2 30 "$build/tests/on_ranks" sum
grep -q 'there is no MPI for them' out || bad "without MPI: $(cat out err)"
[ $status != 0 ] || bad 'without MPI: status 0'
echo "$count runs of mpirun"
[ "$fails" = 0 ]
