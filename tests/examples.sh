#!/bin/sh
# Runs every example; each must exit 0 and stand on the public headers alone.
fails=0 count=0
mkdir -p "$BUILDDIR/tests/stage/examples" && cd "$BUILDDIR/tests/stage/examples" || exit 1
for example in $EXAMPLES; do
    count=$((count + 1))
    echo "== $example"
    "../../../$example" </dev/null || { echo "$example: exit status $?"; fails=$((fails + 1)); }
    ! grep -n '^ *# *include *"' "$EG_SRCDIR/$example.c" || { echo "$example: an example includes public headers only"; fails=$((fails + 1)); }
done
echo "$count run"
[ "$fails" = 0 ]
