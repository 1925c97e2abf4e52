#!/bin/sh
# The house in numbers: ./tests/measures.sh [BUILD_FOLDER], from the top folder of a checkout. Prints a line each; exits 1 if one that
# must be 0 (or 1) is not. BUILD_FOLDER (default build) is wanted for the symbols alone.
build=${1-build}
export LC_ALL=C.UTF-8
bad=
line() { # line NAME VALUE [BOUND]: over BOUND is bad
    printf '%-58s %s\n' "$1" "$2"
    [ -z "${3-}" ] || [ "$2" -le "$3" ] || bad="$bad
$1: $2, at most $3"
}
sources() { git ls-files 'lib/*.c' 'lib/*.h'; }

line 'symbols that a lower folder needs of a higher one' \
    "$(SRCDIR=. BUILDDIR=$build sh tests/layers.sh 2>&1 | grep -c '^layers:')" 0
line 'static functions of lib whose name stands in two files' "$(git ls-files 'lib/*.c' | while read -r f; do
    grep -hoE '^(EG_[A-Z]+ )*static [A-Za-z_][A-Za-z0-9_ ]*[ *]+[a-z_0-9]+\(' "$f" | sed -E 's/\($//; s/.*[ *]//' | sort -u
done | sort | uniq -d | wc -l)" 0
line 'lines over 100 columns' \
    "$(git ls-files '*.c' '*.h' '*.cc' | xargs grep -hE '^.{101,}' | wc -l)" 0
line 'failures of the library recorded without a code (eg_fail)' \
    "$(git ls-files 'lib/*.c' 'lib/*.h' | xargs grep -hE '[^_a-z]eg_fail\(' | grep -vc '^eg_tensor \*eg_fail(')" 0
line 'functions over 80 lines' "$(git ls-files '*.c' '*.h' | xargs awk '
    FNR == 1 { start = 0 }
    /^\{$/ { start = FNR }
    /^\}/ && start { if (FNR - start - 1 > 80) n++; start = 0 }
    END { print n + 0 }')"
line 'macros of lib that make code, of more than 6 lines' "$(sources | xargs awk '
    FNR == 1 { n = 0 }
    /^ *# *define/ { n = 1; code = 0 }
    n { if (/[;{]/) code = 1; if (/\\$/) n++; else { if (n > 6 && code) bad++; n = 0 } }
    END { print bad + 0 }')"
line 'files of lib/nn that read strings of notation by hand' \
    "$(grep -lE "== '(-|>|,|\\[|\\]|\\(|\\)|\\|)'|strchr\\([^)]*'(>|,|\\[|\\])'|strstr\\([^)]*\"->\"" lib/nn/*.c | wc -l)"
line 'const attributes written to through a cast' \
    "$(sources | xargs grep -hE '\(uintptr_t\)[a-z]+->attr|\(void \*\)\(uintptr_t\)' | wc -l)"
line 'walks of the tape (files that mark nodes with cx->sweep)' \
    "$(git ls-files 'lib/*.c' | xargs grep -lE '\+\+ *(cx|[a-z]+->cx)->sweep' | wc -l)"
line 'code characters of lib, without blanks and comments' "$(sources | while read -r f; do
    gcc -fpreprocessed -dD -E -P -x c "$f" 2>/dev/null
done | tr -d '[:space:]' | wc -m)"
[ -z "$bad" ] || { printf 'over the bound:%s\n' "$bad" >&2; exit 1; }
