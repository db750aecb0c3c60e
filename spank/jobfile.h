/*
 * The job file: read where Prolog handed the job over, written here for a step that asks by itself.
 */
#ifndef ASTRAEUS_JOBFILE_H
#define ASTRAEUS_JOBFILE_H

#include <stdbool.h>

#include "slurm.h"

/* Keep the job file of job_dir; false when there is none. */
bool jobfile_read(int job_dir);
/* What it says about key, NULL: nothing. The text stays as it is until the next jobfile_read(). */
const char *jobfile_value(const char *key);
/* Write one for a job that Prolog did not announce; by=plugin. */
void jobfile_announce(spank_t spank, int job_dir, uint32_t job);

#endif
