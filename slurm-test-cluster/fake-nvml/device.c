/*
 * libnvidia-ml.so.1 without a GPU: NVML's entry points as nvidia-ml-py looks them up, answered from a state file.
 * What a key means and its default is in README.md beside this file. Here: the library itself and who the devices are.
 */
#include "device.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

enum { MAX_INSTANCES = 8 };

struct device devices[MAX_GPUS];
static struct device instances[MAX_GPUS][MAX_INSTANCES];
static int initialised, in_use = -1;

u64 now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (u64)now.tv_sec * 1000000 + (u64)now.tv_nsec / 1000;
}

/* Whether `list` (names between blanks) holds this call. */
static int named(const char *list, const char *call)
{
    size_t size = strlen(call);

    for (const char *at = strstr(list, call); at; at = strstr(at + 1, call))
        if ((at == list || at[-1] == ' ') && (at[size] == ' ' || at[size] == '\0'))
            return 1;
    return 0;
}

static int is_device(nvmlDevice_t device)
{
    char *at = (char *)device;

    return (at >= (char *)devices && at < (char *)(devices + MAX_GPUS)) ||
           (at >= (char *)instances && at < (char *)(instances + MAX_GPUS));
}

nvmlReturn_t reach(nvmlDevice_t device, const char *call)
{
    char list[512];

    if (!initialised)
        return NVML_ERROR_UNINITIALIZED;
    if (!is_device(device))
        return NVML_ERROR_INVALID_ARGUMENT;
    state_refresh();
    while (state_number(device->index, "hang", 0) != 0)
        usleep(50000);
    if (state_number(device->index, "lost", 0) != 0)
        return NVML_ERROR_GPU_IS_LOST;
    if (state_number(device->index, "reset_required", 0) != 0)
        return NVML_ERROR_RESET_REQUIRED;
    if (state_text(device->index, "absent", list, sizeof(list)) && named(list, call))
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    if (state_text(device->index, "na", list, sizeof(list)) && named(list, call))
        return NVML_ERROR_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

nvmlReturn_t number_of(const char *call, nvmlDevice_t device, const char *key, double otherwise, unsigned int *out)
{
    nvmlReturn_t reached = reach(device, call);

    if (reached != NVML_SUCCESS)
        return reached;
    *out = (unsigned int)state_number(device->index, key, otherwise);
    return NVML_SUCCESS;
}

static nvmlReturn_t text(nvmlDevice_t device, const char *key, const char *otherwise, char *out, unsigned int size)
{
    char value[128];

    REACH(device);
    if (!state_text(device->index, key, value, sizeof(value)))
        snprintf(value, sizeof(value), "%s", otherwise);
    if (strlen(value) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(out, value);
    return NVML_SUCCESS;
}

unsigned int busy(nvmlDevice_t device)
{
    return (unsigned int)state_number(device->index, "util", 0);
}

int divided(nvmlDevice_t device)
{
    return state_number(device->index, "mig", 0) != 0;
}

/* Where `nvidia-smi --gpu-reset` sees that somebody has the driver open: a shared lock on IN_USE beside the state. */
static void open_driver(void)
{
    if (in_use < 0)
        in_use = open(state_in_use(), O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    if (in_use >= 0)
        flock(in_use, LOCK_SH);
}

API nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    if (state_gpus() == 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    for (int i = 0; i < MAX_GPUS; i++)
        devices[i].index = i;
    if (!initialised)
        open_driver();
    initialised++;
    return NVML_SUCCESS;
}

API nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

API nvmlShutdown(void)
{
    if (!initialised)
        return NVML_ERROR_UNINITIALIZED;
    if (--initialised == 0 && in_use >= 0) {
        close(in_use);
        in_use = -1;
    }
    return NVML_SUCCESS;
}

API nvmlSystemGetDriverVersion(char *out, unsigned int size)
{
    snprintf(out, size, "580.00.00");
    return NVML_SUCCESS;
}

API nvmlSystemGetNVMLVersion(char *out, unsigned int size)
{
    snprintf(out, size, "13.580.00.00");
    return NVML_SUCCESS;
}

API nvmlDeviceGetCount_v2(unsigned int *out)
{
    if (!initialised)
        return NVML_ERROR_UNINITIALIZED;
    *out = (unsigned int)state_gpus();
    return NVML_SUCCESS;
}

API nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *out)
{
    if (!initialised)
        return NVML_ERROR_UNINITIALIZED;
    if (index >= (unsigned int)state_gpus())
        return NVML_ERROR_INVALID_ARGUMENT;
    REACH(&devices[index]);
    *out = &devices[index];
    return NVML_SUCCESS;
}

API nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *out)
{
    REACH(device);
    *out = (unsigned int)device->index;
    return NVML_SUCCESS;
}

API nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "minor", device ? device->index : 0, out);
}

API nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned int size)
{
    return text(device, "name", "Fake GPU", out, size);
}

static unsigned int host_hash(void)
{
    char name[256] = "";
    unsigned int hash = 2166136261u;

    gethostname(name, sizeof(name) - 1);
    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash;
}

API nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned int size)
{
    char otherwise[64];

    REACH(device);
    if (device->instance) {
        snprintf(otherwise, sizeof(otherwise), "MIG-%08x-0000-4000-8000-%08x%04x", host_hash(), device->index,
                 device->instance);
        snprintf(out, size, "%s", otherwise);
        return NVML_SUCCESS;
    }
    snprintf(otherwise, sizeof(otherwise), "GPU-%08x-0000-4000-8000-%012x", host_hash(), device->index);
    return text(device, "uuid", otherwise, out, size);
}

API nvmlDeviceGetSerial(nvmlDevice_t device, char *out, unsigned int size)
{
    char otherwise[32];

    REACH(device);
    snprintf(otherwise, sizeof(otherwise), "%010u", host_hash() / 16 * 16 + (unsigned int)device->index);
    return text(device, "serial", otherwise, out, size);
}

API nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out)
{
    REACH(device);
    memset(out, 0, sizeof(*out));
    out->bus = 0x10 + (unsigned int)device->index;
    out->pciDeviceId = 0x233010DE;
    snprintf(out->busIdLegacy, sizeof(out->busIdLegacy), "0000:%02X:00.0", out->bus);
    snprintf(out->busId, sizeof(out->busId), "00000000:%02X:00.0", out->bus);
    return NVML_SUCCESS;
}

/* MIG: `mig = N` divides a GPU into N instances. */

API nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    REACH(device);
    *current = *pending = (unsigned int)divided(device);
    return NVML_SUCCESS;
}

API nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *out)
{
    return number(device, "max_mig", divided(device) ? MAX_INSTANCES - 1 : 0, out);
}

API nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *out)
{
    REACH(device);
    if (index >= MAX_INSTANCES || index >= (unsigned int)state_number(device->index, "mig", 0))
        return NVML_ERROR_NOT_FOUND;
    *out = &instances[device->index][index];
    **out = (struct device){device->index, (int)index + 1};
    return NVML_SUCCESS;
}

API nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *out)
{
    REACH(device);
    *out = device->instance != 0;
    return NVML_SUCCESS;
}
