#!/bin/sh
# Debian packages of this tree: `make deb` in a build folder, or
#   packages/deb.sh build TARBALL OUT    the source package and the binary ones, in the folder OUT
#   packages/deb.sh check TARBALL OUT    builds them once more, without the tests, in another folder
#                                        and time zone, and compares every byte; then lintian
# TARBALL is what `make dist` made. DEB_BUILD_OPTIONS and so on as for dpkg-buildpackage.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
case "${1-}:$#" in build:3 | check:3) ;; *) sed -n '2,6s/^# //p' "$0" >&2; exit 1 ;; esac
tarball=$(realpath "$2") out=$(realpath -m "$3")
command -v dpkg-buildpackage dh >/dev/null || {
    echo 'deb.sh: on Debian: apt-get install devscripts debhelper lintian, then' \
        'apt-get build-dep ./packages' >&2; exit 1; }
version=$(dpkg-parsechangelog -l "$here/debian/changelog" -S Version)
upstream=${version%-*}
case ${tarball##*/} in
    "eingrad-$upstream.tar.gz") ;;
    *) echo "deb.sh: debian/changelog is of $upstream, the tarball is ${tarball##*/}" >&2; exit 1 ;;
esac

# packages FOLDER: unpacks, adds debian/ and builds, with what is made in FOLDER
packages() {
    mkdir -p "$1"
    cp "$tarball" "$1/eingrad_$upstream.orig.tar.gz"
    tar -xzf "$tarball" -C "$1"
    cp -r "$here/debian" "$1/eingrad-$upstream"
    (cd "$1/eingrad-$upstream" && dpkg-buildpackage -us -uc)
    rm -r "$1/eingrad-$upstream"
}
if [ "$1" = build ]; then
    rm -rf "$out"
    packages "$out"
    ls -l "$out"/*.deb
    exit
fi
for file in "$out"/*.deb; do
    [ -f "$file" ] || { echo "deb.sh: $out has no packages; make deb builds them" >&2; exit 1; }
done
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT
(umask 022; export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS-} nocheck" LC_ALL=C.UTF-8 TZ=Asia/Kolkata
    packages "$again/a-longer-folder" >"$again/log" 2>&1) || { tail -n 40 "$again/log"; exit 1; }
for file in "$out"/*.deb "$out"/*.dsc "$out"/*.tar.?z; do
    cmp "$file" "$again/a-longer-folder/${file##*/}" && echo "same bytes: ${file##*/}"
done
# No bug of Debian asked for the package, and Debian 12's lintian does not know Static-Built-Using.
lintian -i --pedantic --fail-on error,warning \
    --suppress-tags initial-upload-closes-no-bugs,unknown-field "$out"/*.changes
