#!/bin/sh
# Files: docs/files.md lists the files of lib, each with the first sentence of its first comment and
# with the public functions that it defines. It must agree with the objects of the build and with
# the comments. `tests/files.sh --write`, in the top folder of a checkout, writes it anew.
[ "${1-}" != --write ] || : "${SRCDIR:=.}" "${BUILDDIR:=build}"
: "${SRCDIR:?is set by make check}" "${BUILDDIR:?is set by make check}"
export LC_ALL=C
page=$SRCDIR/docs/files.md
order='core tensor notation contraction einsum ops autograd ranks expression attention gradcheck'
order="$order io nn train"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# one line for each function: folder/name function; the file is open for lib/open.c
find "$BUILDDIR/lib" -name '*.o' -exec nm -A {} + |
    sed -n "s|^$BUILDDIR/lib/||; s|\.libs/||; s/lib[a-z]*_la-//
        s/^\([^:]*\)\.o:[0-9a-f]* T \(eg_[a-z0-9][A-Za-z0-9_]*\)$/\1 \2/p" | sort -u >"$work/names"
[ -s "$work/names" ] || { echo "files: no functions found below $BUILDDIR/lib" >&2; exit 1; }
# a row for each file; eg_NAME_with and eg_NAME_n are written as the macro eg_NAME
rows() { # rows FILE...
    awk -v lib="$SRCDIR/lib/" '
        function row(file,    base) {
            base = file; sub(/.*\//, "", base)
            sub("^[^:]*: ", "", text); sub(/ \*\/.*/, "", text); sub(/\. [A-Z].*/, "", text)
            sub(/[.:;]? *$/, "", text); gsub(/\|/, "\\|", text); gsub(/</, "\\&lt;", text)
            sub(/\.c$/, "", file)
            print "| `" base "` | " text " |" has[file] " |"
            text = ""; open = 0 }
        NR == FNR {
            sub(/_(with|n)$/, "", $2)
            if (!seen[$2]++) has[$1] = has[$1] " `" $2 "`"
            next }
        FNR == 1 { if (name) row(name); name = substr(FILENAME, length(lib) + 1); open = 1 }
        open {
            line = $0; sub(/^ ?\/?\* ?/, "", line)
            if (line == "") open = 0
            text = text (text ? " " : "") line
            if (/\*\/ *$/) open = 0 }
        END { row(name) }' "$work/names" "$@"
}
{
    cat <<'TEXT'
# The files of the library

The table of a folder has for each file what it contains and the public functions that it defines,
without the suffixes `_with` and `_n` of functions that a macro calls. Headers are not listed.
`tests/files.sh --write` writes this page from the objects of a build and from the first sentence of
each file; `make check` compares both with the page.
TEXT
    for folder in $order; do
        printf '\n## lib/%s\n\n| file | contents | public functions |\n|---|---|---|\n' "$folder"
        rows "$SRCDIR/lib/$folder"/*.c
    done
    printf '\n## lib\n\n| file | contents | public functions |\n|---|---|---|\n'
    rows "$SRCDIR/lib/open.c"
} >"$work/page"
if [ "${1-}" = --write ]; then
    cp "$work/page" "$page"
elif ! diff -u "$page" "$work/page"; then
    echo 'docs/files.md differs from the sources: run tests/files.sh --write in the top folder'
    exit 1
fi
echo "$(wc -l <"$work/names") public functions in $(grep -c '^| `' "$work/page") files"
