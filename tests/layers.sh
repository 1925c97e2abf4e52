#!/bin/sh
# Layers: an object of a lower folder needs no symbol of a higher one, and each folder has one
# header of its own name for the others; and no two headers define a type or a constant of one name.
# Reads the objects of the build (nm), and the headers and #include lines of lib/. Exits with 1
# after a line for each violation.
: "${SRCDIR:?is set by make check}" "${BUILDDIR:?is set by make check}"
order='core tensor notation contraction einsum ops autograd ranks expression attention gradcheck'
order="$order open io nn train"
symbols=$(mktemp) || exit 1
trap 'rm -f "$symbols"' EXIT
# one line for each symbol: file type name; file is folder/name.o, open/open.o for lib/open.c
find "$BUILDDIR/lib" -name '*.o' -exec nm -A {} + |
    sed -n "s|^$BUILDDIR/lib/||; s|\.libs/||; s/lib[a-z]*_la-//; s/^\([^/:]*\)\.o:/open\/\1.o:/
        s/:[0-9a-f]* *\([A-Za-z]\) \(eg_[A-Za-z0-9_]*\)$/ \1 \2/p" | sort -u >"$symbols"
[ -s "$symbols" ] || { echo "layers: no symbols found below $BUILDDIR/lib" >&2; exit 1; }
awk -v order="$order" '
    function folder(file) { sub("/.*", "", file); return file }
    BEGIN { n = split(order, name, " "); for (k = 1; k <= n; k++) rank[name[k]] = k }
    NR == FNR { if ($2 != "U") home[$3] = folder($1); next }
    !(folder($1) in rank) { print "layers: " $1 " lies in no known folder"; bad++; next }
    $2 == "U" && $3 in home && rank[home[$3]] > rank[folder($1)] {
        print "layers: " $1 " needs " $3 ", which lies above it, in lib/" home[$3]; bad++ }
    END { exit bad > 0 }' "$symbols" "$symbols" || bad=1
# of another folder only its one header and its lists of types (each_*_of.h), which declare nothing;
# io, nn and train include none of the others
# shellcheck disable=SC2030,SC2031
(cd "$SRCDIR/lib" && grep -Hn '#include "' -r . --include='*.[ch]') |
    awk -F'[:"]' '
        { file = $1; sub("^\\./", "", file); mine = file; sub("/.*", "", mine)
          header = $4; theirs = header
          if (!sub("/.*", "", theirs)) theirs = mine }
        header ~ /\/each_[a-z]*_of\.h$/ { next }
        theirs != mine && (header != theirs "/" theirs ".h" || mine ~ /^(io|nn|train)$/) {
            print "layers: lib/" file " includes " header ", which is not for other folders"
            bad++ }
        END { exit bad > 0 }' || bad=1
# two headers with one name cannot be included together, and a reader cannot tell which one is meant
# shellcheck disable=SC2016  # the dollars are awk's
(cd "$SRCDIR" && find lib -name '*.h' | sort | xargs awk '
    function define(name) {
        if (!(name in file)) file[name] = FILENAME
        if (file[name] == FILENAME || name in told) return
        print "layers: " FILENAME " and " file[name] " both define " name
        told[name] = 1; bad++ }
    /^} eg_[A-Za-z0-9_]*;/ { sub(";.*", "", $2); define($2) }
    /^typedef struct eg_/ { define($3) }
    /^enum \{|^    EG_[A-Z0-9_]* = / {
        sub("/[*].*", "")
        while (match($0, /EG_[A-Z0-9_]* = /)) {
            define(substr($0, RSTART, RLENGTH - 3)); $0 = substr($0, RSTART + RLENGTH) } }
    END { exit bad > 0 }') || bad=1
[ -z "${bad-}" ] || exit 1
objects=$(cut -d' ' -f1 "$symbols" | sort -u | wc -l)
echo "$(awk '$2 == "U"' "$symbols" | wc -l) undefined symbols in $objects" \
    "objects, none of a higher folder"
