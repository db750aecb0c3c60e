/*
 * slurmstepd's side: who runs in this step, on this node, into the job's directory.
 */
#ifndef ASTRAEUS_REGISTER_H
#define ASTRAEUS_REGISTER_H

#include <stdbool.h>
#include <stdint.h>

#include "slurm.h"

/* What the hooks of one slurmstepd share. */
struct step {
	uint32_t job;
	uint32_t step;
	uint32_t restarts;
	bool batch;
	bool job_watched;	/* the job has a directory: its tasks get their ASTRAEUS_* variables */
	int file;		/* steps/<step>, -1: this step is not registered */
	bool full;		/* the job's directory is full: no task lines */
	char cause[16];		/* why the job was restarted; empty on a first start */
};

/* The step of this slurmstepd; register_step() fills it in. */
extern struct step here;

void register_step(spank_t spank);	/* init_post_opt, root */
void register_task(spank_t spank);	/* task_post_fork, root */
void register_gpus(spank_t spank);	/* task_init, in the task, as the user */
void register_exit(spank_t spank);	/* task_exit, root */
void register_end(spank_t spank);	/* exit, root */

#endif
