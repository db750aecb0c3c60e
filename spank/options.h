/*
 * The options of sbatch, srun and salloc: their table, what was given, and the way on to Prolog.
 */
#ifndef ASTRAEUS_OPTIONS_H
#define ASTRAEUS_OPTIONS_H

#include "parse.h"
#include "slurm.h"

#define ASTRAEUS_VERSION "0.1.0"

/* Offer every option to Slurm; in slurm_spank_init only. */
void options_register(spank_t spank);

/* sbatch, salloc, srun: what was given, by job control into Prolog's environment (SPANK_ASTRAEUS_*). */
void options_hand_on(spank_t spank);

/* One option in canonical form, NULL when it was not given; key as in the job file ("stall_after"). */
const char *options_given(const char *key);

/* Whether the step asks to be watched: any asking option was given. */
bool options_ask(void);

/*
 * Each option of the step's own, in the order of the table. job_value(key) says what its job holds (NULL:
 * nothing): an option with that same value was inherited through the environment and is not the step's own.
 */
void options_each_own(const char *(*job_value)(const char *key),
		      void (*take)(const char *key, const char *value, void *into), void *into);

#endif
