#include "state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static FILE *open_state(void)
{
    const char *path = getenv("FAKE_NVML_STATE");

    return fopen(path && *path ? path : "/run/fake-nvml/state", "re");
}

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

/* The last line with this key counts. */
static int lookup(const char *key, char *out, size_t size)
{
    char line[1024];
    int found = 0;
    FILE *file = open_state();

    *out = '\0';
    if (!file)
        return 0;
    while (fgets(line, sizeof(line), file)) {
        char *equals = strchr(line, '=');

        if (line[0] == '#' || !equals)
            continue;
        *equals = '\0';
        if (strcmp(trim(line), key) == 0) {
            snprintf(out, size, "%s", trim(equals + 1));
            found = 1;
        }
    }
    fclose(file);
    return found;
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
    int count;

    if (lookup("gpus", text, sizeof(text))) {
        count = atoi(text);
        return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : count;
    }
    for (count = 0; count < MAX_GPUS; count++) {
        snprintf(path, sizeof(path), "/dev/nvidia%d", count);
        if (access(path, F_OK) != 0)
            break;
    }
    return count;
}
