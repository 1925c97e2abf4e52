#!/bin/sh
# Measures of the tree: ./tests/measures.sh [BUILD_FOLDER], in the top folder of a checkout. Prints
# a line for each; exits with 1 if one exceeds its bound. Only the symbols of BUILD_FOLDER (default:
# build) are read.
build=${1-build}
export LC_ALL=C.UTF-8
bad=
line() { # line NAME VALUE [BOUND]: over BOUND is bad
    printf '%-66s %s\n' "$1" "$2"
    [ -z "${3-}" ] || [ "$2" -le "$3" ] || bad="$bad
$1: $2, at most $3"
}
sources() { git ls-files 'lib/*.c' 'lib/*.h'; }
reads_notation="== '(-|>|,|\\[|\\]|\\(|\\)|\\|)'|strchr\\([^)]*'(>|,|\\[|\\])'|strstr\\([^)]*\"->\""

line 'symbols that a lower folder needs of a higher one' \
    "$(SRCDIR=. BUILDDIR=$build sh tests/layers.sh 2>&1 | grep -c '^layers:')" 0
line 'static functions of lib whose name is in two files' \
    "$(git ls-files 'lib/*.c' | while read -r f; do
    grep -hoE '^(EG_[A-Z]+ )*static [A-Za-z_][A-Za-z0-9_ ]*[ *]+[a-z_0-9]+\(' "$f" |
        sed -E 's/\($//; s/.*[ *]//' | sort -u
done | sort | uniq -d | wc -l)" 0
line 'lines over 100 columns' \
    "$(git ls-files '*.c' '*.h' '*.cc' | xargs grep -hE '^.{101,}' | wc -l)" 0
line '... of shell scripts' \
    "$(git ls-files '*.sh' quickstart bootstrap .ci/run | xargs grep -hE '^.{101,}' | wc -l)" 0
# not of tables, headings, HTML and code, nor of the page that `make bench-docs` writes
line '... of prose in docs' "$(git ls-files 'docs/*.md' README.md ':!docs/benchmarks.md' |
    xargs awk '/^ *```/ { code = !code } !code && !/^[|#<]/' | grep -cE '^.{101,}')" 0
line 'failures of the library recorded without a code (eg_fail)' \
    "$(git ls-files 'lib/*.c' 'lib/*.h' | xargs grep -hE '[^_a-z]eg_fail\(' |
        grep -vc '^eg_tensor \*eg_fail(')" 0
line 'functions over 80 lines' "$(git ls-files '*.c' '*.h' | xargs awk '
    FNR == 1 { start = 0 }
    /^\{$/ { start = FNR }
    /^\}/ && start { if (FNR - start - 1 > 80) n++; start = 0 }
    END { print n + 0 }')" 0
# shellcheck disable=SC2016      # awk's $0
line 'static functions of lib of 15 lines and more without a comment' \
    "$(git ls-files 'lib/*.c' | xargs awk '
    FNR == 1 { head = said = start = 0; before = "" }
    # a comment above the head, in its last line, or as the first line of the body
    /^[a-zA-Z]/ && !/;[ \t]*(\/\*.*)?$/ && !start {
        if (/^(EG_[A-Z]+ )*static .*\(/) { head = 1; said = before ~ /\*\/$/ }
        else if (!/^ /) head = 0 }
    head && !start && /\/\*/ { said = 1 }
    /^\{$/ && head { start = FNR }
    start && FNR == start + 1 && /^ *\/\*/ { said = 1 }
    /^\}/ { if (start && FNR - start - 1 >= 15 && !said) n++; head = start = 0 }
    { before = $0 }
    END { print n + 0 }')" 0
line 'macros of lib that make code, of more than 6 lines' "$(sources | xargs awk '
    FNR == 1 { n = 0 }
    /^ *# *define/ { n = 1; code = 0 }
    n { if (/;/) code = 1; if (/\\$/) n++; else { if (n > 6 && code) bad++; n = 0 } }
    END { print bad + 0 }')" 0
line 'files of lib, but notation and io, that read strings of notation' \
    "$(git ls-files 'lib/*.c' | grep -v '^lib/notation/\|^lib/io/' |
        xargs grep -lE "$reads_notation" | wc -l)"
line '... of lib/nn' "$(git ls-files 'lib/nn/*.c' | xargs grep -lE "$reads_notation" | wc -l)"
line 'caches of plans (calls of eg__plan_cache_memory)' \
    "$(git ls-files 'lib/*.c' | xargs grep -hE '[^*]eg__plan_cache_memory\(' | wc -l)" 1
line 'const attributes written to through a cast' \
    "$(sources | xargs grep -hE '\(uintptr_t\)[a-z]+->attr|\(void \*\)\(uintptr_t\)' | wc -l)" 0
line 'traversals of the tape (files that mark nodes with cx->sweep)' \
    "$(git ls-files 'lib/*.c' | xargs grep -lE '\+\+ *(cx|[a-z]+->cx)->sweep' | wc -l)" 1
# A test that must fail is not part of the suite and not counted: the test that checks the failure
# adds it to a separate runner.
line 'tests that do not register themselves (tcase_add_test, not TEST)' \
    "$(git ls-files 'tests/test_*.c' | xargs awk '
    FNR == 1 || /^\{$/ { added = own = 0 }
    /^ *tcase_add_(loop_)?test\(/ { added++ }
    /srunner_run/ { own = 1 }
    /^\}/ { if (!own) n += added; added = own = 0 }
    END { print n + 0 }')" 0
# gcc compares vectors that are longer than a register one number after the other
line 'comparisons of single numbers in the compiled loops over rows' \
    "$(find "$build/lib/ops" -name libkernels_la-arithmetic.o -exec objdump -d {} + 2>/dev/null |
        grep -cE '[[:blank:]]v?u?comis[sd]')" 1550
code=$(sources | while read -r f; do
    gcc -fpreprocessed -dD -E -P -x c "$f" 2>/dev/null
done | tr -d '[:space:]' | wc -m)
all=$(sources | xargs cat | tr -d '[:space:]' | wc -m)
line 'code characters of lib, without blanks and comments' "$code"
line 'comments, share of the characters of lib without blanks, in %' $((100 * (all - code) / all))
[ -z "$bad" ] || { printf 'over the bound:%s\n' "$bad" >&2; exit 1; }
