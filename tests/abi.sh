#!/bin/sh
# Compares the binary and source interface of the library with a stored one (tests/abi), by
# libabigail:
#    tests/abi.sh check     changes that break programs, compiled or in source: make check-abi
#    tests/abi.sh store     stores the interface and Debian's list of symbols: make store-abi
#    tests/abi.sh plant     makes changes of many kinds and reports which are found: make plant-abi
# The interface is taken from the headers alone: a shared library of empty functions, with all
# public types in its debugging information, and a text with a line for each type, function and
# macro. install.sh tests that library and headers agree. docs/versioning.md says which changes are
# allowed.
export LC_ALL=C
: "${SRCDIR:?is set by make check-abi}"
stored=$SRCDIR/tests/abi
symbols=$SRCDIR/packages/debian/libeingrad0.symbols
for tool in abidw abidiff gcc xz; do
    command -v $tool >/dev/null || {
        echo "left out: there is no $tool (on Debian: apt-get install abigail-tools gcc xz-utils)"
        exit 0; }
done
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# describe INCLUDE OUT: the interface of the headers below INCLUDE as OUT/abi, OUT/macros,
# OUT/symbols; OUT/growing has the structs that may get members at their end
describe() {
    # the system's headers are not part of the interface: glibc's types differ between releases
    mkdir -p "$2/system" && echo 'typedef struct file FILE;' >"$2/system/stdio.h" &&
        : >"$2/system/check.h" || return
    for header in "$1"/eingrad/*.h; do
        case $header in */cxx.h | */check.h) ;; *) echo "#include <eingrad/${header##*/}>" ;; esac
    done >"$2/all.h"
    flags="-std=c11 -ffreestanding -w -I$1 -I$2/system"
    # shellcheck disable=SC2086
    gcc $flags -fsyntax-only -aux-info "$2/prototypes" -x c "$2/all.h" &&
        sed -n 's/.*\/eingrad\/.* \*\/ extern \(.*\);$/\1/p' "$2/prototypes" |
        sed 's/__va_list_tag \*\|__va_list\b/__builtin_va_list/' | sort >"$2/functions" &&
        { cat "$2/all.h" && sed 's/$/ { __builtin_trap(); }/' "$2/functions"; } >"$2/stub.c" &&
        gcc $flags -g -O0 -fPIC -shared -fvisibility=hidden -fno-eliminate-unused-debug-types \
            -Wl,-soname,libeingrad.so "$2/stub.c" -o "$2/libeingrad.so" &&
        abidw --load-all-types --no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed \
            --no-parameter-names --no-architecture --headers-dir "$1" --drop-private-types \
            --out-file "$2/abi" "$2/libeingrad.so" || return
    nm -D --defined-only "$2/libeingrad.so" | awk '{ print $3 }' | sort >"$2/symbols"
    # a function-like macro: its name and how many arguments it takes
    { cat "$2/all.h"; echo '#include <eingrad/check.h>'; } >"$2/macros.h"
    # shellcheck disable=SC2086
    gcc $flags -E -dM -x c "$2/macros.h" | awk '
        $2 !~ /^(EG_|eg_|DL)/ || $2 ~ /^EG_API|_H$|_\(|_$/ { next }
        match($0, /^#define [A-Za-z0-9_]+\([^)]*\)/) {
            head = substr($0, 9, RLENGTH - 8); open = index(head, "(")
            n = split(substr(head, open + 1, length(head) - open - 1), word, ",")
            rest = word[n] ~ /\.\.\./
            print substr(head, 1, open - 1), n - rest (rest ? " and more" : ""); next }
        { sub(/^#define /, ""); print }' | sort >"$2/macros"
    # each type on a line
    # shellcheck disable=SC2086
    gcc $flags -E -P -x c "$2/all.h" | awk '
        { text = text " " $0 }
        END {
            gsub(/[ \t]+/, " ", text)
            for (k = 1; k <= length(text); k++) {
                c = substr(text, k, 1)
                if (c != " " || line != "") line = line c
                depth += (c == "{") - (c == "}")
                if (depth || !(c == ";" || (c == "}" && line ~ /^static /))) continue
                if (line ~ /^(typedef|struct|enum) / && line ~ /(eg_|EG_|DL)/) print line
                line = ""
            }
        }' | sort >"$2/types"
    { sed -n 's/^typedef struct \(eg_[a-z0-9_]*\) { size_t size; .*/\1/p' "$2/types"
        sed 's/ *#.*//; /^$/d' "$stored/grown"; } >"$2/growing"
    { sed 's/^/type /' "$2/types"
        sed 's/^/function /' "$2/functions"
        sed 's/^/macro /' "$2/macros"; } >"$2/interface"
}

# differences OLD NEW: prints the changes in NEW that break programs of OLD; true if there is none.
# First the text: every line of OLD is still there, or is a struct or an enum that was extended at
# its end. libabigail overlooks options that change names or positions, and a const that is removed;
# and its has_data_member_inserted_at hides every change of a struct that did not grow. It is
# therefore only told of structs that grew, and compares what the text cannot: sizes, offsets, the
# shared library's symbols. libabigail 2.6 hides a struct that grew only with has_size_change.
differences() {
    : >"$2/suppressions"
    awk -v grew="$2/suppressions" '
        part == 1 { growing[$1] = 1; next }
        part == 2 { now[$0] = 1; next }
        $0 in now { next }
        {
            name = $NF; sub(/;$/, "", name)
            head = $0; is_enum = $3 == "enum"
            if ((is_enum || name in growing) && sub(/[ ,]*\}[^}]*$/, is_enum ? "," : "", head))
                for (line in now)
                    if (index(line, head) == 1) {
                        if (!is_enum) {
                            print "[suppress_type]\n  type_kind = struct\n  name = " name > grew
                            print "  has_data_member_inserted_at = end" > grew
                            print "  has_size_change = yes" > grew
                        }
                        next
                    }
            print "gone: " $0
        }' part=1 "$2/growing" part=2 "$2/interface" part=3 "$1/interface" >"$2/gone"
    cat "$2/gone"
    abidiff --no-added-syms --suppressions "$2/suppressions" "$1/abi" "$2/abi" >"$2/report" 2>&1
    found=$?
    [ $found = 0 ] || sed '/^$/d' "$2/report"
    [ $found = 0 ] && [ ! -s "$2/gone" ]
}

# The list of symbols of Debian's package, all with the version in which they first appeared.
debian_symbols() {
    version=$(sed -n 's/^AC_INIT(\[eingrad\], \[\(.*\)\])/\1/p' "$SRCDIR/configure.ac")
    echo 'libeingrad.so.0 libeingrad0 #MINVER#'
    while read -r name; do
        grep "^ $name@Base " "$symbols" 2>/dev/null || echo " $name@Base $version"
    done <"$1"
}

case "${1-}" in
    check)
        mkdir "$work/old"
        xz -dc "$stored/interface.abi.xz" >"$work/old/abi" && cp "$stored/interface" "$work/old" &&
            describe "$SRCDIR/include" "$work/new" || exit 1
        fails=0
        differences "$work/old" "$work/new" || {
            echo 'programs that were compiled or written for the stored interface would break'
            echo 'if this is intended, run make store-abi; docs/versioning.md says what else to do'
            fails=1; }
        debian_symbols "$work/new/symbols" | cmp -s - "$symbols" || {
            echo "$symbols does not list what the headers declare: make store-abi"; fails=1; }
        sed 's/ *#.*//; /^$/d' "$stored/grown" >"$work/grown"
        while read -r name; do
            grep -q "class-decl name='$name'" "$work/new/abi" || {
                echo "tests/abi/grown names $name, which is not a struct"; fails=1; }
        done <"$work/grown"
        sed -n 's/^typedef struct [^{]*{.*} \([A-Za-z0-9_]*\);/\1/p' "$work/new/types" |
            grep -vxF -f "$work/new/growing" >"$work/frozen"
        while read -r name; do
            grep -qF "\`$name\`" "$SRCDIR/docs/versioning.md" || {
                echo "$name must not grow, but docs/versioning.md does not list it"; fails=1; }
        done <"$work/frozen"
        [ $fails = 0 ] || exit 1
        echo "$(wc -l <"$work/new/symbols") functions, $(wc -l <"$work/new/macros") macros:" \
            "nothing that a program of the stored interface cannot bear" ;;
    store)
        describe "$SRCDIR/include" "$work/new" || exit 1
        debian_symbols "$work/new/symbols" >"$work/symbols"
        xz -9c "$work/new/abi" >"$stored/interface.abi.xz" && cp "$work/new/interface" "$stored" &&
            cp "$work/symbols" "$symbols" && echo "stored in $stored" ;;
    plant)
        describe "$SRCDIR/include" "$work/old" || exit 1
        count=0 fails=0
        sed '/^#/d; s/ *| */|/; s/ *| */|/2; s/ *| */|/3' "$stored/plants" >"$work/plants"
        while IFS='|' read -r wanted what header command; do
            count=$((count + 1))
            rm -rf "$work/include" "$work/new"
            cp -r "$SRCDIR/include" "$work/include"
            file=$work/include/eingrad/$header
            sed -i "$command" "$file"
            if cmp -s "$file" "$SRCDIR/include/eingrad/$header"; then
                verdict='not planted: the header has no such line'
            elif ! describe "$work/include" "$work/new" >"$work/log" 2>&1; then
                verdict="not compiled: $(head -n 1 "$work/log")"
            elif differences "$work/old" "$work/new" >"$work/log"; then
                verdict=free
            else
                verdict=found
            fi
            [ "$verdict" = "$wanted" ] || {
                fails=$((fails + 1))
                echo "$what: should be $wanted, but $verdict"
                head -n 20 "$work/log"; }
        done <"$work/plants"
        [ $fails = 0 ] || { echo "$fails of $count changes were not judged as expected"; exit 1; }
        echo "$(grep -c '^found' "$work/plants") breaking changes of $count are found, no other" ;;
    *) sed -n '2,5s/^# //p' "$0" >&2; exit 1 ;;
esac
