#!/bin/sh
# Runs the programs of examples/reproduce at a small size; each must reproduce its figure, include
# public headers only, have at most 150 lines, and be described in docs/reproduce.md.
fails=0
bad() { echo "$*"; fails=$((fails + 1)); }
out=$BUILDDIR/tests/stage/reproduce
rm -rf "$out" && mkdir -p "$out" || exit 1
# shellcheck disable=SC2086      # a list of words
printf '%s\n' $REPRODUCE | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I PROGRAM sh -c "
    name=\$(basename PROGRAM)
    '$BUILDDIR/PROGRAM' --small --pictures '$out' >'$out'/\$name.log 2>&1 </dev/null
    echo \$? >'$out'/\$name.status"
for program in $REPRODUCE; do
    name=${program##*/}
    log=$out/$name.log
    [ "$(cat "$out/$name.status")" = 0 ] ||
        { bad "$name --small: exit status $(cat "$out/$name.status")"; tail -n 5 "$log"; }
    grep -q "^row | $name |.*| as expected of a small size |" "$log" ||
        bad "$name: no row of the table"
    [ "$(wc -l <"$EG_SRCDIR/$program.c")" -le 150 ] || bad "$name: more than 150 lines"
    grep -q "^## .*\`$name\`" "$EG_SRCDIR/docs/reproduce.md" || bad "docs/reproduce.md: no $name"
done
sed -n 's/^ *# *include *"\(.*\)"/\1/p' "$EG_SRCDIR"/examples/reproduce/*.[ch] | sort -u |
    while read -r header; do
        [ -f "$EG_SRCDIR/examples/reproduce/$header" ] || echo "$header"
    done >"$out/headers"
[ ! -s "$out/headers" ] || bad "neither public headers nor of the folder: $(cat "$out/headers")"

# The verdict follows from the numbers: a study whose number is its seed.
cat >"$out/verdict.c" <<'END'
#include "reproduce.h"
static double run(const setting *s) { return s->seed < 9 ? (double)s->seed : NAN; }
int main(int argc, char **argv)
{
    const study y = { .name = "verdict", .published = "p", .source = "s", .measure = "seed",
                      .bound = 2, .run = run };
    return reproduce(&y, argc, argv);
}
END
# shellcheck disable=SC2086      # lists of words
$CC -std=c11 -D_GNU_SOURCE $SANITIZER_CFLAGS -I"$EG_SRCDIR/include" \
    -I"$EG_SRCDIR/examples/reproduce" -o "$out/verdict" "$out/verdict.c" -lm || bad 'verdict.c'
gives() { # gives STATUS TEXT OPTION...
    status=$1 text=$2
    shift 2
    "$out/verdict" "$@" >"$out/verdict.log" 2>&1
    [ $? = "$status" ] || bad "verdict $*: not status $status"
    grep -qF "$text" "$out/verdict.log" || { bad "no '$text'"; cat "$out/verdict.log"; }
}
gives 0 'seed: 1 (0 … 2, 3 seeds) | reproduced |' --seeds 3
gives 1 'seed: 2 (0 … 4, 5 seeds) | in 3 of 5 seeds |'
gives 1 'seed: 3.5 (3 … 4, 2 seeds) | not reproduced |' --seeds 2 --first 3
gives 0 'seed: 0 | reproduced |' --quick
gives 2 'seed 8' --seeds 2 --first 8
gives 2 'no option --no-such' --no-such
gives 2 '1 to 64 seeds' --seeds 65
gives 2 '1 to 64 seeds' --seeds 3,5
gives 2 '1 to 64 seeds' --first x
gives 2 '1 to 1024 threads' --threads 0
if [ -c /dev/full ]; then
    "$out/verdict" >/dev/full 2>"$out/verdict.log"
    if [ $? != 2 ] || ! grep -q 'standard output' "$out/verdict.log"; then
        bad 'no status 2 on a full disk'
    fi
fi
[ "$fails" = 0 ] || exit 1
# shellcheck disable=SC2086      # a list of words
set -- $REPRODUCE
echo "$# figures at a small size"
