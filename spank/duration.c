#include "duration.h"

#include <stdio.h>
#include <string.h>

#define DIGITS "0123456789"
/* Far above every range, far below an overflow when it is multiplied. */
#define HUGE_TIME (INT64_C(1) << 40)

/* Digits at *cursor as a number that saturates at HUGE_TIME; false when there is none. */
bool duration_number(const char **cursor, int64_t *number)
{
	size_t digits = strspn(*cursor, DIGITS);

	*number = 0;
	for (size_t i = 0; i < digits; i++)
		if (*number < HUGE_TIME)
			*number = *number * 10 + ((*cursor)[i] - '0');
	if (*number > HUGE_TIME)
		*number = HUGE_TIME;
	*cursor += digits;
	return digits > 0;
}

/* Two digits at most after a colon, as in HH:MM:SS. */
static bool take_sixtieth(const char **cursor, int64_t *number)
{
	const char *start = *cursor + 1;

	if (**cursor != ':')
		return false;
	*cursor = start;
	return duration_number(cursor, number) && *cursor - start <= 2;
}

/* [D-]HH:MM:SS */
static bool take_clock(const char *text, int64_t *seconds)
{
	int64_t days = 0, hours, minutes, rest;

	if (!duration_number(&text, &hours))
		return false;
	if (*text == '-') {
		days = hours;
		text++;
		if (!duration_number(&text, &hours))
			return false;
	}
	if (!take_sixtieth(&text, &minutes) || !take_sixtieth(&text, &rest) || *text)
		return false;
	*seconds = days * 86400 + hours * 3600 + minutes * 60 + rest;
	return true;
}

/* 1d2h3m4s, each part once, in this order, at least one of them */
static bool take_words(const char *text, int64_t *seconds)
{
	static const struct { char unit; int64_t worth; } units[] = {
		{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1},
	};
	const char *start = text;

	*seconds = 0;
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		const char *ahead = text;
		int64_t number;

		if (duration_number(&ahead, &number) && *ahead == units[i].unit) {
			*seconds += number * units[i].worth;
			text = ahead + 1;
		}
	}
	return text != start && *text == '\0';
}

void duration_say(int64_t left, char *out, size_t size)
{
	if (left % 86400 == 0)
		snprintf(out, size, "%lldd", (long long)(left / 86400));
	else if (left % 3600 == 0)
		snprintf(out, size, "%lldh", (long long)(left / 3600));
	else if (left % 60 == 0)
		snprintf(out, size, "%lldm", (long long)(left / 60));
	else
		snprintf(out, size, "%llds", (long long)left);
}

bool duration_parse(const char *text, int64_t *seconds)
{
	return take_clock(text, seconds) || take_words(text, seconds);
}
