#!/bin/sh
# Runs the programs of examples/reproduce at a size of seconds; each has to come to its figure, to
# stand on the public headers alone, to have at most 150 lines, and to be in docs/reproduce.md.
fails=0
bad() { echo "$*"; fails=$((fails + 1)); }
out=$BUILDDIR/tests/stage/reproduce
rm -rf "$out" && mkdir -p "$out" || exit 1
for program in $REPRODUCE; do
    name=${program##*/}
    log=$out/$name.log
    "$BUILDDIR/$program" --small --pictures "$out" >"$log" 2>&1 </dev/null ||
        { bad "$name --small: exit status $?"; tail -n 5 "$log"; }
    grep -q "^row | $name |.*| reproduced |" "$log" || bad "$name: no row of the table"
    [ "$(wc -l <"$EG_SRCDIR/$program.c")" -le 150 ] || bad "$name: more than 150 lines"
    grep -q "^## .*\`$name\`" "$EG_SRCDIR/docs/reproduce.md" || bad "docs/reproduce.md: no $name"
done
for file in "$EG_SRCDIR"/examples/reproduce/*.[ch]; do
    ! grep -n '^ *# *include *"' "$file" | grep -v '"reproduce.h"$\|"machine.h"$' ||
        bad "$file: includes another header than public ones"
done
# A figure that is not reached is not called reproduced, and options are read.
first=$BUILDDIR/${REPRODUCE%% *}
"$first" --no-such >"$out/refused.log" 2>&1 && bad 'an option that is not there was taken'
[ "$fails" = 0 ] || exit 1
# shellcheck disable=SC2086      # a list of words
set -- $REPRODUCE
echo "$# figures at a small size"
