#!/bin/sh
# Epilog piece of Astraeus: the job is over on this node. Runs before every other piece, so that the monitor
# lets go of the GPUs before the site resets them: it is installed as 00- and as zz-astraeus.sh, for Slurm goes through
# Epilog pieces from the last name to the first (seen on 24.11). Whichever comes second finds nothing to do.
#
# Always exits 0 (an Epilog that fails drains the node). A job that was not watched forks nothing.
#
# Usage: 00-astraeus.sh [STATE_DIR]   (Slurm gives no arguments; tests do)
state=${1:-/run/astraeus}
case ${SLURM_JOB_ID:-x} in *[!0-9]*) exit 0 ;; esac
[ -e "$state/jobs/$SLURM_JOB_ID" ] || exit 0

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
# "gpus" of the job file: "0,1", or nothing behind the sign.
gpus=
while IFS== read -r key value; do
	[ "$key" = gpus ] && gpus=$value && break
done 2>/dev/null <"$state/jobs/$SLURM_JOB_ID/job"
rm -rf "$state/jobs/$SLURM_JOB_ID" 2>/dev/null
# dd, for the flag: with a plain > the shell would wait here for a monitor that hangs.
[ -p "$state/wake" ] &&
	dd if=/dev/zero of="$state/wake" bs=1 count=1 oflag=nonblock conv=nocreat 2>/dev/null

# Until the driver is closed, 2 s at most: a reset of a GPU is refused while anybody has it open. The mark holds the
# PID of the child that does, so that one left by a monitor that was killed costs nothing.
tries=0
while [ -n "$gpus" ] && [ -e "$state/driver" ] && [ "$tries" -lt 40 ]; do
	pid=
	read -r pid 2>/dev/null <"$state/driver"
	case $pid in ?*) [ -d "/proc/$pid" ] || break ;; esac
	sleep 0.05
	tries=$((tries + 1))
done
exit 0
