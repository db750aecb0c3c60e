/*
 * A host for unit tests: loads astraeus.so as Slurm does, provides the spank_ functions, plays the hooks.
 *
 *   testhost ASTRAEUS.SO < commands
 *
 * A command is a line of words separated by tabs; a word may hold %XX. Answers go to stdout, one line each,
 * their words separated by tabs and encoded the same way:
 *
 *   context local|remote|allocator|slurmd     where the plugin believes to be
 *   item NAME VALUE                           what spank_get_item() answers; unset ones fail
 *   env NAME VALUE / no-env NAME              the job's environment
 *   call HOOK                                 -> rc HOOK CODE NANOSECONDS
 *   option NAME [ARGUMENT]                    the option's callback -> option NAME CODE
 *   parse NAME TEXT                           -> value VALUE | reason SENTENCE
 *   show-options | show-env | show-control    -> option …, env NAME VALUE, control NAME VALUE
 *   fds                                       -> fds COUNT
 *   loaded                                    -> loaded NANOSECONDS, that dlopen() took
 *
 * What the plugin logs comes as: log LEVEL TEXT.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "options.h"

#define MANY 256

struct pair {
	char name[128];
	char *value;
};

static struct pair items[MANY], environment[MANY], control[MANY];
static struct spank_option options[MANY];
static int options_count;
static spank_context_t context = S_CTX_LOCAL;
static long long loaded_ns;

static const struct { const char *name; spank_item_t item; } item_names[] = {
	{"S_JOB_UID", S_JOB_UID}, {"S_JOB_GID", S_JOB_GID}, {"S_JOB_ID", S_JOB_ID},
	{"S_JOB_STEPID", S_JOB_STEPID}, {"S_JOB_NNODES", S_JOB_NNODES}, {"S_JOB_NODEID", S_JOB_NODEID},
	{"S_JOB_LOCAL_TASK_COUNT", S_JOB_LOCAL_TASK_COUNT},
	{"S_JOB_TOTAL_TASK_COUNT", S_JOB_TOTAL_TASK_COUNT}, {"S_TASK_ID", S_TASK_ID},
	{"S_TASK_GLOBAL_ID", S_TASK_GLOBAL_ID}, {"S_TASK_PID", S_TASK_PID},
	{"S_TASK_EXIT_STATUS", S_TASK_EXIT_STATUS}, {"S_SLURM_RESTART_COUNT", S_SLURM_RESTART_COUNT},
};

static void print_word(const char *text)
{
	putchar('\t');
	for (; *text; text++) {
		unsigned char byte = (unsigned char)*text;

		if (byte <= 0x20 || byte >= 0x7f || byte == '%')
			printf("%%%02X", byte);
		else
			putchar(byte);
	}
}

static void decode(char *text)
{
	char *to = text;

	for (; *text; text++) {
		unsigned int byte;

		if (*text == '%' && sscanf(text + 1, "%2x", &byte) == 1) {
			*to++ = (char)byte;
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static struct pair *find(struct pair *pairs, const char *name)
{
	for (int i = 0; i < MANY; i++)
		if (strcmp(pairs[i].name, name) == 0)
			return &pairs[i];
	return NULL;
}

static void put(struct pair *pairs, const char *name, const char *value)
{
	struct pair *pair = find(pairs, name);

	if (pair == NULL)
		pair = find(pairs, "");
	if (pair == NULL)
		abort();
	free(pair->value);
	snprintf(pair->name, sizeof(pair->name), "%s", value ? name : "");
	pair->value = value ? strdup(value) : NULL;
}

static void show(const struct pair *pairs, const char *word)
{
	for (int i = 0; i < MANY; i++)
		if (pairs[i].name[0]) {
			printf("%s", word);
			print_word(pairs[i].name);
			print_word(pairs[i].value);
			putchar('\n');
		}
}

/* What Slurm gives a plugin. */

spank_context_t spank_context(void)
{
	return context;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void)spank;
	options[options_count++] = *option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	va_list args;
	uint32_t *out;

	(void)spank;
	va_start(args, item);
	out = va_arg(args, uint32_t *);	/* every item that is played here has 32 bits */
	va_end(args);
	for (size_t i = 0; i < sizeof(item_names) / sizeof(item_names[0]); i++) {
		struct pair *pair = item_names[i].item == item ? find(items, item_names[i].name) : NULL;

		if (pair) {
			*out = (uint32_t)strtoul(pair->value, NULL, 0);
			return ESPANK_SUCCESS;
		}
	}
	return ESPANK_BAD_ARG;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *out, int size)
{
	struct pair *pair = find(environment, name);

	(void)spank;
	if (pair == NULL)
		return ESPANK_ENV_NOEXIST;
	snprintf(out, (size_t)size, "%s", pair->value);
	return strlen(pair->value) < (size_t)size ? ESPANK_SUCCESS : ESPANK_NOSPACE;
}

spank_err_t spank_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	(void)spank;
	if (!overwrite && find(environment, name))
		return ESPANK_ENV_EXISTS;
	put(environment, name, value);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	(void)spank;
	put(environment, name, NULL);
	return ESPANK_SUCCESS;
}

spank_err_t spank_job_control_setenv(spank_t spank, const char *name, const char *value, int overwrite)
{
	(void)spank;
	if (!overwrite && find(control, name))
		return ESPANK_ENV_EXISTS;
	put(control, name, value);
	return ESPANK_SUCCESS;
}

static void log_line(const char *level, const char *format, va_list args)
{
	char text[4096];

	vsnprintf(text, sizeof(text), format, args);
	printf("log\t%s", level);
	print_word(text);
	putchar('\n');
}

#define LOGGER(function, level)						\
	void function(const char *format, ...)				\
	{								\
		va_list args;						\
									\
		va_start(args, format);					\
		log_line(level, format, args);				\
		va_end(args);						\
	}
LOGGER(slurm_error, "error")
LOGGER(slurm_info, "info")
LOGGER(slurm_verbose, "verbose")
LOGGER(slurm_debug, "debug")
LOGGER(slurm_spank_log, "spank")

/* The commands. */

static void *need(void *plugin, const char *symbol)
{
	void *found = dlsym(plugin, symbol);

	if (found == NULL) {
		fprintf(stderr, "testhost: %s\n", dlerror());
		exit(2);
	}
	return found;
}

static void set_context(const char *name)
{
	context = strcmp(name, "local") == 0 ? S_CTX_LOCAL :
		  strcmp(name, "remote") == 0 ? S_CTX_REMOTE :
		  strcmp(name, "allocator") == 0 ? S_CTX_ALLOCATOR : S_CTX_SLURMD;
}

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void call(void *plugin, const char *hook, char *argument)
{
	int (*function)(spank_t, int, char **) = (int (*)(spank_t, int, char **))need(plugin, hook);
	char *arguments[] = {argument, NULL};
	long long began = now_ns(), ended;
	int rc = function(NULL, argument != NULL, arguments);

	ended = now_ns();
	printf("rc\t%s\t%d\t%lld\n", hook, rc, ended - began);
}

static void type_option(const char *name, const char *argument)
{
	for (int i = 0; i < options_count; i++)
		if (strcmp(options[i].name, name) == 0)
			printf("option\t%s\t%d\n", name,
			       options[i].cb(options[i].val, argument, context == S_CTX_REMOTE));
}

static void parse(void *plugin, const char *name, const char *text)
{
	bool (*function)(int, const char *, char *, char *) =
		(bool (*)(int, const char *, char *, char *))need(plugin, "astraeus_testing_parse");
	char value[VALUE_SIZE], reason[REASON_SIZE];

	for (int i = 0; i < options_count; i++)
		if (strcmp(options[i].name, name) == 0) {
			bool good = function(options[i].val, text, value, reason);

			printf("%s", good ? "value" : "reason");
			print_word(good ? value : reason);
			putchar('\n');
		}
}

static void show_options(void *plugin)
{
	const struct rule *(*rule_at)(int) = (const struct rule *(*)(int))need(plugin, "astraeus_testing_rule");

	for (int i = 0; i < options_count; i++) {
		const struct rule *rule = rule_at(options[i].val);

		printf("option\t%s\t%d\t%d\t%g\t%g\t%d", rule->name, rule->kind, options[i].has_arg, rule->low,
		       rule->high, rule->asks);
		print_word(options[i].arginfo ? options[i].arginfo : "");
		print_word(options[i].usage);
		putchar('\n');
	}
}

static void count_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	while (directory && readdir(directory))
		count++;
	closedir(directory);
	printf("fds\t%d\n", count - 3);	/* ".", ".." and the directory itself */
}

static void run(void *plugin, char **word)
{
	if (strcmp(word[0], "context") == 0)
		set_context(word[1]);
	else if (strcmp(word[0], "item") == 0)
		put(items, word[1], word[2]);
	else if (strcmp(word[0], "env") == 0)
		put(environment, word[1], word[2] ? word[2] : "");
	else if (strcmp(word[0], "no-env") == 0)
		put(environment, word[1], NULL);
	else if (strcmp(word[0], "call") == 0)
		call(plugin, word[1], word[2]);
	else if (strcmp(word[0], "option") == 0)
		type_option(word[1], word[2]);
	else if (strcmp(word[0], "parse") == 0)
		parse(plugin, word[1], word[2] ? word[2] : "");
	else if (strcmp(word[0], "show-options") == 0)
		show_options(plugin);
	else if (strcmp(word[0], "show-env") == 0)
		show(environment, "env");
	else if (strcmp(word[0], "show-control") == 0)
		show(control, "control");
	else if (strcmp(word[0], "fds") == 0)
		count_descriptors();
	else if (strcmp(word[0], "loaded") == 0)
		printf("loaded\t%lld\n", loaded_ns);
	else
		exit(2);
}

int main(int argc, char **argv)
{
	long long began = now_ns();
	void *plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	char *text = NULL;
	size_t size = 0;

	loaded_ns = now_ns() - began;
	if (plugin == NULL) {
		fprintf(stderr, "testhost: %s\n", argc == 2 ? dlerror() : "usage: testhost PLUGIN");
		return 2;
	}
	while (getline(&text, &size, stdin) > 0) {
		char *words[4] = {NULL}, *rest = text;

		text[strcspn(text, "\n")] = '\0';
		for (int i = 0; i < 3 && rest; i++) {
			words[i] = strsep(&rest, "\t");
			decode(words[i]);
		}
		run(plugin, words);
		fflush(stdout);
	}
	free(text);
	return 0;
}
