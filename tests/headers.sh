#!/bin/sh
# Every public header compiles alone, as C11 and as C++17, without a warning, and also where the
# user has macros of one letter.
fails=0 count=0
program=$BUILDDIR/tests/headers.tmp
compile() {                             # compile WHAT COMMAND...
    what=$1; shift
    count=$((count + 1))
    "$@" -Wall -Wextra -Wshadow -pedantic -Werror -I"$SRCDIR/include" -fsyntax-only "$program" ||
        { fails=$((fails + 1)); echo "in: $what"; }
}
for path in "$SRCDIR"/include/eingrad.h "$SRCDIR"/include/eingrad/*.h; do
    header=${path#"$SRCDIR"/include/}
    flags='' casts=-Wold-style-cast
    [ "$header" != eingrad/check.h ] || { flags=$CHECK_CFLAGS casts=''; }     # with code of C
    for macros in '' '#define N 64
#define H 8
#define B 2
#define T 10
#define D 4
'; do
        what="$header${macros:+ after #define N 64 …}"
        printf '%s#include <%s>\ntypedef int not_empty;\n' "$macros" "$header" >"$program"
        # shellcheck disable=SC2086  # CC, CXX and flags are lists of words
        compile "C11, $what" $CC $flags -std=c11 -Wmissing-prototypes -x c
        # shellcheck disable=SC2086
        [ "$CXX" = no ] || compile "C++17, $what" $CXX $flags $casts -std=c++17 -x c++
    done
    lines=$(wc -l <"$path")
    [ "$lines" -lt 450 ] || {
        fails=$((fails + 1)); echo "$header has $lines lines; a public header has less than 450"; }
done
# Each function-like macro of C is a function in C++.
if [ "$CXX" != no ]; then
    for path in "$SRCDIR"/include/eingrad/*.h; do
        [ "${path##*/}" = check.h ] || echo "$path"
    done >"$program.list"
    sed 's,.*/,#include <eingrad/,; s,$,>,' "$program.list" >"$program"
    # shellcheck disable=SC2086
    functions=$($CXX -std=c++17 -E -P -I"$SRCDIR/include" -x c++ "$program")
    names=$(xargs sed -n 's/^#define \(eg_[a-z0-9_]*\)(.*/\1/p' <"$program.list" | sort -u)
    rm "$program.list"
    for name in $names; do
        echo "$functions" | grep -q "[ *]$name(" || {
            fails=$((fails + 1)); echo "$name is a macro in C but not a function in C++"; }
    done
fi
rm "$program"
[ "$CXX" != no ] || echo 'left out: C++, since there is no C++ compiler'
echo "$count compilations"
[ "$fails" = 0 ]
