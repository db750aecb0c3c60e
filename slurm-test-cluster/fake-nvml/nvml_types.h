/* The parts of NVML's binary interface that nvidia-ml-py 13 uses: return codes, constants and structs. */
#ifndef NVML_TYPES_H
#define NVML_TYPES_H

typedef unsigned long long u64;

typedef enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
} nvmlReturn_t;

enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1, NVML_SAMPLE_GPU_UTILIZATION = 1, NVML_EVENT_XID = 8 };

typedef struct device *nvmlDevice_t;
typedef struct event_set *nvmlEventSet_t;

typedef union { double d; unsigned int ui; unsigned long ul; u64 ull; long long sll; } nvmlValue_t;
typedef struct { u64 timeStamp; nvmlValue_t value; } nvmlSample_t;
typedef struct { unsigned int gpu, memory; } nvmlUtilization_t;
typedef struct { u64 total, free, used; } nvmlMemory_t;
typedef struct { unsigned int version; u64 total, reserved, free, used; } nvmlMemory_v2_t;
typedef struct { unsigned int version, sensorType; int temperature; } nvmlTemperature_t;
typedef struct { unsigned int pid; u64 usedGpuMemory; unsigned int gpuInstanceId, computeInstanceId; } nvmlProcessInfo_t;
typedef struct { unsigned int pid; u64 timeStamp; unsigned int smUtil, memUtil, encUtil, decUtil; } nvmlProcessUtilizationSample_t;
typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct { nvmlDevice_t device; u64 eventType, eventData; unsigned int gpuInstanceId, computeInstanceId; } nvmlEventData_t;
typedef struct {
    unsigned int fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned int valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;

#endif
