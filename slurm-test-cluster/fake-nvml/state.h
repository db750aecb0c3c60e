/* The state file: `gpu.INDEX.KEY = VALUE` lines, read anew for each question, so a test changes a GPU by writing a file. */
#ifndef STATE_H
#define STATE_H

#include <stddef.h>

enum { MAX_GPUS = 16 };

/* The file that a shared lock is held on while somebody has the driver open. */
const char *state_in_use(void);

/* A call begins: what the file says now is to count. */
void state_refresh(void);

/* How many GPUs there are: `gpus = N`, else the number of /dev/nvidiaN files. */
int state_gpus(void);

/* The number behind `gpu.INDEX.KEY`, or `otherwise` where the file, the line or a number is missing. */
double state_number(int index, const char *key, double otherwise);

/* The text behind `gpu.INDEX.KEY` in `out` (cut to `size`); returns 0 and an empty string where there is none. */
int state_text(int index, const char *key, char *out, size_t size);

#endif
