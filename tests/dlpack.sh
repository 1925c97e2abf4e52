#!/bin/sh
# NumPy and PyTorch beside eingrad in one process (tests/dlpack.py). Left out, with a line, where
# they or a shared libeingrad are not there. PYTHON: an interpreter that may have them.
# NumPy before 2.1 speaks the form without a version alone, in which what it gives is read-only and
# may not be handed on.
shared=$BUILDDIR/.libs/libeingrad.so
[ -f "$shared" ] || { echo 'left out: the library was built with --disable-shared'; exit 0; }
[ -z "$SANITIZER_CFLAGS" ] || { echo 'left out: a sanitizer has to come first'; exit 0; }
python=
for each in "${PYTHON:-python3}" python3 /usr/bin/python3; do
    "$each" -c 'import numpy
assert tuple(map(int, numpy.__version__.split(".")[:2])) >= (2, 1)' 2>/dev/null &&
        { python=$each; break; }
done
[ -n "$python" ] || { echo 'left out: no Python here has NumPy from 2.1 on'; exit 0; }
EINGRAD_LIB=$(cd "$(dirname "$shared")" && pwd)/libeingrad.so
PYTHONPATH=$EG_SRCDIR/examples/python PYTHONDONTWRITEBYTECODE=1
export EINGRAD_LIB PYTHONPATH PYTHONDONTWRITEBYTECODE
exec "$python" "$EG_SRCDIR/tests/dlpack.py"
