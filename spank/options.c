#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "options.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* `sbatch --help` lists every plugin's options together; the tag tells whose these are. */
#define TAG "[astraeus] "

/* Kept in step with astraeus_protocol/settings.py, where each range and default has its place. */
static const struct rule rules[] = {
	{"stall-after", KIND_TIME, "TIME",
	 "call the job stalled after TIME without progress (30s to 7d)", 30, 604800, true},
	{"restart-stalled", KIND_FLAG, "",
	 "restart the job when it is stalled (as --stall-action=restart)", 0, 0, true},
	{"stall-action", KIND_CHOICE, "alert|restart",
	 "what to do when the job is stalled", 0, 0, true},
	{"no-stall-watch", KIND_FLAG, "",
	 "do not watch this job", 0, 0, false},
	{"progress-metric", KIND_METRIC, "NAME",
	 "this metric of the job alone tells its progress", 0, 0, true},
	{"progress-end", KIND_NUMBER, "VALUE",
	 "the progress metric's last value: at it the job is finished", 0, 0, false},
	{"straggler-metric", KIND_METRIC, "NAME",
	 "a metric that holds each rank's time per iteration", 0, 0, false},
	{"straggler-ratio", KIND_RATIO, "R",
	 "how far above the others' median a straggler is (1.01 to 10)", 1.01, 10, false},
	{"metrics-port", KIND_PORT, "PORT",
	 "a rank's metrics are at PORT + its local id on loopback", 1, 65535, false},
	{"metrics-file", KIND_PATH, "PATH",
	 "a rank's metrics are in this text file", 0, 0, false},
	{"ignore-output", KIND_REGEX, "REGEX",
	 "lines of output that match are no progress", 0, 0, false},
	{"stop-signal", KIND_SIGNAL, "SIG[@GRACE]",
	 "how the job is asked to stop (grace 1s to 1h)", 1, 3600, false},
	{"max-restarts", KIND_COUNT, "N",
	 "restart at most N times (0 to 100)", 0, 100, false},
	{"avoid-guilty", KIND_FLAG, "",
	 "restart the job on other nodes than the guilty rank's", 0, 0, false},
};
#define RULES ((int)(sizeof(rules) / sizeof(rules[0])))

/*
 * What was given. Inherited: it came through the environment from the job that this command runs in, so
 * that what is typed here goes over it instead of contradicting it.
 */
static struct given {
	bool set;
	bool inherited;
	char value[VALUE_SIZE];
} givens[RULES];

/* "stall-after" as a key ("stall_after") or, loud, in an environment variable ("STALL_AFTER"). */
static void key_of(const char *name, bool loud, char *out, size_t size)
{
	size_t i;

	for (i = 0; name[i] && i + 1 < size; i++)
		out[i] = name[i] == '-' ? '_' : (char)(loud ? toupper((unsigned char)name[i]) : name[i]);
	out[i] = '\0';
}

static int index_of(const char *key)
{
	char candidate[SPANK_OPTION_MAXLEN];

	for (int i = 0; i < RULES; i++) {
		key_of(rules[i].name, false, candidate, sizeof(candidate));
		if (strcmp(candidate, key) == 0)
			return i;
	}
	return -1;
}

static struct given *given_of(const char *key)
{
	int index = index_of(key);

	return index >= 0 && givens[index].set ? &givens[index] : NULL;
}

/* Slurm keeps a job's options in its environment and takes them from there in each srun inside it. */
static bool is_inherited(const struct rule *rule, const char *text)
{
	char key[SPANK_OPTION_MAXLEN], variable[SPANK_OPTION_MAXLEN + 64];
	const char *value;

	key_of(rule->name, false, key, sizeof(key));
	snprintf(variable, sizeof(variable), "SLURM_SPANK__SLURM_SPANK_OPTION_astraeus_%s", key);
	value = getenv(variable);
	return value && (rule->kind == KIND_FLAG || strcmp(value, text) == 0);
}

/* The option, typed on this command line, that index contradicts when typed there too; -1: none. */
static int contradicted_by(int index)
{
	const char *key = rules[index].name;

	for (int i = 0; i < RULES; i++) {
		if (i == index || !givens[i].set || givens[i].inherited)
			continue;
		if (strcmp(key, "no-stall-watch") == 0 && rules[i].asks)
			return i;
		if (rules[index].asks && strcmp(rules[i].name, "no-stall-watch") == 0)
			return i;
		if (strcmp(key, "restart-stalled") == 0 && strcmp(rules[i].name, "stall-action") == 0 &&
		    strcmp(givens[i].value, "alert") == 0)
			return i;
		if (strcmp(key, "stall-action") == 0 && strcmp(givens[index].value, "alert") == 0 &&
		    strcmp(rules[i].name, "restart-stalled") == 0)
			return i;
	}
	return -1;
}

static void say_contradiction(int one, int other)
{
	/* Always in the table's order, whichever was typed first. */
	int first = one < other ? one : other, second = one < other ? other : one;
	bool valued = rules[second].kind == KIND_CHOICE && rules[first].kind == KIND_FLAG;

	slurm_error("--%s and --%s%s%s contradict each other; leave one of them out", rules[first].name,
		    rules[second].name, valued ? "=" : "", valued ? givens[second].value : "");
}

static int take_typed(int index, const char *text)
{
	const struct rule *rule = &rules[index];
	struct given *given = &givens[index];
	char reason[REASON_SIZE], shown[80];
	int other;

	if (!parse_value(rule, text, given->value, reason)) {
		parse_shown(text, shown, sizeof(shown));
		slurm_error("--%s=%s: %s", rule->name, shown, reason);
		return -1;
	}
	given->set = true;
	given->inherited = is_inherited(rule, text);
	other = given->inherited ? -1 : contradicted_by(index);
	if (other >= 0) {
		say_contradiction(index, other);
		return -1;
	}
	return 0;
}

/* On the node a value was checked long ago; one that is broken all the same must not cost the step. */
static int take_remote(int index, const char *text)
{
	char reason[REASON_SIZE];

	givens[index].set = parse_value(&rules[index], text, givens[index].value, reason);
	if (!givens[index].set)
		slurm_info("astraeus: --%s is left out: %s", rules[index].name, reason);
	return 0;
}

static int take_option(int index, const char *text, int remote)
{
	if (index < 0 || index >= RULES)
		return 0;
	return remote ? take_remote(index, text ? text : "") : take_typed(index, text ? text : "");
}

void options_register(spank_t spank)
{
	/* Static: no release says whether Slurm copies the strings. */
	static char usages[RULES][128];

	for (int i = 0; i < RULES; i++) {
		bool valued = rules[i].kind != KIND_FLAG;
		struct spank_option option = {
			.name = (char *)rules[i].name,
			.arginfo = valued ? (char *)rules[i].argument : NULL,
			.usage = usages[i],
			.has_arg = valued,
			.val = i,
			.cb = take_option,
		};

		snprintf(usages[i], sizeof(usages[i]), TAG "%s", rules[i].help);
		if (spank_option_register(spank, &option) != ESPANK_SUCCESS)
			slurm_debug("astraeus: --%s was not registered", rules[i].name);
	}
}

static bool typed_ask(void)
{
	for (int i = 0; i < RULES; i++)
		if (rules[i].asks && givens[i].set && !givens[i].inherited)
			return true;
	return false;
}

bool options_ask(void)
{
	for (int i = 0; i < RULES; i++)
		if (rules[i].asks && givens[i].set)
			return true;
	return false;
}

/* What is typed goes over what is inherited, where the two contradict each other. */
static void settle_inherited(void)
{
	struct given *off = given_of("no_stall_watch");
	struct given *restart = given_of("restart_stalled");
	struct given *action = given_of("stall_action");

	if (off && off->inherited && typed_ask())
		off->set = false;
	if (off && off->set)
		for (int i = 0; i < RULES; i++)
			if (rules[i].asks)
				givens[i].set = false;
	if (restart && restart->set && action && action->set && strcmp(action->value, "alert") == 0) {
		if (action->inherited && !restart->inherited)
			action->set = false;
		else
			restart->set = false;
	}
}

void options_hand_on(spank_t spank)
{
	char key[SPANK_OPTION_MAXLEN], variable[SPANK_OPTION_MAXLEN + 16];

	/* An srun inside a job makes no job: its Prolog ran, and its step carries the options itself. */
	if (spank_context() == S_CTX_LOCAL && getenv("SLURM_JOB_ID") != NULL)
		return;
	settle_inherited();
	for (int i = 0; i < RULES; i++) {
		if (!givens[i].set)
			continue;
		key_of(rules[i].name, true, key, sizeof(key));
		snprintf(variable, sizeof(variable), "ASTRAEUS_%s", key);
		if (spank_job_control_setenv(spank, variable, givens[i].value, 1) != ESPANK_SUCCESS)
			slurm_error("--%s could not be handed on to the job's nodes", rules[i].name);
	}
	spank_job_control_setenv(spank, "ASTRAEUS_PLUGIN", ASTRAEUS_VERSION, 1);
}

const char *options_given(const char *key)
{
	struct given *given = given_of(key);

	return given ? given->value : NULL;
}

void options_each_own(const char *(*job_value)(const char *key),
		      void (*take)(const char *key, const char *value, void *into), void *into)
{
	char key[SPANK_OPTION_MAXLEN];

	for (int i = 0; i < RULES; i++) {
		const char *inherited;

		if (!givens[i].set)
			continue;
		key_of(rules[i].name, false, key, sizeof(key));
		inherited = job_value(key);
		if (inherited == NULL || strcmp(inherited, givens[i].value) != 0)
			take(key, givens[i].value, into);
	}
}

#ifdef ASTRAEUS_TESTING
__attribute__((visibility("default"))) const struct rule *astraeus_testing_rule(int index)
{
	return index >= 0 && index < RULES ? &rules[index] : NULL;
}

__attribute__((visibility("default"))) bool astraeus_testing_parse(int index, const char *text, char *value,
								     char *reason)
{
	return parse_value(&rules[index], text, value, reason);
}
#endif
