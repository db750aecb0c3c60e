#include "state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MAX_STATE = 1 << 16, MAX_PAIRS = 2048 };

static const char *state_path(void)
{
    const char *path = getenv("FAKE_NVML_STATE");

    return path && *path ? path : "/run/fake-nvml/state";
}

const char *state_in_use(void)
{
    static char path[512];

    snprintf(path, sizeof(path), "%s.in-use", state_path());
    return path;
}

enum { SAME_CALL_NS = 200 * 1000 };
static struct timespec looked;

static int looked_just_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec == looked.tv_sec && now.tv_nsec - looked.tv_nsec < SAME_CALL_NS)
        return 1;
    looked = now;
    return 0;
}

void state_refresh(void)
{
    looked.tv_sec = 0;
}

struct pair {
    const char *key, *value;
};
static struct pair pairs[MAX_PAIRS];
static int count;

static char *trim(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        end--;
    *end = '\0';
    return text;
}

static void parse(char *text)
{
    char *rest = text, *line, *equals;

    count = 0;
    while ((line = strsep(&rest, "\n")) && count < MAX_PAIRS) {
        equals = strchr(line, '=');
        if (line[0] == '#' || !equals)
            continue;
        *equals = '\0';
        pairs[count].key = trim(line);
        pairs[count++].value = trim(equals + 1);
    }
}

/*
 * The file is looked at once a call, and read and taken apart only when it is another: a look of a monitor asks for a
 * hundred keys. Opening the file for each, then its stat, then going through its text was each time most of what the
 * monitor seemed to cost.
 */
static void look(void)
{
    static char text[MAX_STATE];
    static struct stat seen;
    struct stat now;
    size_t size = 0;
    FILE *file;

    if (looked_just_now())
        return;
    if (stat(state_path(), &now) != 0) {
        count = 0;
        seen.st_ino = 0;
        return;
    }
    if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_dev == seen.st_dev &&
        now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
        return;
    file = fopen(state_path(), "re");
    if (file) {
        size = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
        seen = now;
    }
    text[size] = '\0';
    parse(text);
}

/* The last line with this key counts. */
static int lookup(const char *key, char *out, size_t size)
{
    look();
    for (int at = count - 1; at >= 0; at--)
        if (strcmp(pairs[at].key, key) == 0) {
            snprintf(out, size, "%s", pairs[at].value);
            return 1;
        }
    *out = '\0';
    return 0;
}

int state_text(int index, const char *key, char *out, size_t size)
{
    char full[128];

    snprintf(full, sizeof(full), "gpu.%d.%s", index, key);
    return lookup(full, out, size);
}

double state_number(int index, const char *key, double otherwise)
{
    char text[64], *end;
    double value;

    if (!state_text(index, key, text, sizeof(text)))
        return otherwise;
    value = strtod(text, &end);
    return end == text || *end ? otherwise : value;
}

int state_gpus(void)
{
    char text[64], path[32];
    int gpus;

    if (lookup("gpus", text, sizeof(text))) {
        gpus = atoi(text);
        return gpus < 0 ? 0 : gpus > MAX_GPUS ? MAX_GPUS : gpus;
    }
    for (gpus = 0; gpus < MAX_GPUS; gpus++) {
        snprintf(path, sizeof(path), "/dev/nvidia%d", gpus);
        if (access(path, F_OK) != 0)
            break;
    }
    return gpus;
}
