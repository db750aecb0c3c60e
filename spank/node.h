/*
 * The state directory on a node, as the plugin sees it: /run/astraeus/jobs/<job>/ (docs/architecture.md).
 *
 * Everything here runs as root inside slurmstepd, so: no path that a user can set, no symbolic link, no
 * blocking call, and a failure costs a line of the log, never the step.
 */
#ifndef ASTRAEUS_NODE_H
#define ASTRAEUS_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LINE_SIZE 512		/* with its newline; one write of it never mixes with another task's */
#define JOB_TEXT_SIZE 16384
#define JOB_LIMIT ((size_t)4 << 20)	/* bytes that the step files of one job may take */

/* One line of a step file in the making: a word, then " key=value" pairs. */
struct line {
	char text[LINE_SIZE];
	size_t used;
};

/* The state directory: /run/astraeus. */
const char *node_state_dir(void);

void line_start(struct line *line, const char *word);
/* False, and nothing added, when the pair does not fit; blanks and control bytes of value become %XX. */
bool line_add(struct line *line, const char *key, const char *value);
bool line_add_number(struct line *line, const char *key, uint64_t value);
/* at=<CLOCK_BOOTTIME in seconds, two decimals> */
bool line_add_now(struct line *line);
bool line_write(int fd, struct line *line);

/* Directory of a job, -1 when it has none. */
int node_open_job(uint32_t job);
/* The same, made first where it is missing: 0711, in jobs/ 0711. */
int node_make_job(uint32_t job);
/* A small file of a job directory into text (NUL-terminated); -1 when there is none. */
ssize_t node_read(int job_dir, const char *name, char *text, size_t size);
/* Write name once, whole or not at all; false when another was there first or it failed. */
bool node_write_once(int job_dir, const char *name, const char *text);
/* steps/<name> for appending, 0600; -1 on failure. */
int node_open_step(int job_dir, const char *name);
/*
 * Set aside bytes of the limit for the job's step files; false when they are used up. The length of the
 * file "used" counts units of 256 bytes, so that steps that start together need no lock.
 */
bool node_reserve(int job_dir, size_t bytes, size_t limit);

/* Whether a numeric address is one of this node's own, the loopback's included; asks no name service. */
bool node_has_address(const char *address);

/* Tell the monitor to look at jobs/ now; never waits. */
void node_wake(void);
/* Start the monitor where none runs; waits only for a fork. */
void node_start_monitor(void);

/* CLOCK_BOOTTIME as "5123.45". */
void node_now(char *out, size_t size);
/* When pid started, in clock ticks after boot (field 22 of /proc/PID/stat); 0: unknown. */
uint64_t node_start_time(pid_t pid);

#endif
