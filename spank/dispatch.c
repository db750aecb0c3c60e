/*
 * astraeus.so: every hook that Slurm calls. Each returns 0 whatever happened: a watch must never cost a job.
 *
 * There is no job_prolog and no job_epilog hook. Where a plugin has one, Slurm leaves an option's entry out
 * of the environment of the Prolog script.
 */
#include <stdbool.h>

#include "env.h"
#include "options.h"
#include "register.h"

#pragma GCC visibility push(default)
SPANK_PLUGIN(astraeus, 1)
#pragma GCC visibility pop

#define HOOK(name) int name(spank_t spank, int argc __attribute__((unused)), char **argv __attribute__((unused)))

static bool on_node(void)
{
	return spank_context() == S_CTX_REMOTE;
}

HOOK(slurm_spank_init)
{
	options_register(spank);
	return 0;
}

HOOK(slurm_spank_init_post_opt)
{
	switch (spank_context()) {
	case S_CTX_LOCAL:
	case S_CTX_ALLOCATOR:
		options_hand_on(spank);
		break;
	case S_CTX_REMOTE:
		register_step(spank);
		break;
	default:
		break;
	}
	return 0;
}

HOOK(slurm_spank_user_init)
{
	if (on_node()) {
		env_arguments(argc, argv);
		env_for_step(spank);
	}
	return 0;
}

HOOK(slurm_spank_task_init_privileged)
{
	if (on_node())
		env_for_task(spank);
	return 0;
}

HOOK(slurm_spank_task_init)
{
	if (on_node())
		register_gpus(spank);
	return 0;
}

HOOK(slurm_spank_task_post_fork)
{
	if (on_node())
		register_task(spank);
	return 0;
}

HOOK(slurm_spank_task_exit)
{
	if (on_node())
		register_exit(spank);
	return 0;
}

HOOK(slurm_spank_exit)
{
	if (on_node())
		register_end(spank);
	return 0;
}
