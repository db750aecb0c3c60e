/* Clocks, heat, power, memory and links. */
#include "device.h"

#include <stdio.h>
#include <stdlib.h>

static const u64 MEMORY_TOTAL = 80ULL << 30;

API nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *out)
{
    static const char *const keys[] = {"graphics_clock", "sm_clock", "mem_clock", "video_clock"};
    static const double defaults[] = {1980, 1980, 2619, 1545};

    if (type >= 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    return number(device, keys[type], defaults[type], out);
}

API nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *out)
{
    static const char *const keys[] = {"max_graphics_clock", "max_sm_clock", "max_mem_clock", "max_video_clock"};
    static const double defaults[] = {1980, 1980, 2619, 1545};

    if (type >= 4)
        return NVML_ERROR_INVALID_ARGUMENT;
    return number(device, keys[type], defaults[type], out);
}

API nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, u64 *out)
{
    REACH(device);
    *out = (u64)state_number(device->index, "clock_reasons", busy(device) ? 0 : 1);
    return NVML_SUCCESS;
}

API nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, u64 *out)
{
    return nvmlDeviceGetCurrentClocksEventReasons(device, out);
}

API nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *out)
{
    (void)sensor;
    return number(device, "temp", 45, out);
}

API nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *out)
{
    REACH(device);
    out->temperature = (int)state_number(device->index, "temp", 45);
    return NVML_SUCCESS;
}

API nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned int type, unsigned int *out)
{
    (void)type;
    return number(device, "max_temp", 90, out);
}

/* `power` is in watts in the file, in milliwatts in NVML. */
API nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *out)
{
    REACH(device);
    *out = (unsigned int)(state_number(device->index, "power", 70 + 6 * (double)busy(device)) * 1000);
    return NVML_SUCCESS;
}

API nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned int *out)
{
    REACH(device);
    *out = (unsigned int)(state_number(device->index, "power_limit", 700) * 1000);
    return NVML_SUCCESS;
}

API nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, u64 *out)
{
    REACH(device);
    *out = (u64)state_number(device->index, "energy", 0);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out)
{
    REACH(device);
    out->total = MEMORY_TOTAL;
    out->used = (u64)(state_number(device->index, "mem_used_mib", 500) * 1048576);
    out->free = out->total - out->used;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out)
{
    nvmlMemory_t plain;
    nvmlReturn_t result = nvmlDeviceGetMemoryInfo(device, &plain);

    if (result != NVML_SUCCESS)
        return result;
    out->total = plain.total;
    out->used = plain.used;
    out->free = plain.free;
    out->reserved = 0;
    return NVML_SUCCESS;
}

API nvmlDeviceGetCurrPcieLinkGeneration(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "pcie_gen", 5, out);
}

API nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "max_pcie_gen", 5, out);
}

API nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "pcie_width", 16, out);
}

API nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "max_pcie_width", 16, out);
}

API nvmlDeviceGetPcieReplayCounter(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "pcie_replays", 0, out);
}

static int has_link(nvmlDevice_t device, unsigned int link)
{
    return !divided(device) && link < (unsigned int)state_number(device->index, "nvlinks", 0);
}

static unsigned int link_up(nvmlDevice_t device, unsigned int link)
{
    return link != (unsigned int)state_number(device->index, "nvlink_down", -1);
}

API nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, unsigned int *out)
{
    REACH(device);
    if (divided(device))
        return NVML_ERROR_NOT_SUPPORTED;
    if (!has_link(device, link))
        return NVML_ERROR_INVALID_ARGUMENT;
    *out = link_up(device, link);
    return NVML_SUCCESS;
}

API nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, unsigned int counter, u64 *out)
{
    (void)link, (void)counter;
    REACH(device);
    *out = (u64)state_number(device->index, "nvlink_errors", 0);
    return NVML_SUCCESS;
}

/* Fields that have a key of their own; the others are `field.ID`. */
static const struct { unsigned int id; const char *key; } FIELDS[] = {
    {3, "ecc_corrected"}, {4, "ecc_uncorrected"}, {74, "held_power"}, {76, "held_sync"}, {142, "remap_corrected"},
    {143, "remap_uncorrected"}, {144, "remap_pending"}, {145, "remap_failed"}, {269, "held_sw_thermal"},
    {270, "held_hw_thermal"}, {271, "held_brake"},
};
enum { FIELD_LINK_STATE = 165 };

static const char *field_key(unsigned int id)
{
    for (size_t i = 0; i < sizeof(FIELDS) / sizeof(*FIELDS); i++)
        if (FIELDS[i].id == id)
            return FIELDS[i].key;
    return NULL;
}

/* Single fields: those above, 0 where unset, links' states, and `field.ID`; an unset one of these is not supported. */
API nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    REACH(device);
    for (int i = 0; i < count; i++) {
        char key[32], value[64];
        const char *own = field_key(values[i].fieldId);

        snprintf(key, sizeof(key), "field.%u", values[i].fieldId);
        values[i].timestamp = (long long)now_us();
        values[i].latencyUsec = 0;
        values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
        if (!state_text(device->index, key, value, sizeof(value))) {
            if (values[i].fieldId == FIELD_LINK_STATE && has_link(device, values[i].scopeId)) {
                values[i].nvmlReturn = NVML_SUCCESS;
                values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
                values[i].value.ull = link_up(device, values[i].scopeId);
                continue;
            }
            if (!own)
                continue;
            if (!state_text(device->index, own, value, sizeof(value)))
                snprintf(value, sizeof(value), "0");
        }
        values[i].nvmlReturn = NVML_SUCCESS;
        values[i].valueType = 3;
        values[i].value.ull = strtoull(value, NULL, 10);
    }
    return NVML_SUCCESS;
}
