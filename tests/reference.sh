#!/bin/sh
# The reference that is made from the headers: every function has a sentence and an example that is
# compiled, every page is valid troff, all links of the HTML have targets; `eingrad help` finds the
# pages.
die() { echo "$*"; exit 1; }
out=$(mktemp -d) || exit 1
trap 'rm -rf "$out"' EXIT
case $PYTHON in no | '') echo 'skipped: no Python 3 here'; exit 0 ;; esac
make="$PYTHON -B $EG_SRCDIR/docs/reference/make.py"
of="--top $EG_SRCDIR --program $BUILDDIR/eingrad"
# shellcheck disable=SC2086  # lists of words
{
    $make check $of || die 'functions without a sentence or an example'
    $make man "$out/man" $of || die 'no man pages'
    if "$PYTHON" -c 'import markdown' 2>/dev/null; then
        $make html "$out/html" $of || die 'links that lead nowhere'
        [ -f "$out/html/index.html" ] || die 'no index.html'
        html=$(find "$out/html" -name '*.html' | wc -l)
    else
        html='without markdown no'
    fi
}
count=$(find "$out/man" -name '*.[137]' | wc -l)
[ "$count" -gt 500 ] || die "$count man pages"
if command -v groff >/dev/null; then
    grep -rL '^\.so' "$out/man" | while read -r page; do
        groff -K utf8 -T utf8 -man -ww -z "$page"
    done 2>"$out/warnings"
    [ ! -s "$out/warnings" ] || { head -n 20 "$out/warnings"; exit 1; }
fi
# a page has the comments of its own macro, and says how arguments become options
[ "$(grep -rl "writes the result to out and" "$out/man/man3" | wc -l)" = 1 ] ||
    die "the comment on out_ is not eg_einsum_to's alone"
grep -q 'eg_attention_mass("' "$out/man/man3/eg_attention_entropy.3" &&
    die "eg_attention_entropy has an example of eg_attention_mass"
for page in eg_softmax eg_open eg_picture_save; do
    grep -q 'are the members of this struct after size' "$out/man/man3/$page.3" ||
        die "$page: no word on its arguments"
done
mkdir -p "$out/prefix/bin" "$out/prefix/share" # pages are found beside the program
cp "$BUILDDIR/eingrad" "$out/prefix/bin" && ln -s ../../man "$out/prefix/share/man"
(unset EINGRAD_MAN; "$out/prefix/bin/eingrad" help softmaxx) 2>"$out/refusal" &&
    die 'a page that is not there'
grep -q 'is it eg_softmax?' "$out/refusal" || die "beside the program: $(cat "$out/refusal")"
EINGRAD_MAN=$out/man
export EINGRAD_MAN
if man -l "$out/man/man3/eg_einsum.3" 2>/dev/null | grep -q '^NAME'; then
    for topic in train eg_einsum eg_from_n softmax ops ops.h; do # eg_from_n is the page eg_from
        "$BUILDDIR/eingrad" help $topic | grep -q '^NAME' || die "eingrad help $topic shows no page"
    done
fi
"$BUILDDIR/eingrad" help softmaxx 2>"$out/refusal" && die 'a page that is not there'
grep -q 'is it eg_softmax?' "$out/refusal" || die "no hint: $(cat "$out/refusal")"
echo "$count man pages, $html pages of HTML"
