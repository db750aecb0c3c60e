#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=4
#SBATCH --stall-after=15m --restart-stalled
#SBATCH --open-mode=append
#
# A batch script that wants a word of its own when the job is stopped. Slurm sends TERM to the ranks and to this
# script at the same time; bash runs the trap once `wait` returns. A script that ends before its ranks are done
# takes their time to save away: it waits for them again.

asked() {
    echo "batch script: asked to stop: $(sed -n 's/^reason: //p' "${ASTRAEUS_STOP_FILE:-/dev/null}" 2>/dev/null)"
}
trap asked TERM

[ -n "${ASTRAEUS_RESTART_CAUSE:-}" ] && echo "restart $ASTRAEUS_RESTART_COUNT: the attempt before was $ASTRAEUS_RESTART_CAUSE"

srun python3 train_with_checkpoint.py &
work=$!
wait "$work"
status=$?
while kill -0 "$work" 2>/dev/null; do
    wait "$work"
    status=$?
done
exit "$status"
