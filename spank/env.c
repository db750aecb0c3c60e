#include "env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "options.h"
#include "register.h"

#define RAS_FIRST 16384u
#define RAS_PORTS 8192u
#define RAS_STRIDE 1009u	/* a prime: a job's steps and the jobs beside it lie apart */
#define RAS_BATCH 8191u

static bool env_ras_address = true;

/* NULL unsets: a variable may have come along from another job, by an sbatch inside it. */
static void set(spank_t spank, const char *name, const char *value)
{
	if (value)
		spank_setenv(spank, name, value, 1);
	else
		spank_unsetenv(spank, name);
}

/*
 * Where NCCL's RAS of this step listens: a port of its own. On NCCL's default all jobs of a user share one, and the
 * kernel picks who answers. Outside of the ports that the kernel gives away (32768 and up).
 */
static void ras_address(char *out, size_t size, uint32_t step)
{
	uint64_t own = (uint64_t)here.job + (uint64_t)RAS_STRIDE * (step == STEP_BATCH ? RAS_BATCH : step);

	snprintf(out, size, "localhost:%u", (unsigned)(RAS_FIRST + own % RAS_PORTS));
}

/*
 * What the user has set stays. What we set for the batch script, or for the job that this one was submitted from,
 * is not the user's: our own variable beside it tells.
 */
static void set_ras_address(spank_t spank)
{
	char has[256], ours[64] = "", address[64];

	if (spank_getenv(spank, "ASTRAEUS_RAS_ADDR", ours, sizeof(ours)) != ESPANK_SUCCESS)
		ours[0] = '\0';
	/* One that does not fit is the user's, too: ours are short. */
	if (spank_getenv(spank, "NCCL_RAS_ADDR", has, sizeof(has)) == ESPANK_ENV_NOEXIST)
		has[0] = '\0';
	else if (ours[0] == '\0' || strcmp(has, ours) != 0) {
		set(spank, "ASTRAEUS_RAS_ADDR", NULL);
		return;
	}
	if (!here.job_watched || !env_ras_address) {
		if (ours[0])
			set(spank, "NCCL_RAS_ADDR", NULL);
		set(spank, "ASTRAEUS_RAS_ADDR", NULL);
		return;
	}
	ras_address(address, sizeof(address), here.step);
	set(spank, "NCCL_RAS_ADDR", address);
	set(spank, "ASTRAEUS_RAS_ADDR", address);
}

void env_arguments(int argc, char **argv)
{
	for (int i = 0; i < argc; i++)
		if (strcmp(argv[i], "ras_addr=off") == 0)
			env_ras_address = false;
}

void env_for_step(spank_t spank)
{
	bool restarted = here.job_watched && here.restarts > 0;
	char stop[512], count[16];

	snprintf(stop, sizeof(stop), "%s/jobs/%u/stop", node_state_dir(), here.job);
	snprintf(count, sizeof(count), "%u", here.restarts);
	set(spank, "ASTRAEUS_STOP_FILE", here.job_watched ? stop : NULL);
	set(spank, "ASTRAEUS_RESTART_COUNT", restarted ? count : NULL);
	set(spank, "ASTRAEUS_RESTART_CAUSE", restarted && here.cause[0] ? here.cause : NULL);
	set_ras_address(spank);
}

void env_for_task(spank_t spank)
{
	const char *port = options_given("metrics_port");
	char text[16];
	int local = 0;
	long own;

	if (port == NULL || spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return;
	own = strtol(port, NULL, 10) + local;
	if (own > 65535)
		return;
	snprintf(text, sizeof(text), "%ld", own);
	set(spank, "ASTRAEUS_METRICS_PORT", text);
}
