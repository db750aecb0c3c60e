#include "env.h"

#include <stdio.h>
#include <stdlib.h>

#include "node.h"
#include "options.h"
#include "register.h"

/* NULL unsets: a variable may have come along from another job, by an sbatch inside it. */
static void set(spank_t spank, const char *name, const char *value)
{
	if (value)
		spank_setenv(spank, name, value, 1);
	else
		spank_unsetenv(spank, name);
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
