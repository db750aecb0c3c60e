/*
 * How a value is typed, checked and handed on. Pure: no Slurm, no files.
 *
 * The Python twin is astraeus_protocol.settings.parse_option(); tests/unit/test_options_table.py holds both
 * against each other, sentences included.
 */
#ifndef ASTRAEUS_PARSE_H
#define ASTRAEUS_PARSE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that a value may take once encoded: with it, a step's first line stays under 512 bytes. */
#define TEXT_MAX 200
#define VALUE_SIZE (TEXT_MAX + 1)
#define REASON_SIZE 256

enum kind {
	KIND_TIME,
	KIND_FLAG,
	KIND_CHOICE,
	KIND_METRIC,
	KIND_NUMBER,
	KIND_RATIO,
	KIND_PORT,
	KIND_COUNT,
	KIND_PATH,
	KIND_REGEX,
	KIND_SIGNAL,
};

/* One option as a user types it; low and high are seconds for times and graces. */
struct rule {
	const char *name;
	enum kind kind;
	const char *argument;	/* the choices too, as "alert|restart" */
	const char *help;
	double low;
	double high;
	bool asks;		/* whether giving it asks for the watch */
};

/*
 * Check text against rule. On success true, and the canonical form in value (seconds, "1" for a flag,
 * free text percent-encoded). Otherwise false, and in reason what to write instead.
 */
bool parse_value(const struct rule *rule, const char *text, char value[VALUE_SIZE], char reason[REASON_SIZE]);

/* text as an error message may show it: control bytes as '?', cut after 60 bytes. */
void parse_shown(const char *text, char *out, size_t size);

#endif
