/* What every part of the library shares: the devices and the one way to ask them. */
#ifndef DEVICE_H
#define DEVICE_H

#include "nvml_types.h"
#include "state.h"

#define API __attribute__((visibility("default"))) nvmlReturn_t

struct device { int index, instance; /* instance: of device `index`, from 1; 0 for a whole GPU */ };

extern struct device devices[MAX_GPUS];

/* Microseconds since 1970, as the driver stamps its samples. */
u64 now_us(void);

/*
 * Every question about a device passes here: a hung one answers when its `hang` is taken away, a lost one, or one that
 * must be reset, never; a call named in `na` or `absent` is not supported, or not part of this driver.
 */
nvmlReturn_t reach(nvmlDevice_t device, const char *call);

/* The answer to a question for one number: `gpu.INDEX.KEY`, else `otherwise`. */
nvmlReturn_t number_of(const char *call, nvmlDevice_t device, const char *key, double otherwise, unsigned int *out);
#define number(device, key, otherwise, out) number_of(__func__, device, key, otherwise, out)

/* Whether it is divided into instances (MIG). */
int divided(nvmlDevice_t device);

/* Percent of the time that a kernel ran. */
unsigned int busy(nvmlDevice_t device);

#define REACH(device) \
    do { \
        nvmlReturn_t reached = reach(device, __func__); \
        if (reached != NVML_SUCCESS) \
            return reached; \
    } while (0)

#endif
