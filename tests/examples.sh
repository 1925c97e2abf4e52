#!/bin/sh
# Runs every example; each must exit with 0 and include public headers only.
fails=0 count=0
mkdir -p "$BUILDDIR/tests/stage/examples" && cd "$BUILDDIR/tests/stage/examples" || exit 1
for example in $EXAMPLES; do
    count=$((count + 1))
    case $example in # the models that tests/reference/models.py wrote
    *_language_model) set -- "$EG_SRCDIR/tests/data/models/gpt2" 3 1 4 1 5 ;;
    *_bert) set -- "$EG_SRCDIR/tests/data/models/bert" 3 1 4 1 5 ;;
    *) set -- ;;
    esac
    echo "== $example"
    "../../../$example" "$@" </dev/null || {
        echo "$example: exit status $?"; fails=$((fails + 1)); }
    ! grep -n '^ *# *include *"' "$EG_SRCDIR/$example.c" || {
        echo "$example: an example includes public headers only"; fails=$((fails + 1)); }
done
# The wrong gradient is found, and docs/gradcheck.md shows its report (except for the numbers in
# brackets).
case " $EXAMPLES " in *' examples/test_gradients '*)
    ! ../../../examples/test_gradients wrong >wrong.txt || {
        echo 'examples/test_gradients wrong passed'; fails=$((fails + 1)); }
    sed 's/([^)]*)//g' "$EG_SRCDIR/docs/gradcheck.md" >shown.txt
    sed -n 's/([^)]*)//g; /^  /p' wrong.txt |
        grep -e '^  dB.j=[12],k=1.' -e 'the rule of gate' -e 'cost' >said.txt
    [ "$(wc -l <said.txt)" -eq 4 ] || { echo 'examples/test_gradients wrong: another report';
        cat wrong.txt; fails=$((fails + 1)); }
    while read -r line; do
        grep -qF -- "$line" shown.txt || { echo "docs/gradcheck.md does not show: $line";
            fails=$((fails + 1)); }
    done <said.txt ;;
esac
echo "$count run"
[ "$fails" = 0 ]
