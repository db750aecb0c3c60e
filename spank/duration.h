/*
 * Lengths of time as people type them: 900s, 15m, 2h, 1d, 1h30m, or Slurm's [D-]HH:MM:SS.
 */
#ifndef ASTRAEUS_DURATION_H
#define ASTRAEUS_DURATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False when text is no time; numbers beyond every range saturate. A bare number is none. */
bool duration_parse(const char *text, int64_t *seconds);
/* A whole number of days, hours, minutes or seconds, as "7d". */
void duration_say(int64_t left, char *out, size_t size);
/* Digits at *cursor, which moves on; false when there is none. Saturates. */
bool duration_number(const char **cursor, int64_t *number);

#endif
