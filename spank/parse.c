#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "parse.h"

#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "duration.h"

#define DIGITS "0123456789"
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define SHOWN_MAX 60
/* No number has more digits than this: enough for every range, and nothing overflows. */
#define NUMBER_MAX 64

static const char *const signals[] = {"HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "WINCH", "URG"};
#define SIGNALS (sizeof(signals) / sizeof(signals[0]))

__attribute__((format(printf, 2, 3)))
static bool refuse(char *reason, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(reason, REASON_SIZE, format, args);
	va_end(args);
	return false;
}

void parse_shown(const char *text, char *out, size_t size)
{
	size_t length = strlen(text);
	size_t keep = length;

	if (keep > SHOWN_MAX) {
		keep = SHOWN_MAX;
		/* Never half a UTF-8 character. */
		while (keep > 0 && ((unsigned char)text[keep] & 0xc0) == 0x80)
			keep--;
	}
	snprintf(out, size, "%.*s%s", (int)keep, text, keep < length ? "..." : "");
	for (; *out; out++)
		if ((unsigned char)*out < 0x20 || *out == 0x7f)
			*out = '?';
}

static bool only(const char *text, const char *accepted)
{
	return *text && text[strspn(text, accepted)] == '\0';
}

static bool parse_time(const struct rule *rule, const char *word, const char *text, int64_t *seconds, char *reason)
{
	char shown[SHOWN_MAX + 8], low[24], high[24];

	if (only(text, DIGITS)) {
		parse_shown(text, shown, sizeof(shown));
		return refuse(reason, "a bare number is not taken (Slurm would read it as minutes); "
			      "write %ss or %sm", shown, shown);
	}
	if (!duration_parse(text, seconds))
		return refuse(reason, "not a time; write 90s, 15m, 2h, 1d, 1h30m or HH:MM:SS");
	if ((double)*seconds < rule->low || (double)*seconds > rule->high) {
		duration_say((int64_t)rule->low, low, sizeof(low));
		duration_say((int64_t)rule->high, high, sizeof(high));
		return refuse(reason, "out of range; write a %s from %s to %s", word, low, high);
	}
	return true;
}

static bool take_plain_time(const struct rule *rule, const char *text, char *value, char *reason)
{
	int64_t seconds;

	if (!parse_time(rule, "time", text, &seconds, reason))
		return false;
	snprintf(value, VALUE_SIZE, "%lld", (long long)seconds);
	return true;
}

static bool take_choice(const struct rule *rule, const char *text, char *value, char *reason)
{
	char words[64];
	const char *from = rule->argument;
	size_t used = 0;

	words[0] = '\0';
	while (*from) {
		size_t length = strcspn(from, "|");

		if (strlen(text) == length && strncmp(from, text, length) == 0) {
			snprintf(value, VALUE_SIZE, "%s", text);
			return true;
		}
		used += (size_t)snprintf(words + used, sizeof(words) - used, "%s%.*s", used ? " or " : "",
					 (int)length, from);
		from += length + (from[length] == '|');
	}
	return refuse(reason, "write %s", words);
}

static bool take_metric(const char *text, char *value, char *reason)
{
	if (!only(text, LETTERS DIGITS "_:") || isdigit((unsigned char)*text))
		return refuse(reason, "not a metric name; write letters, digits, _ and :, with no digit first");
	if (strlen(text) > TEXT_MAX)
		return refuse(reason, "too long; write at most %d bytes", TEXT_MAX);
	snprintf(value, VALUE_SIZE, "%s", text);
	return true;
}

/* Whether text is [+-]digits[.digits][e[+-]digits], as both C and Python read it whatever the locale. */
static bool is_number(const char *text)
{
	size_t whole, part = 0;

	if (strlen(text) > NUMBER_MAX)
		return false;
	text += (*text == '+' || *text == '-');
	text += whole = strspn(text, DIGITS);
	if (*text == '.') {
		text++;
		text += part = strspn(text, DIGITS);
	}
	if (!whole && !part)
		return false;
	if (*text == 'e' || *text == 'E') {
		text++;
		text += (*text == '+' || *text == '-');
		return only(text, DIGITS);
	}
	return *text == '\0';
}

static bool read_number(const char *text, double *number)
{
	locale_t plain;

	if (!is_number(text))
		return false;
	plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
	if (plain == (locale_t)0)
		return false;
	*number = strtod_l(text, NULL, plain);
	freelocale(plain);
	return isfinite(*number);
}

static bool take_real(const struct rule *rule, const char *text, char *value, char *reason)
{
	bool ranged = rule->kind == KIND_RATIO;
	double number;

	if (!read_number(text, &number) || (ranged && (number < rule->low || number > rule->high)))
		return ranged ? refuse(reason, "write a number from %g to %g", rule->low, rule->high)
			      : refuse(reason, "not a number; write one such as 1000 or 0.5");
	snprintf(value, VALUE_SIZE, "%s", text);
	return true;
}

static bool take_whole(const struct rule *rule, const char *text, char *value, char *reason)
{
	const char *cursor = text;
	int64_t number;

	if (!only(text, DIGITS) || strlen(text) > NUMBER_MAX || !duration_number(&cursor, &number) ||
	    (double)number < rule->low || (double)number > rule->high)
		return refuse(reason, "write a %s from %g to %g",
			      rule->kind == KIND_PORT ? "port" : "whole number", rule->low, rule->high);
	snprintf(value, VALUE_SIZE, "%lld", (long long)number);
	return true;
}

/* What a line of key=value pairs may hold as it is; the rest travels as %XX. */
static bool encode(const char *text, char *value)
{
	size_t used = 0;

	for (; *text; text++) {
		bool plain = strchr(LETTERS DIGITS "_.-~/", *text) != NULL;

		if (used + (plain ? 1 : 3) > TEXT_MAX)
			return false;
		if (plain)
			value[used++] = *text;
		else
			used += (size_t)sprintf(value + used, "%%%02X", (unsigned char)*text);
	}
	value[used] = '\0';
	return true;
}

static bool take_text(const struct rule *rule, const char *text, char *value, char *reason)
{
	if (!*text)
		return refuse(reason, rule->kind == KIND_PATH ? "write the path of a text file"
							      : "write a regular expression");
	if (!encode(text, value))
		return refuse(reason, "too long; write at most %d bytes (one that is no letter, digit, "
			      "_ . - ~ or / counts as three)", TEXT_MAX);
	if (rule->kind == KIND_REGEX) {
		regex_t compiled;

		if (regcomp(&compiled, text, REG_EXTENDED | REG_NOSUB) != 0)
			return refuse(reason, "not a regular expression; write one that grep -E takes");
		regfree(&compiled);
	}
	return true;
}

static const char *signal_named(const char *text, size_t length)
{
	if (length > 3 && strncasecmp(text, "SIG", 3) == 0) {
		text += 3;
		length -= 3;
	}
	for (size_t i = 0; i < SIGNALS; i++)
		if (strlen(signals[i]) == length && strncasecmp(signals[i], text, length) == 0)
			return signals[i];
	return NULL;
}

static bool take_signal(const struct rule *rule, const char *text, char *value, char *reason)
{
	size_t length = strcspn(text, "@");
	const char *name = signal_named(text, length);
	int64_t grace;

	if (name == NULL)
		return refuse(reason, "write one of HUP, INT, QUIT, USR1, USR2, TERM, CONT, WINCH or URG, "
			      "with @GRACE from 1s to 1h if it needs one, such as USR1@5m");
	if (text[length] == '\0') {
		snprintf(value, VALUE_SIZE, "%s", name);
		return true;
	}
	if (!parse_time(rule, "grace", text + length + 1, &grace, reason))
		return false;
	snprintf(value, VALUE_SIZE, "%s@%lld", name, (long long)grace);
	return true;
}

bool parse_value(const struct rule *rule, const char *text, char value[VALUE_SIZE], char reason[REASON_SIZE])
{
	value[0] = reason[0] = '\0';
	switch (rule->kind) {
	case KIND_FLAG:
		snprintf(value, VALUE_SIZE, "1");
		return true;
	case KIND_TIME:
		return take_plain_time(rule, text, value, reason);
	case KIND_CHOICE:
		return take_choice(rule, text, value, reason);
	case KIND_METRIC:
		return take_metric(text, value, reason);
	case KIND_NUMBER:
	case KIND_RATIO:
		return take_real(rule, text, value, reason);
	case KIND_PORT:
	case KIND_COUNT:
		return take_whole(rule, text, value, reason);
	case KIND_PATH:
	case KIND_REGEX:
		return take_text(rule, text, value, reason);
	case KIND_SIGNAL:
		return take_signal(rule, text, value, reason);
	}
	return false;
}
