#!/bin/sh
# Astraeus for Slurm: what a watched job finds in its environment, inside its enroot container as well. `enroot start`
# hands a container nothing of the environment that it was called with; pyxis hands it all.
#
# A hook that fails keeps its container from starting: always exits 0. No environ.d file: that would set empty what the
# job does not have, and under pyxis what is set here wins over what each task has (so not ASTRAEUS_METRICS_PORT, which
# differs from task to task).

# Only where it is this job's: one that an sbatch inside another job brought along names a folder that is gone.
[ -n "${ASTRAEUS_STOP_FILE:-}" ] && [ -d "${ASTRAEUS_STOP_FILE%/*}" ] || exit 0

pass() {
	[ -z "$2" ] || printf '%s=%s\n' "$1" "$2" >>"$ENROOT_ENVIRON"
}
pass ASTRAEUS_STOP_FILE "$ASTRAEUS_STOP_FILE"
pass ASTRAEUS_RESTART_COUNT "${ASTRAEUS_RESTART_COUNT:-}"
pass ASTRAEUS_RESTART_CAUSE "${ASTRAEUS_RESTART_CAUSE:-}"
exit 0
