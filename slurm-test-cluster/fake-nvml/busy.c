/* How busy a GPU is: utilisation, the driver's buffer of samples, processes. */
#include "device.h"

#include <stdlib.h>

enum { SAMPLES_KEPT = 100, MAX_PIDS = 64 };
static const u64 SAMPLE_US = 1000000 / 6;
static const u64 PROCESS_MEMORY = 1ULL << 30;

API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    REACH(device);
    if (divided(device))
        return NVML_ERROR_NOT_SUPPORTED;
    out->gpu = busy(device);
    out->memory = (unsigned int)state_number(device->index, "mem_util", out->gpu / 2);
    return NVML_SUCCESS;
}

/*
 * What samples hold: `util`, or `util_before` for the time before `util_since` (seconds, time of day). Read once for
 * a whole buffer: a file read for each of 100 samples was most of what a monitor seemed to cost.
 */
struct busy_levels {
    unsigned int now, before;
    u64 since_us;
};

static struct busy_levels busy_levels(nvmlDevice_t device)
{
    unsigned int now = busy(device);

    return (struct busy_levels){
        .now = now,
        .before = (unsigned int)state_number(device->index, "util_before", now),
        .since_us = (u64)(state_number(device->index, "util_since", 0) * 1e6),
    };
}

/*
 * The driver's ring of samples: one each 1/6 s, the newest SAMPLES_KEPT of them, stamped with the time of day in
 * microseconds. Sample k lies at k * SAMPLE_US, so two callers see the same ones. With `out` NULL only the size of
 * the buffer to bring is told, as the driver does.
 */
API nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int type, u64 last_seen, unsigned int *value_type,
                         unsigned int *count, nvmlSample_t *out)
{
    u64 last, first, room;
    struct busy_levels levels;

    REACH(device);
    if (type != NVML_SAMPLE_GPU_UTILIZATION || divided(device) || state_number(device->index, "samples", 1) == 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    if (!out) {
        *count = SAMPLES_KEPT;
        return NVML_SUCCESS;
    }
    last = now_us() / SAMPLE_US;
    first = last - SAMPLES_KEPT + 1;
    if (last_seen / SAMPLE_US + 1 > first)
        first = last_seen / SAMPLE_US + 1;
    if (first > last)
        return NVML_ERROR_NOT_FOUND;
    room = *count;
    if (last - first + 1 > room)
        first = last - room + 1;
    *count = 0;
    levels = busy_levels(device);
    for (u64 k = first; k <= last; k++) {
        out[*count].timeStamp = k * SAMPLE_US;
        out[*count].value.ull = 0;
        out[*count].value.ui = k * SAMPLE_US < levels.since_us ? levels.before : levels.now;
        ++*count;
    }
    return NVML_SUCCESS;
}

/* The PIDs of `pids = 4242 4243`. */
static unsigned int listed_pids(nvmlDevice_t device, unsigned int pids[MAX_PIDS])
{
    char value[512], *at = value, *end;
    unsigned int count = 0;

    state_text(device->index, "pids", value, sizeof(value));
    while (count < MAX_PIDS) {
        unsigned long pid = strtoul(at, &end, 10);

        if (end == at)
            break;
        pids[count++] = (unsigned int)pid;
        at = end + (*end == ',');
    }
    return count;
}

API nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *out)
{
    unsigned int pids[MAX_PIDS], there, room = *count;

    REACH(device);
    there = *count = listed_pids(device, pids);
    if (there > room || (there && !out))
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < there; i++)
        out[i] = (nvmlProcessInfo_t){pids[i], PROCESS_MEMORY, ~0u, ~0u};
    return NVML_SUCCESS;
}

API nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *out, unsigned int *count,
                                    u64 last_seen)
{
    unsigned int pids[MAX_PIDS], there, room = *count;

    (void)last_seen;
    REACH(device);
    there = *count = listed_pids(device, pids);
    if (!there)
        return NVML_ERROR_NOT_FOUND;
    if (there > room || !out)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int i = 0; i < there; i++)
        out[i] = (nvmlProcessUtilizationSample_t){pids[i], now_us(), busy(device) / there, 0, 0, 0};
    return NVML_SUCCESS;
}
