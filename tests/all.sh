#!/bin/sh
# make check: all.sh STAGE...   Prints one line for each stage, and its log only if it failed.
# `unit`, the Check program, runs in parallel with the other stages; its output comes last, so that
# the output ends in Check's summary. Every stage runs, even if one before it failed.
: "${SRCDIR:?is set by make check}" "${BUILDDIR:?is set by make check}"
EG_SRCDIR=$(cd "$SRCDIR" && pwd)        # where a test finds its data
export EG_SRCDIR
[ "$*" != unit ] || exec "$BUILDDIR/tests/check_eingrad"
now() { date +%s.%N; }
failed='' unit=''
trap '[ -z "$unit" ] || kill "$unit" 2>/dev/null' EXIT
case " $* " in
    *' unit '*)
        "$BUILDDIR/tests/check_eingrad" >"$BUILDDIR/tests/unit.log" 2>&1 &
        unit=$! ;;
esac
for stage; do
    [ "$stage" != unit ] || continue
    log=$BUILDDIR/tests/$stage.log
    start=$(now)
    if sh "$SRCDIR/tests/$stage.sh" >"$log" 2>&1; then word=ok; else
        word=FAILED failed="$failed $stage"; fi
    printf '%-10s %-6s %5.1f s   %s\n' "$stage" "$word" \
        "$(echo "$(now) $start" | awk '{ print $1 - $2 }')" \
        "$([ $word = ok ] && tail -n 1 "$log")"
    [ $word = ok ] || tail -n 40 "$log"
done
if [ -n "$unit" ]; then
    wait "$unit" || failed="$failed unit"
    unit=''
    cat "$BUILDDIR/tests/unit.log"
fi
[ -z "$failed" ] || { echo "make check failed in:$failed" >&2; exit 1; }
