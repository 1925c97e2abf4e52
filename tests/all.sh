#!/bin/sh
# make check: all.sh STAGE...   One line for each stage, its log only if it failed; `unit`, the
# Check program, goes last and is seen whole, so that the output ends in Check's summary. Every
# stage runs, whatever failed before it.
: "${SRCDIR:?is set by make check}" "${BUILDDIR:?is set by make check}"
EG_SRCDIR=$(cd "$SRCDIR" && pwd)        # where a test finds its data
export EG_SRCDIR
now() { date +%s.%N; }
failed=
for stage; do
    if [ "$stage" = unit ]; then
        "$BUILDDIR/tests/check_eingrad" || failed="$failed unit"
        continue
    fi
    log=$BUILDDIR/tests/$stage.log
    start=$(now)
    if sh "$SRCDIR/tests/$stage.sh" >"$log" 2>&1; then word=ok; else
        word=FAILED failed="$failed $stage"; fi
    printf '%-10s %-6s %5.1f s   %s\n' "$stage" "$word" \
        "$(echo "$(now) $start" | awk '{ print $1 - $2 }')" \
        "$([ $word = ok ] && tail -n 1 "$log")"
    [ $word = ok ] || tail -n 40 "$log"
done
[ -z "$failed" ] || { echo "make check failed in:$failed" >&2; exit 1; }
