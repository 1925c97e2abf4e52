#!/bin/sh
# Wording: the program rewords some sentences of the library for the command line (the table
# `wording` in tools/text.c). Each sentence that it replaces must still be in the library's code.
# A public name that NEWS lists as renamed, and words that were replaced because nobody else says
# them, must not come back. Exits with 1 after a line for each violation.
: "${SRCDIR:?is set by make check}"
sentences=$(mktemp) || exit 1
trap 'rm -f "$sentences" "$sentences.gone"' EXIT
# string literals that follow each other are one string
strings() { { tr '\n' ' '; echo; } | sed 's/" *"//g'; }
# The first string of each pair { "library", "program" }, as it is written in the code. The line
# break before a hint is added where the message is composed.
strings <"$SRCDIR/tools/text.c" |
    sed -n 's/.* wording\[\] = { *\(.*\) };  *for (size_t k = 0; k < sizeof wording.*/\1/p' |
    sed 's/{ "/\n"/g' | sed -n 's/^"\(\\n  \)\{0,1\}\(\([^"\\]\|\\.\)*\)".*/\2/p' >"$sentences"
[ -s "$sentences" ] || { echo "wording: tools/text.c has no table \`wording\`" >&2; exit 1; }
library=$(find "$SRCDIR/lib" -name '*.[ch]' -exec cat {} + | strings)
while IFS= read -r sentence; do
    case $library in
        *"$sentence"*) ;;
        *)
            printf "wording: nothing in lib says '%s', which tools/text.c replaces\n" "$sentence"
            bad=1
            ;;
    esac
done <"$sentences"
renamed=$(sed -n 's/^- .\(eg_[a-z0-9_]*\)[^(.a-z0-9_ ] → .*/\1/p' "$SRCDIR/NEWS" | sort -u)
[ -n "$renamed" ] || { echo "wording: NEWS lists no renamed function" >&2; exit 1; }
gone='eg__check_held\|eg__is_held\|C++ face\|[0-9] over ours\|look_answer\|look_at_positions'
gone=$gone'\|eg_flash\|eg__flash'
(cd "$SRCDIR" && {
    echo "$renamed" | grep -rnwFf - lib include docs examples tools README.md
    grep -rn "$gone" lib include docs examples tools README.md
}) >"$sentences.gone"
if [ -s "$sentences.gone" ]; then
    sed 's/^/wording: a name or word that was replaced: /' "$sentences.gone"
    bad=1
fi
[ -z "${bad-}" ] || exit 1
echo "$(wc -l <"$sentences") replaced sentences, all of them in lib;" \
    "none of $(echo "$renamed" | wc -l) old names is left"
