#!/bin/sh
# make reproduce: table.sh FOLDER [OPTION...]  Runs every program of the folder, as many at a time
# as there are cores, the longest first, and prints one table. Options are passed to the programs:
# --quick runs one seed instead of five. Logs and pictures are in FOLDER/results. Exits with 1 if a
# figure was not reproduced by every seed.
folder=$1
shift
options=$*
results=$folder/results
mkdir -p "$results" || exit 1
for program in $REPRODUCE; do
    program=${program##*/}
    rm -f "$results/$program.log"
    echo "$program"
done | xargs -P "$(getconf _NPROCESSORS_ONLN)" -I NAME sh -c "
    '$folder/NAME' $options --pictures '$results' >'$results/NAME.log' 2>&1
    echo \"NAME: exit status \$?, \$(tail -n 1 '$results/NAME.log')\" >&2"
echo
echo '| | published | ours | verdict | minutes |'
echo '|---|---|---|---|---|'
fails=0
for program in $REPRODUCE; do
    program=${program##*/}
    row=$(sed -n 's/^row \(|.*\)/\1/p' "$results/$program.log")
    [ -n "$row" ] || row="| $program | | $(tail -n 1 "$results/$program.log") | no result | |"
    echo "$row"
    case $row in *'| reproduced |'*) ;; *) fails=$((fails + 1)) ;; esac
done
[ "$fails" = 0 ] || { echo "$fails of these not by every seed"; exit 1; }
