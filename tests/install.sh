#!/bin/sh
# Runs make install into a staging folder, then does what a user does: compiles one C file and one
# C++ file by pkg-config, with the shared and the static library, and runs them. The shared library
# exports exactly the functions of the headers. make uninstall leaves no file.
stage=$(mktemp -d) || exit 1            # not under the build: the flags below are split at blanks
trap 'rm -rf "$stage"' EXIT
tests=$EG_SRCDIR/tests
die() { echo "$*"; exit 1; }
run() { echo "+ $*"; "$@" || die "failed: $*"; }
cd "$BUILDDIR" || exit 1

run "$MAKE" -s install DESTDIR="$stage"

PKG_CONFIG_PATH=$stage$LIBDIR/pkgconfig${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
export PKG_CONFIG_PATH
# pkg-config's sysroot is not used, since it would also move the system's libraries
flags() {
    "$PKG_CONFIG" --define-variable=libdir="$stage$LIBDIR" \
        --define-variable=includedir="$stage$INCLUDEDIR" "$@" eingrad ||
        die "pkg-config $* failed"
}
build() {                               # build COMPILER SOURCE WORDS...
    compiler=$1 source=$2; shift 2
    # shellcheck disable=SC2086  # lists of words
    run $compiler $SANITIZER_CFLAGS -Wall -Wextra -pedantic -Werror "$tests/headers/$source" \
        -o "$stage/user" "$@"
    run env LD_LIBRARY_PATH="$stage$LIBDIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$stage/user"
}
# --disable-shared: users of a static library must name the libraries that it needs
static=
[ -f "$stage$LIBDIR/libeingrad.so" ] || static=--static
for macros in '' '-DN=64 -DH=8'; do
    # shellcheck disable=SC2046,SC2086
    build "$CC" user.c -std=c11 $macros $(flags $static --cflags --libs)
    # shellcheck disable=SC2046,SC2086
    [ "$CXX" = no ] || build "$CXX" user.cc -std=c++17 $macros $(flags $static --cflags --libs)
done
if [ -f "$stage$LIBDIR/libeingrad.a" ] && [ -z "$SANITIZER_CFLAGS" ]; then
    # fully static if the system supports it, else only libeingrad.a
    # shellcheck disable=SC2046,SC2086
    if echo 'int main(void) { return 0; }' | $CC -static -x c - -o "$stage/user" 2>/dev/null; then
        build "$CC" user.c -std=c11 -static $(flags --static --cflags --libs)
    else
        build "$CC" user.c -std=c11 $(flags --static --cflags --libs |
            sed 's/ -leingrad / -l:libeingrad.a /')
    fi
    # lld drops sections that nothing but the symbols of their bounds refers to (core/mark.h)
    drop=-Wl,--gc-sections
    echo 'int main(void) { return 0; }' | $CC -fuse-ld=lld -x c - -o "$stage/user" 2>/dev/null &&
        drop="-fuse-ld=lld $drop"
    # shellcheck disable=SC2046,SC2086
    build "$CC" user.c -std=c11 $drop $(flags --static --cflags --libs |
        sed 's/ -leingrad / -l:libeingrad.a /')
fi
run "$stage$BINDIR/eingrad" --version

so=$stage$LIBDIR/libeingrad.so
if [ -f "$so" ]; then
    sed -n 's/^EG_API[^(]*[ *]\(eg_[a-z0-9_]*\) *(.*/\1/p' "$stage$INCLUDEDIR"/eingrad/*.h |
        sort -u >"$stage/declared"
    nm -D --defined-only "$so" | awk '$2 ~ /[TDBRVWi]/ { sub(/@.*/, "", $3); print $3 }' |
        sort -u >"$stage/exported"
    comm -23 "$stage/declared" "$stage/exported" >"$stage/missing"
    comm -13 "$stage/declared" "$stage/exported" >"$stage/extra"
    [ ! -s "$stage/missing" ] ||
        die "declared in a public header, not in the library: $(tr '\n' ' ' <"$stage/missing")"
    [ ! -s "$stage/extra" ] ||
        die "in the library, not declared in a public header: $(tr '\n' ' ' <"$stage/extra")"
    rm "$stage/declared" "$stage/exported" "$stage/missing" "$stage/extra"
fi

# a project with a plain Makefile that checks its own kernel
if [ -n "${CHECK_LIBS-}" ] && [ -z "$SANITIZER_CFLAGS" ]; then
    cp -r "$EG_SRCDIR/examples/gradients" "$stage/gradients"
    run env LD_LIBRARY_PATH="$stage$LIBDIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$MAKE" \
        -s -C "$stage/gradients" check \
        CC="$CC" FLAGS="$(flags --cflags) $CHECK_CFLAGS" \
            LIBRARIES="$(flags $static --libs) $CHECK_LIBS -lm"
    grep -q '^ok 1' "$stage/gradients/test_kernel.tap" ||
        die "no TAP line: $(cat "$stage/gradients/test_kernel.tap")"
    rm -r "$stage/gradients"
fi
# projects of CMake and of Meson, if these are installed
consumers=$tests/consumers
if [ -z "$SANITIZER_CFLAGS" ]; then
    if command -v cmake >/dev/null; then
        for kind in shared static; do
            [ -f "$stage$LIBDIR/libeingrad.so" ] || [ "$kind" = static ] || continue
            [ -f "$stage$LIBDIR/libeingrad.a" ] || [ "$kind" = shared ] || continue
            run env CC="$CC" cmake -S "$consumers/cmake" -B "$stage/cmake" -DKIND="$kind" \
                -DUSER="$tests/headers" -Deingrad_DIR="$stage$LIBDIR/cmake/eingrad" >/dev/null
            run cmake --build "$stage/cmake" >/dev/null
            run env LD_LIBRARY_PATH="$stage$LIBDIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
                "$stage/cmake/user"
            rm -r "$stage/cmake"
        done
        # versions and components that do not exist are refused with a message
        for wrong in -DVERSION=9.1 -DKIND=mpi; do
            cmake -S "$consumers/cmake" -B "$stage/cmake" $wrong -DUSER="$tests/headers" \
                -Deingrad_DIR="$stage$LIBDIR/cmake/eingrad" >/dev/null 2>"$stage/refusal" &&
                die "CMake found eingrad in spite of $wrong"
            grep -q eingrad "$stage/refusal" ||
                die "another message of CMake: $(cat "$stage/refusal")"
            rm -r "$stage/cmake" "$stage/refusal"
        done
    else
        echo 'no CMake here: its project was not built'
    fi
    if command -v meson >/dev/null && command -v ninja >/dev/null && [ -z "$static" ]; then
        cp -r "$consumers/meson" "$stage/project"
        cp "$tests/headers/user.c" "$stage/project"
        run env PKG_CONFIG_SYSROOT_DIR="$stage" CC="$CC" meson setup "$stage/meson" \
            "$stage/project" >/dev/null
        run ninja -C "$stage/meson" >/dev/null
        run env LD_LIBRARY_PATH="$stage$LIBDIR${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" \
            "$stage/meson/user"
        rm -r "$stage/project" "$stage/meson"
    else
        echo 'no Meson, Ninja or shared library here: their project was not built'
    fi
fi
# bash asks the program for its commands and options
if command -v bash >/dev/null; then
    found=$(PATH=$stage$BINDIR:$PATH bash -c '. "$1"; COMP_WORDS=(eingrad train --lay) COMP_CWORD=2
        _eingrad; echo "${COMPREPLY[*]}"' - "$stage$DATADIR/bash-completion/completions/eingrad")
    [ "$found" = --layers ] || die "completion of train --lay: $found"
fi
# if the prefix of the installation is not the configured one, eingrad.pc follows it
case $LIBDIR:$INCLUDEDIR in "$PREFIX"/*:"$PREFIX"/*)
    run "$MAKE" -s install DESTDIR="$stage/moved" prefix=/elsewhere
    where=$(PKG_CONFIG_PATH=$stage/moved/elsewhere/${LIBDIR#"$PREFIX"/}/pkgconfig \
        "$PKG_CONFIG" --variable=includedir eingrad)
    [ -f "$stage/moved$where/eingrad.h" ] || die "prefix=/elsewhere: eingrad.pc names $where"
    # program and shared library find the MPI module there: an empty file, which the error names
    lib=$stage/moved/elsewhere/${LIBDIR#"$PREFIX"/} bin=$stage/moved/elsewhere/${BINDIR#"$PREFIX"/}
    rm -rf "$lib/eingrad"
    mkdir -p "$lib/eingrad/$LT_MAJOR"
    : >"$lib/eingrad/$LT_MAJOR/libeingrad-mpi.so"
    cat >"$stage/ranks.c" <<'END'
#include <eingrad.h>
int main(void)
{
    eg_ctx *cx = eg_open();
    eg_ranks_open(.cx = cx);
    puts(eg_error(cx) ? eg_error(cx) : "no error");
    eg_close(cx);
    return 0;
}
END
    set -- "$bin/eingrad" train copy --steps 1 --out "$stage/copy.safetensors"
    for _ in program library; do
        OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 LD_LIBRARY_PATH=$lib "$@" >"$stage/out" 2>&1
        grep -qF "cannot be loaded: $lib/eingrad/$LT_MAJOR/libeingrad-mpi.so" "$stage/out" ||
            die "the module of prefix=/elsewhere: $* says: $(cat "$stage/out")"
        [ -f "$lib/libeingrad.so" ] || break
        # shellcheck disable=SC2046,SC2086
        run $CC $SANITIZER_CFLAGS "$stage/ranks.c" -o "$stage/user" -I"$stage$INCLUDEDIR" \
            -L"$lib" -leingrad -lm
        set -- "$stage/user"
    done
    rm "$stage/ranks.c" "$stage/out"
    rm -r "$stage/moved" ;;
esac

rm "$stage/user"
run "$MAKE" -s uninstall DESTDIR="$stage"
left=$(find "$stage" ! -type d)
[ -z "$left" ] || die "uninstall left: $left"
echo 'installed, used, uninstalled'
