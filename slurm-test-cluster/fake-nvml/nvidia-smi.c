/*
 * As far as a site's Epilog uses it: nvidia-smi --gpu-reset [-i INDEX]. Refused, as by the real one, while any process
 * has the driver open; then exit 19, NVML's "in use".
 */
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { IN_USE = 19, USAGE = 2 };

int main(int argc, char **argv)
{
    int first = 0, last = state_gpus(), reset = 0, fd;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--gpu-reset") == 0 || strcmp(argv[i], "-r") == 0) {
            reset = 1;
        } else if (strcmp(argv[i], "-i") == 0 && i + 1 < argc) {
            first = atoi(argv[++i]);
            last = first + 1;
        }
    }
    if (!reset) {
        fprintf(stderr, "usage: nvidia-smi --gpu-reset [-i INDEX]\n");
        return USAGE;
    }
    fd = open(state_in_use(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        printf("The following GPUs could not be reset:\n");
        for (int i = first; i < last; i++)
            printf("  GPU 00000000:%02X:00.0: In use by another client\n", 0x10 + i);
        return IN_USE;
    }
    for (int i = first; i < last; i++)
        printf("GPU 00000000:%02X:00.0 was successfully reset.\n", 0x10 + i);
    return 0;
}
