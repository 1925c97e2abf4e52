#!/bin/sh
# Compiles the ```c blocks of README.md and docs/*.md, and runs those with `int main(`, which have
# to end with status 0, so that what is shown works.
#   A block with `int main(`, or with a line that begins with `static ` or `START_TEST(`, is a file;
#   any other is the inside of a function. The usual headers are included. Names that the text
#   assumes are declared in a comment right above the fence, which readers do not see:
#   <!-- given: eg_tensor *x, *q; int64_t B = 2; -->   A block not to be compiled is not marked c.
tmp=$BUILDDIR/tests/stage/docblocks
rm -rf "$tmp" && mkdir -p "$tmp" || exit 1
for doc in "$SRCDIR"/README.md "$SRCDIR"/docs/*.md; do
    [ -f "$doc" ] || continue
    awk -v name="${doc#"$SRCDIR"/}" -v out="$tmp" '
        function flush_block() {
            file = out "/" base "." ++n ".c"
            print "#include <eingrad.h>\n#include <eingrad/check.h>" > file
            print "#include <err.h>\n#include <math.h>\n#include <stdio.h>" > file
            print "#include <stdlib.h>\n#include <string.h>\n" given > file
            if (!whole) print "void block(void);\nvoid block(void)\n{" > file
            printf "#line %d \"%s\"\n%s", first, name, text > file
            if (!whole) print "}" > file
            close(file)
        }
        BEGIN { base = name; gsub("/", "_", base) }
        in_c && /^```/ { in_c = 0; flush_block(); given = ""; next }
        in_c { text = text $0 "\n"; if (/^static |^START_TEST\(|int main\(/) whole = 1; next }
        /^```c *$/ { in_c = 1; text = ""; whole = 0; first = NR + 1; next }
        /^<!-- given:.*-->/ {
            given = $0; sub(/^<!-- given:/, "", given); sub(/-->.*$/, "", given); next }
        NF { given = "" }' "$doc"
done
fails=0 count=0 programs=0
for block in "$tmp"/*.c; do
    [ -f "$block" ] || continue
    count=$((count + 1))
    # shellcheck disable=SC2086  # CC and flags are lists of words
    $CC $CHECK_CFLAGS -std=c11 -D_GNU_SOURCE -I"$SRCDIR/include" -Wall -Wextra -Wno-unused -Werror \
        -fsyntax-only "$block" || fails=$((fails + 1))
    grep -q '^int main(' "$block" || continue
    programs=$((programs + 1)) program=${block%.c}
    # shellcheck disable=SC2086  # lists of words
    if "$BUILDDIR/libtool" --silent --tag=CC --mode=link $CC -std=c11 -D_GNU_SOURCE \
        $SANITIZER_CFLAGS $CHECK_CFLAGS -I"$SRCDIR/include" -Wno-unused -o "$program" "$block" \
        "$BUILDDIR/libeingrad.la" $CHECK_LIBS -lm; then
        (cd "$tmp" && timeout 120 "./${program##*/}" </dev/null >"${program##*/}.out" 2>&1) &&
            continue
    fi
    echo "$program.c does not link, or does not end with status 0"
    cat "$program.out" 2>/dev/null
    fails=$((fails + 1))
done
echo "$count blocks, $programs of them run"
[ "$fails" = 0 ]
