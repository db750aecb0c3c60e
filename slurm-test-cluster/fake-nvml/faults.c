/* What can be wrong with a GPU: ECC errors, remapped rows, retired pages and Xid events. */
#include "device.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct event_set { unsigned int devices; };

API nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    REACH(device);
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned int type, unsigned int counter, u64 *out)
{
    (void)counter;
    REACH(device);
    *out = (u64)state_number(device->index, type == 1 ? "ecc_uncorrected" : "ecc_corrected", 0);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned int type, unsigned int counter,
                                    unsigned int location, u64 *out)
{
    (void)location;
    return nvmlDeviceGetTotalEccErrors(device, type, counter, out);
}

API nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected,
                              unsigned int *pending, unsigned int *failed)
{
    REACH(device);
    *corrected = (unsigned int)state_number(device->index, "remap_corrected", 0);
    *uncorrected = (unsigned int)state_number(device->index, "remap_uncorrected", 0);
    *pending = (unsigned int)state_number(device->index, "remap_pending", 0);
    *failed = (unsigned int)state_number(device->index, "remap_failed", 0);
    return NVML_SUCCESS;
}

API nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned int cause, unsigned int *count, u64 *out)
{
    (void)cause, (void)count, (void)out;
    REACH(device);
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned int cause, unsigned int *count, u64 *out, u64 *stamps)
{
    (void)stamps;
    return nvmlDeviceGetRetiredPages(device, cause, count, out);
}

API nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, unsigned int *out)
{
    (void)out;
    REACH(device);
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, u64 *out)
{
    REACH(device);
    *out = NVML_EVENT_XID;
    return NVML_SUCCESS;
}

API nvmlEventSetCreate(nvmlEventSet_t *out)
{
    *out = calloc(1, sizeof(**out));
    return *out ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlDeviceRegisterEvents(nvmlDevice_t device, u64 types, nvmlEventSet_t set)
{
    REACH(device);
    if (types & NVML_EVENT_XID)
        set->devices |= 1u << device->index;
    return NVML_SUCCESS;
}

/* A GPU's `xid` line is one event: it is told once per event set, and again when its number changes. */
API nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *out, unsigned int timeout_ms)
{
    static unsigned int told[MAX_GPUS];
    u64 end = now_us() + (u64)timeout_ms * 1000;

    for (;;) {
        for (int i = 0; i < MAX_GPUS; i++) {
            unsigned int xid = set->devices & (1u << i) ? (unsigned int)state_number(i, "xid", 0) : 0;

            if (xid == told[i])
                continue;
            told[i] = xid;
            if (!xid)
                continue;
            memset(out, 0, sizeof(*out));
            out->device = &devices[i];
            out->eventType = NVML_EVENT_XID;
            out->eventData = xid;
            return NVML_SUCCESS;
        }
        if (now_us() >= end)
            return NVML_ERROR_TIMEOUT;
        usleep(20000);
    }
}

API nvmlEventSetFree(nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}
