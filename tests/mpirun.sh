# mpirun.sh: for the scripts that start ranks. Sets
#   mpirun   the command in front of -n RANKS, where ranks may be more than cores, and the user root
#   rank     what a shell of one rank begins with; it sets that shell's rank to the rank's number
#   tells    true if mpirun writes to standard error that a process has failed, and returns a status
#            for a process that exits with 0 but has not ended MPI: Open MPI, but not MPICH
# Open MPI needs options for more ranks than cores and for root, which MPICH does not know.
# shellcheck shell=sh disable=SC2016,SC2034      # they are for the script that includes this file
case $(mpirun --version 2>&1) in
    *'Open MPI'* | *OpenRTE*)
        tells=true mpirun='mpirun --allow-run-as-root --oversubscribe --bind-to none' ;;
    *) tells=false mpirun=mpirun ;;
esac
rank='rank=${OMPI_COMM_WORLD_RANK-$PMI_RANK}; '
