#!/bin/sh
# NumPy and PyTorch together with eingrad in one process (tests/dlpack.py). Skipped, with a line, if
# they or a shared libeingrad are missing. PYTHON: an interpreter that may have them. NumPy before
# 2.1 only knows the unversioned form, in which its arrays are read-only and may not be exported.

# Compares the structs with those of DLPack's own header: that of Debian's libdlpack-dev, or
# PyTorch's. Before 1.0 (Debian 12 has 0.6) there was no versioned form.
upstream=$DLPACK_HEADER
for each in /usr/include/dlpack/dlpack.h /usr/local/include/dlpack/dlpack.h \
    "$("${PYTHON:-python3}" -c 'import importlib.util
print(importlib.util.find_spec("torch").submodule_search_locations[0] + "/include/ATen/dlpack.h")' \
        2>/dev/null)"; do
    [ -n "$upstream" ] || ! grep -qs DLPACK_MAJOR_VERSION "$each" || upstream=$each
done
if [ -n "$upstream" ]; then
    folder=$(mktemp -d)
    trap 'rm -rf "$folder"' EXIT
    for each in ours theirs; do
        set -- -I"$EG_SRCDIR/include"
        [ $each = ours ] || set -- "$@" "-DUPSTREAM=\"$upstream\""
        # shellcheck disable=SC2086      # CC may hold options
        ${CC:-cc} "$@" "$EG_SRCDIR/tests/dlpack_layout.c" -o "$folder/$each" &&
            "$folder/$each" >"$folder/$each.txt" || exit 1
    done
    diff "$folder/ours.txt" "$folder/theirs.txt" || exit 1
    echo "structs: $(wc -l <"$folder/ours.txt") numbers equal those of $upstream"
    rm -rf "$folder"
else
    echo 'left out: comparison with dlpack.h, which was not found or is older than 1.0'
fi

shared=$BUILDDIR/.libs/libeingrad.so
[ -f "$shared" ] || { echo 'left out: the library was built with --disable-shared'; exit 0; }
[ -z "$SANITIZER_CFLAGS" ] || {
    echo 'left out: the library of a sanitizer has to be loaded first'; exit 0; }
python=
for each in "${PYTHON:-python3}" python3 /usr/bin/python3; do
    "$each" -c 'import numpy
assert tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)' 2>/dev/null &&
        { python=$each; break; }
done
[ -n "$python" ] || { echo 'left out: no Python here has NumPy 2.1 or later'; exit 0; }
EINGRAD_LIB=$(cd "$(dirname "$shared")" && pwd)/libeingrad.so
PYTHONPATH=$EG_SRCDIR/examples/python PYTHONDONTWRITEBYTECODE=1
export EINGRAD_LIB PYTHONPATH PYTHONDONTWRITEBYTECODE
exec "$python" "$EG_SRCDIR/tests/dlpack.py"
