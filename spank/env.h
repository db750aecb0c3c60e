/*
 * What a watched job's batch script and tasks find in their environment.
 */
#ifndef ASTRAEUS_ENV_H
#define ASTRAEUS_ENV_H

#include "slurm.h"

void env_for_step(spank_t spank);	/* user_init: batch script and every task */
void env_arguments(int argc, char **argv);	/* of plugstack.conf: ras_addr=off */
void env_for_task(spank_t spank);	/* task_init_privileged: what differs from task to task */

#endif
