#!/bin/sh
# tar.sh FOLDER: writes the folder as a tar archive to standard output. Its bytes depend only on the
# files, not on who packs them and when. The time of all files is SOURCE_DATE_EPOCH, else that of
# the last commit, else that of NEWS, which in an unpacked tarball is the time of its packing.
top=$(dirname "$0")/..
tar=${TAR-tar}
if ! "$tar" --sort=name --version >/dev/null 2>&1; then # not GNU tar
    exec "$tar" chof - "$1"
fi
time=$SOURCE_DATE_EPOCH
[ -n "$time" ] || [ ! -e "$top/.git" ] || time=$(git -C "$top" log -1 --format=%ct 2>/dev/null)
[ -n "$time" ] || time=$(stat -c %Y "$top/NEWS") || exit 1
exec "$tar" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$time" \
    --mode=u+rwX,go+rX,go-ws -chof - "$1"
