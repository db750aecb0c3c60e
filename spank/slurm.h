/*
 * Slurm's plugin interface, and nothing else of Slurm: spank.h is the part that stays the same from release
 * to release (the plugin is still built once per release: Slurm compares versions when it loads one).
 */
#ifndef ASTRAEUS_SLURM_H
#define ASTRAEUS_SLURM_H

#include <stdint.h>
#include <sys/types.h>

#pragma GCC visibility push(default)
#include <slurm/spank.h>
#pragma GCC visibility pop

/* Step ids that are no srun's; slurm.h has them, spank.h does not. */
#define STEP_BATCH 0xfffffffbu
#define STEP_IS_PLAIN(id) ((id) < 0xfffffff0u)

#endif
