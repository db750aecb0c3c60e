/* How busy a GPU is: utilisation, the driver's buffer of samples, processes. */
#include "device.h"

#include <stdlib.h>

enum { SAMPLES_KEPT = 100, MAX_PIDS = 64 };
static const u64 SAMPLE_US = 1000000 / 6;
static const u64 PROCESS_MEMORY = 1ULL << 30;

API nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out)
{
    REACH(device);
    out->gpu = busy(device);
    out->memory = (unsigned int)state_number(device->index, "mem_util", out->gpu / 2);
    return NVML_SUCCESS;
}

/* A sample's value: `util`, or `util_before` for the time before `util_since` (seconds, time of day). */
static unsigned int busy_at(nvmlDevice_t device, u64 time_us)
{
    double since = state_number(device->index, "util_since", 0);

    if ((double)time_us < since * 1e6)
        return (unsigned int)state_number(device->index, "util_before", busy(device));
    return busy(device);
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

    REACH(device);
    if (type != NVML_SAMPLE_GPU_UTILIZATION || state_number(device->index, "samples", 1) == 0)
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
    for (u64 k = first; k <= last; k++) {
        out[*count].timeStamp = k * SAMPLE_US;
        out[*count].value.ull = 0;
        out[*count].value.ui = busy_at(device, k * SAMPLE_US);
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
