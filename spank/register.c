#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "register.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "jobfile.h"
#include "node.h"
#include "options.h"

/* Bytes to set aside for a task: its task, gpus and exit lines (tasks.c). */
#define TASK_BYTES 256u
/* A step that finds the directory full still says so, within this much more. */
#define FULL_ROOM ((size_t)1 << 20)
#define NODELIST_MAX 300
/*
 * The one wait there is: attempt 2 of a job whose Comment is another tool's, in the batch step only, for
 * the cause that the controller's reply brings.
 */
#define CAUSE_POLLS 40
#define CAUSE_POLL_NS 50000000L

struct step here = {.file = -1};

static uint32_t item(spank_t spank, spank_item_t which, uint32_t otherwise)
{
	uint32_t value;

	return spank_get_item(spank, which, &value) == ESPANK_SUCCESS ? value : otherwise;
}

static bool is_cause(const char *word)
{
	static const char *const causes[] = {"stalled", "failed", "node_fail", "preempted", "requested"};

	for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++)
		if (strcmp(word, causes[i]) == 0)
			return true;
	return false;
}

static bool cause_from(const char *word)
{
	if (word == NULL || !is_cause(word))
		return false;
	snprintf(here.cause, sizeof(here.cause), "%s", word);
	return true;
}

/* The word in the file that the monitor writes when the controller tells it. */
static bool cause_from_file(int job_dir)
{
	char text[64];

	if (node_read(job_dir, "cause", text, sizeof(text)) <= 0)
		return false;
	text[strcspn(text, "\n")] = '\0';
	return cause_from(text);
}

/* Some releases answer S_SLURM_RESTART_COUNT with 0 in every attempt (24.11 does); Prolog's number is right. */
static void find_restarts(spank_t spank)
{
	const char *prolog = jobfile_value("restarts");
	unsigned long handed_over = prolog ? strtoul(prolog, NULL, 10) : 0;

	here.restarts = item(spank, S_SLURM_RESTART_COUNT, 0);
	if (handed_over > here.restarts && handed_over < UINT32_MAX)
		here.restarts = (uint32_t)handed_over;
}

static void find_cause(int job_dir)
{
	static const struct timespec pause = {0, CAUSE_POLL_NS};
	const char *foreign = jobfile_value("comment_foreign");
	bool wait = here.batch && foreign && strcmp(foreign, "1") == 0;

	if (here.restarts == 0 || cause_from(jobfile_value("restart_cause")))
		return;
	for (int poll = 0; !cause_from_file(job_dir) && wait && poll < CAUSE_POLLS; poll++)
		nanosleep(&pause, NULL);
}

/* Whether this step is one to register; makes the job's directory for one that asks where there is none. */
static bool find_job(spank_t spank, int *job_dir)
{
	bool asks = options_ask(), off = options_given("no_stall_watch") != NULL, handed_over;
	const char *by;

	*job_dir = node_open_job(here.job);
	here.job_watched = *job_dir >= 0 && jobfile_read(*job_dir);
	if (!here.job_watched && asks) {
		if (*job_dir < 0)
			*job_dir = node_make_job(here.job);
		if (*job_dir < 0) {
			slurm_info("astraeus: no directory for job %u: not watched", here.job);
			return false;
		}
		jobfile_announce(spank, *job_dir, here.job);
		here.job_watched = jobfile_read(*job_dir);
		node_start_monitor();
	}
	if (!here.job_watched)
		return false;
	by = jobfile_value("by");
	handed_over = by && strcmp(by, "prolog") == 0;
	/*
	 * Both --no-stall-watch and an asking option: one is the step's, one its job's (together they are
	 * refused). A job that said --no-stall-watch is not handed over by Prolog, so it tells which.
	 */
	return handed_over ? !off : asks;
}

/*
 * Where this step's srun listens: the monitor finds the process that holds the step's output by it. Slurm
 * gives an address; on the node that has it, the node's name stands instead, so that this node is known.
 */
static void add_launch(spank_t spank, struct line *line)
{
	char host[128], port[16], launch[160];
	const char *node = jobfile_value("node");

	if (spank_getenv(spank, "SLURM_SRUN_COMM_PORT", port, sizeof(port)) != ESPANK_SUCCESS)
		return;
	if (spank_getenv(spank, "SLURM_SRUN_COMM_HOST", host, sizeof(host)) != ESPANK_SUCCESS &&
	    spank_getenv(spank, "SLURM_LAUNCH_NODE_IPADDR", host, sizeof(host)) != ESPANK_SUCCESS)
		return;
	snprintf(launch, sizeof(launch), "%s:%s", node && node_has_address(host) ? node : host, port);
	line_add(line, "launch", launch);
}

struct wanted {
	struct line *line;
	bool text;	/* the pass for free text, which gives way when a line is full */
};

static void add_option(const char *key, const char *value, void *into)
{
	struct wanted *wanted = into;
	bool text = strcmp(key, "metrics_file") == 0 || strcmp(key, "ignore_output") == 0;

	if (text == wanted->text && !line_add(wanted->line, key, value))
		slurm_info("astraeus: %s is left out: the step's options are too long together", key);
}

static void write_step_line(spank_t spank, uint32_t tasks)
{
	char nodelist[NODELIST_MAX + 1], name[16];
	uid_t uid;
	struct line line;

	snprintf(name, sizeof(name), "%u", here.step);
	line_start(&line, "step");
	line_add(&line, "v", "1");
	line_add(&line, "version", ASTRAEUS_VERSION);
	line_add_number(&line, "job", here.job);
	line_add(&line, "step", here.batch ? "batch" : name);
	if (spank_get_item(spank, S_JOB_UID, &uid) == ESPANK_SUCCESS)
		line_add_number(&line, "uid", uid);
	/* In the batch step Slurm says 0 nodes, and its one task is the script. */
	line_add_number(&line, "nodes", here.batch ? 1 : item(spank, S_JOB_NNODES, 1));
	line_add_number(&line, "node_id", here.batch ? 0 : item(spank, S_JOB_NODEID, 0));
	line_add_number(&line, "tasks", here.batch ? 1 : item(spank, S_JOB_TOTAL_TASK_COUNT, tasks));
	line_add_number(&line, "local_tasks", tasks);
	line_add_number(&line, "stepd", (uint64_t)getpid());
	line_add_number(&line, "stepd_start", node_start_time(getpid()));
	line_add_now(&line);
	/* From here on, the less important the later. */
	if (!here.batch)
		add_launch(spank, &line);
	options_each_own(jobfile_value, add_option, &(struct wanted){&line, false});
	options_each_own(jobfile_value, add_option, &(struct wanted){&line, true});
	if (!here.batch &&
	    spank_getenv(spank, "SLURM_STEP_NODELIST", nodelist, sizeof(nodelist)) == ESPANK_SUCCESS)
		line_add(&line, "nodelist", nodelist);
	line_write(here.file, &line);
}

static void open_step(spank_t spank, int job_dir)
{
	uint32_t tasks = here.batch ? 1 : item(spank, S_JOB_LOCAL_TASK_COUNT, 1);
	char name[16];
	struct line line;

	snprintf(name, sizeof(name), "%u", here.step);
	here.full = !node_reserve(job_dir, LINE_SIZE + (size_t)tasks * TASK_BYTES, JOB_LIMIT);
	if (here.full && !node_reserve(job_dir, 2 * LINE_SIZE, JOB_LIMIT + FULL_ROOM))
		return;
	here.file = node_open_step(job_dir, here.batch ? "batch" : name);
	if (here.file < 0) {
		slurm_info("astraeus: step %u.%s could not be registered", here.job,
			   here.batch ? "batch" : name);
		return;
	}
	write_step_line(spank, tasks);
	if (here.full) {
		line_start(&line, "full");
		line_add_now(&line);
		line_write(here.file, &line);
	}
	node_wake();
}

void register_step(spank_t spank)
{
	int job_dir = -1;

	here.job = item(spank, S_JOB_ID, 0);
	here.step = item(spank, S_JOB_STEPID, UINT32_MAX);
	here.batch = here.step == STEP_BATCH;
	/* The extern step is nobody's work, an interactive one is a shell. */
	if (here.job == 0 || !(here.batch || STEP_IS_PLAIN(here.step)))
		return;
	if (find_job(spank, &job_dir))
		open_step(spank, job_dir);
	if (here.job_watched) {
		find_restarts(spank);
		find_cause(job_dir);
	}
	if (job_dir >= 0)
		close(job_dir);
}
