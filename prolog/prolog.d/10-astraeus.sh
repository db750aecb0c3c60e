#!/bin/sh
# Prolog piece of Astraeus: hands a job over to this node's monitor by writing one file,
# /run/astraeus/jobs/<job>/job, and makes sure that a monitor runs.
#
# Always exits 0 (a Prolog that fails drains the node), never uses the network, never calls Slurm. A job
# that is not watched forks nothing. Shell: POSIX, dash; Prolog's environment has no PATH.
#
# Usage: 10-astraeus.sh [STATE_DIR [LIB_DIR]]   (Slurm gives no arguments; tests do)

# Watched: who asks, and whose node has GPUs for the job; never who said --no-stall-watch.
[ "${SPANK_ASTRAEUS_NO_STALL_WATCH:-}" = 1 ] && exit 0
asked=${SPANK_ASTRAEUS_STALL_AFTER:-}${SPANK_ASTRAEUS_RESTART_STALLED:-}
asked=$asked${SPANK_ASTRAEUS_STALL_ACTION:-}${SPANK_ASTRAEUS_PROGRESS_METRIC:-}
[ -n "$asked${SLURM_JOB_GPUS:-}" ] || exit 0
case ${SLURM_JOB_ID:-x} in *[!0-9]*) exit 0 ;; esac

PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
VERSION=0.1.0
state=${1:-/run/astraeus}
lib=${2:-/usr/lib/astraeus}
dir=$state/jobs/$SLURM_JOB_ID
newline='
'

# Left over from an attempt whose Epilog never ran: a requeued job keeps its id.
[ -e "$dir" ] && rm -rf "$dir"

# 0711 for the directories: a user reaches the stop file by its path, and lists neither other users' jobs nor what is
# in their own (containers have jobs/ mounted). 0600 for what is in them.
umask 022
[ -d "$state" ] || mkdir -p "$state" 2>/dev/null || exit 0
umask 066
[ -d "$state/jobs" ] || mkdir "$state/jobs" 2>/dev/null || exit 0
mkdir "$dir" 2>/dev/null || exit 0
umask 077

# Why this attempt runs, from our piece in the job's comment: "[astraeus: … cause=stalled …]". Split at "[":
# a long comment then costs no more than its length (a pattern that searches would cost its square).
cause=
find_cause() {
	set -f
	saved_ifs=$IFS
	IFS='['
	set -- $1
	IFS=$saved_ifs
	set +f
	for part in "$@"; do
		case $part in astraeus:*']'*) ;; *) continue ;; esac
		piece=${part%%]*}
		[ ${#piece} -le 400 ] || continue
		# The last piece counts: what we write stands behind what others wrote.
		cause=
		case $piece in *' cause='*) ;; *) continue ;; esac
		word=${piece##*' cause='}
		word=${word%%[!a-z_]*}
		case $word in stalled | failed | node_fail | preempted | requested) cause=$word ;; esac
	done
}

# A comment that is another tool's carries no piece of ours: the cause then comes from the controller.
foreign=
case ${SLURM_JOB_COMMENT:-} in
'[astraeus:'*) ;;
'{'* | '['* | JS1:*) foreign=1 ;;
esac
case ${SLURM_JOB_RESTART_COUNT:-0} in
0 | *[!0-9]*) ;;
*) [ -n "$foreign" ] || find_cause "${SLURM_JOB_COMMENT:-}" ;;
esac

nonce= boot= at=
read -r nonce </proc/sys/kernel/random/uuid
read -r boot </proc/sys/kernel/random/boot_id
read -r at _ </proc/uptime

# key=value, only the first line of a value: the file is read line by line. Nothing said, no line.
put() {
	case $2 in
	'') ;;
	*"$newline"*) [ -z "${2%%"$newline"*}" ] || printf '%s=%s\n' "$1" "${2%%"$newline"*}" ;;
	*) printf '%s=%s\n' "$1" "$2" ;;
	esac
}

write_job() {
	put v 1
	put version "$VERSION"
	put job "$SLURM_JOB_ID"
	put nonce "$nonce"
	put boot "$boot"
	put at "$at"
	put node "${SLURMD_NODENAME:-}"
	put cluster "${SLURM_CLUSTER_NAME:-}"
	put uid "${SLURM_JOB_UID:-${SLURM_UID:-}}"
	put gid "${SLURM_JOB_GID:-}"
	put user "${SLURM_JOB_USER:-}"
	put account "${SLURM_JOB_ACCOUNT:-}"
	put partition "${SLURM_JOB_PARTITION:-}"
	put nodelist "${SLURM_JOB_NODELIST:-${SLURM_NODELIST:-}}"
	put nodes "${SLURM_JOB_NUM_NODES:-}"
	put gpus "${SLURM_JOB_GPUS:-}"
	put restarts "${SLURM_JOB_RESTART_COUNT:-0}"
	put start_time "${SLURM_JOB_START_TIME:-}"
	put work_dir "${SLURM_JOB_WORK_DIR:-}"
	put stdout "${SLURM_JOB_STDOUT:-}"
	put leader "${SLURM_HET_JOB_ID:-}"
	put restart_cause "$cause"
	put comment_foreign "$foreign"
	put by prolog
	put asked "${asked:+1}"
	put stall_after "${SPANK_ASTRAEUS_STALL_AFTER:-}"
	put restart_stalled "${SPANK_ASTRAEUS_RESTART_STALLED:-}"
	put stall_action "${SPANK_ASTRAEUS_STALL_ACTION:-}"
	put progress_metric "${SPANK_ASTRAEUS_PROGRESS_METRIC:-}"
	put progress_end "${SPANK_ASTRAEUS_PROGRESS_END:-}"
	put straggler_metric "${SPANK_ASTRAEUS_STRAGGLER_METRIC:-}"
	put straggler_ratio "${SPANK_ASTRAEUS_STRAGGLER_RATIO:-}"
	put metrics_port "${SPANK_ASTRAEUS_METRICS_PORT:-}"
	put metrics_file "${SPANK_ASTRAEUS_METRICS_FILE:-}"
	put ignore_output "${SPANK_ASTRAEUS_IGNORE_OUTPUT:-}"
	put stop_signal "${SPANK_ASTRAEUS_STOP_SIGNAL:-}"
	put max_restarts "${SPANK_ASTRAEUS_MAX_RESTARTS:-}"
	put avoid_guilty "${SPANK_ASTRAEUS_AVOID_GUILTY:-}"
}

# Whole or not at all: the monitor may look at any moment.
write_job >"$dir/.job" 2>/dev/null && mv "$dir/.job" "$dir/job" 2>/dev/null

# A running monitor has its PID in monitor.lock; then a signal is all it needs, which forks nothing and waits for
# nobody. CONT, for it does no harm to an older monitor. Otherwise start-monitor looks closer.
pid= command=
[ -r "$state/monitor.lock" ] && read -r pid <"$state/monitor.lock"
case $pid in
'' | *[!0-9]*) ;;
*) [ -r "/proc/$pid/cmdline" ] && read -r command <"/proc/$pid/cmdline" ;;
esac 2>/dev/null
case $command in
*astraeus*monitor*) kill -CONT "$pid" 2>/dev/null ;;
*) "$lib/start-monitor" "$state" >/dev/null 2>&1 </dev/null ;;
esac
exit 0
