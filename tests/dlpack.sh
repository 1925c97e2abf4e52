#!/bin/sh
# NumPy and PyTorch beside eingrad in one process (tests/dlpack.py). Left out, with a line, where
# they or a shared libeingrad are not there. PYTHON: an interpreter that has them.
python=${PYTHON:-python3}
shared=$BUILDDIR/.libs/libeingrad.so
[ -f "$shared" ] || { echo 'left out: the library was built with --disable-shared'; exit 0; }
[ -z "$SANITIZER_CFLAGS" ] || { echo 'left out: a sanitizer has to come first'; exit 0; }
"$python" -c 'import numpy; numpy.from_dlpack' 2>/dev/null || {
    echo "left out: $python has no NumPy from 1.22 on"; exit 0; }
EINGRAD_LIB=$(cd "$(dirname "$shared")" && pwd)/libeingrad.so
PYTHONPATH=$EG_SRCDIR/examples/python PYTHONDONTWRITEBYTECODE=1
export EINGRAD_LIB PYTHONPATH PYTHONDONTWRITEBYTECODE
exec "$python" "$EG_SRCDIR/tests/dlpack.py"
