/* The lines of a step's tasks, and its end. */
#include <stdlib.h>
#include <unistd.h>

#include "node.h"
#include "register.h"

/* rank= and local= of the hook's task; false where Slurm does not know them. */
static bool start_task_line(spank_t spank, struct line *line, const char *word)
{
	uint32_t rank;
	int local;

	if (here.file < 0 || here.full ||
	    spank_get_item(spank, S_TASK_GLOBAL_ID, &rank) != ESPANK_SUCCESS ||
	    spank_get_item(spank, S_TASK_ID, &local) != ESPANK_SUCCESS)
		return false;
	line_start(line, word);
	line_add_number(line, "rank", rank);
	line_add_number(line, "local", (uint64_t)local);
	return true;
}

void register_task(spank_t spank)
{
	struct line line;
	pid_t pid;

	if (!start_task_line(spank, &line, "task") ||
	    spank_get_item(spank, S_TASK_PID, &pid) != ESPANK_SUCCESS)
		return;
	line_add_number(&line, "pid", (uint64_t)pid);
	line_add_number(&line, "start", node_start_time(pid));
	line_write(here.file, &line);
	node_wake();
}

/*
 * The GPUs of a task, from its own environment. Slurm puts them there only just before the task begins;
 * earlier hooks see what the step inherited, which on another node names other GPUs. An srun's step has
 * SLURM_STEP_GPUS or no GPU; SLURM_JOB_GPUS in it is the batch script's.
 */
void register_gpus(spank_t spank)
{
	char gpus[256], visible[256];
	struct line line;

	if (!start_task_line(spank, &line, "gpus"))
		return;
	if (spank_getenv(spank, here.batch ? "SLURM_JOB_GPUS" : "SLURM_STEP_GPUS", gpus, sizeof(gpus)) !=
	    ESPANK_SUCCESS)
		gpus[0] = '\0';
	line_add(&line, "gpus", gpus);
	if (spank_getenv(spank, "CUDA_VISIBLE_DEVICES", visible, sizeof(visible)) == ESPANK_SUCCESS)
		line_add(&line, "visible", visible);
	line_write(here.file, &line);
}

void register_exit(spank_t spank)
{
	struct line line;
	pid_t pid;
	int status;

	if (!start_task_line(spank, &line, "exit"))
		return;
	if (spank_get_item(spank, S_TASK_PID, &pid) == ESPANK_SUCCESS)
		line_add_number(&line, "pid", (uint64_t)pid);
	if (spank_get_item(spank, S_TASK_EXIT_STATUS, &status) == ESPANK_SUCCESS)
		line_add_number(&line, "status", (uint64_t)(unsigned int)status);
	line_add_now(&line);
	line_write(here.file, &line);
	node_wake();
}

void register_end(spank_t spank)
{
	struct line line;

	(void)spank;
	if (here.file < 0)
		return;
	line_start(&line, "end");
	line_add_now(&line);
	line_write(here.file, &line);
	node_wake();
	close(here.file);
	here.file = -1;
}
