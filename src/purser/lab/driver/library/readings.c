/* Numbers: what the state file says of a call and its arguments. */
#include "mig.h"

unsigned long long value_at(const Gpu *gpu, const Reading *reading, unsigned long long at_us) {
    double seconds = at_us > gpu->since_us ? (at_us - gpu->since_us) / 1e6 : 0;
    return reading->value + (unsigned long long)(reading->per_second * seconds);
}

static unsigned long long value_of(const Gpu *gpu, const Reading *reading) { return value_at(gpu, reading, now_us()); }

Result find_number(const Gpu *gpu, const char *key, unsigned first, unsigned second, unsigned long long *value) {
    bool known = false;
    for (unsigned i = 0; i < gpu->reading_count; i++) {
        const Reading *reading = &gpu->readings[i];
        if (strcmp(reading->call, key)) continue;
        known = true;
        if (reading->first != first || reading->second != second) continue;
        *value = value_of(gpu, reading);
        return SUCCESS;
    }
    for (unsigned i = 0; i < gpu->zero_count; i++) {
        const Zero *zero = &gpu->zeros[i];
        if (strcmp(zero->call, key)) continue;
        known = true;
        *value = 0;
        if (first < zero->firsts && second < zero->seconds) return SUCCESS;
    }
    return known ? INVALID_ARGUMENT : NOT_SUPPORTED;
}

/* "key": the call whose reading it is, "call": the one that was made, whose name failures have. */
static Result read_numbers(nvmlDevice_t device, const char *call, const char *key, const unsigned (*arguments)[2],
                           unsigned count, unsigned long long *values) {
    ENTER_DEVICE_AS(device, call, 0);
    for (unsigned i = 0; i < count; i++) {
        Result result = find_number(gpu, key, arguments[i][0], arguments[i][1], &values[i]);
        if (result != SUCCESS) return leave(result);
    }
    return leave(SUCCESS);
}

Result read_number(nvmlDevice_t device, const char *call, const char *key, unsigned first, unsigned second,
                          unsigned long long *value) {
    const unsigned arguments[1][2] = {{first, second}};
    return read_numbers(device, call, key, arguments, 1, value);
}

/* Calls that give one number, or two; names are written out so that failures can name them. */
#define NUMBER_AS(call, key, type)                                                                                     \
    EXPORT Result call(nvmlDevice_t device, type *number) {                                                            \
        unsigned long long found = 0;                                                                                  \
        Result result = read_number(device, #call, #key, 0, 0, &found);                                                \
        if (result == SUCCESS) *number = (type)found;                                                                  \
        return result;                                                                                                 \
    }
#define NUMBER(call, type) NUMBER_AS(call, call, type)
#define NUMBER_OF(call, type)                                                                                          \
    EXPORT Result call(nvmlDevice_t device, unsigned which, type *number) {                                            \
        unsigned long long found = 0;                                                                                  \
        Result result = read_number(device, #call, #call, which, 0, &found);                                           \
        if (result == SUCCESS) *number = (type)found;                                                                  \
        return result;                                                                                                 \
    }
#define TWO_NUMBERS(call, type)                                                                                        \
    EXPORT Result call(nvmlDevice_t device, type *one, type *other) {                                                  \
        static const unsigned arguments[2][2] = {{0, 0}, {1, 0}};                                                      \
        unsigned long long found[2] = {0, 0};                                                                          \
        Result result = read_numbers(device, #call, #call, arguments, 2, found);                                       \
        if (result == SUCCESS) *one = (type)found[0], *other = (type)found[1];                                         \
        return result;                                                                                                 \
    }

NUMBER(nvmlDeviceGetMinorNumber, unsigned)
NUMBER(nvmlDeviceGetBrand, unsigned)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned)
NUMBER(nvmlDeviceGetComputeMode, unsigned)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned)
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, int)

typedef struct {
    int is_supported;
    unsigned count;
    /* features, of which there are none */
} Licences;

/* No simulated GPU is a vGPU: it needs no licence. */
EXPORT Result nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, Licences *licences) {
    ENTER_DEVICE(device, 0);
    *licences = (Licences){0, 0};
    return leave(SUCCESS);
}

/* Of a GPU in MIG mode NVML does not tell how busy it is. */
static Result read_utilization(nvmlDevice_t device, const char *call, unsigned *one, unsigned *other) {
    unsigned long long found[2] = {0, 0};
    ENTER_DEVICE_AS(device, call, 0);
    if (is_mig_enabled(slot_of(device))) return leave(NOT_SUPPORTED);
    for (unsigned i = 0; i < 2; i++) {
        Result result = find_number(gpu, call, i, 0, &found[i]);
        if (result != SUCCESS) return leave(result);
    }
    *one = (unsigned)found[0];
    *other = (unsigned)found[1];
    return leave(SUCCESS);
}

typedef struct { unsigned gpu, memory; } Utilization;

EXPORT Result nvmlDeviceGetUtilizationRates(nvmlDevice_t device, Utilization *utilization) {
    return read_utilization(device, __func__, &utilization->gpu, &utilization->memory);
}

EXPORT Result nvmlDeviceGetEncoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
    return read_utilization(device, __func__, percent, period_us);
}

EXPORT Result nvmlDeviceGetDecoderUtilization(nvmlDevice_t device, unsigned *percent, unsigned *period_us) {
    return read_utilization(device, __func__, percent, period_us);
}

NUMBER_OF(nvmlDeviceGetTemperature, unsigned)
NUMBER(nvmlDeviceGetPowerUsage, unsigned)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned)
NUMBER(nvmlDeviceGetPowerManagementLimit, unsigned)
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long)
NUMBER(nvmlDeviceGetPerformanceState, unsigned)
NUMBER_OF(nvmlDeviceGetClockInfo, unsigned)
NUMBER_OF(nvmlDeviceGetMaxClockInfo, unsigned)
NUMBER_AS(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDeviceGetCurrentClocksEventReasons, unsigned long long)
NUMBER_AS(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDeviceGetSupportedClocksEventReasons, unsigned long long)
NUMBER_OF(nvmlDeviceGetPcieThroughput, unsigned)
NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned)

typedef struct { unsigned long long reference_us, violation_ns; } ViolationTime;

EXPORT Result nvmlDeviceGetViolationStatus(nvmlDevice_t device, unsigned policy, ViolationTime *time) {
    unsigned long long found = 0;
    Result result = read_number(device, __func__, __func__, policy, 0, &found);
    if (result == SUCCESS) *time = (ViolationTime){now_us(), found};
    return result;
}

TWO_NUMBERS(nvmlDeviceGetEccMode, unsigned)

EXPORT Result nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                          unsigned long long *count) {
    return read_number(device, __func__, __func__, type, counter, count);
}

EXPORT Result nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned type, unsigned counter, unsigned location,
                                              unsigned long long *count) {
    if (type > 1 || counter > 1) return INVALID_ARGUMENT;
    return read_number(device, __func__, __func__, counter * 2 + type, location, count);
}

NUMBER(nvmlDeviceGetRetiredPagesPendingStatus, unsigned)

/* Pages are told where it is told whether some are pending: on GPUs before those that replace rows. */
EXPORT Result nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                           unsigned long long *addresses, unsigned long long *times_us) {
    unsigned long long pending = 0;
    ENTER_DEVICE(device, 0);
    Result supported = find_number(gpu, "nvmlDeviceGetRetiredPagesPendingStatus", 0, 0, &pending);
    if (supported != SUCCESS) return leave(supported);
    unsigned room = addresses ? *count : 0, found = 0;
    for (unsigned i = 0; i < gpu->page_count; i++) {
        if (gpu->pages[i].cause != cause) continue;
        if (found < room) addresses[found] = gpu->pages[i].address;
        if (found < room && times_us) times_us[found] = gpu->pages[i].time_us;
        found++;
    }
    *count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

EXPORT Result nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count,
                                        unsigned long long *addresses) {
    return nvmlDeviceGetRetiredPages_v2(device, cause, count, addresses, NULL);
}

#ifndef PURSER_OLD_DRIVER /* what came after R450 */

NUMBER(nvmlDeviceGetArchitecture, unsigned)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long)
NUMBER(nvmlDeviceGetSupportedClocksEventReasons, unsigned long long)

EXPORT Result nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                        unsigned *pending, unsigned *failed) {
    static const unsigned arguments[4][2] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}};
    unsigned *const numbers[4] = {correctable, uncorrectable, pending, failed};
    unsigned long long found[4] = {0, 0, 0, 0};
    Result result = read_numbers(device, __func__, __func__, arguments, 4, found);
    for (unsigned i = 0; result == SUCCESS && i < 4; i++) *numbers[i] = (unsigned)found[i];
    return result;
}

typedef struct { unsigned max, high, partial, low, none; } BankHistogram;

EXPORT Result nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t device, BankHistogram *banks) {
    static const unsigned arguments[5][2] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
    unsigned long long found[5] = {0, 0, 0, 0, 0};
    Result result = read_numbers(device, __func__, __func__, arguments, 5, found);
    if (result == SUCCESS)
        *banks = (BankHistogram){(unsigned)found[0], (unsigned)found[1], (unsigned)found[2], (unsigned)found[3],
                                 (unsigned)found[4]};
    return result;
}

typedef struct {
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
} FabricInfo;

typedef struct {
    unsigned version;
    unsigned char cluster[16];
    unsigned status, clique;
    unsigned char state;
    unsigned health_mask;
} FabricInfoV2;

static Result read_fabric(nvmlDevice_t device, const char *call, FabricInfo *info) {
    static const unsigned arguments[5][2] = {{0, 0}, {1, 0}, {2, 0}, {3, 0}, {4, 0}};
    unsigned long long found[5] = {0, 0, 0, 0, 0};
    Result result = read_numbers(device, call, "nvmlDeviceGetGpuFabricInfo", arguments, 5, found);
    if (result != SUCCESS) return result;
    info->state = (unsigned char)found[0];
    info->status = (unsigned)found[1];
    info->clique = (unsigned)found[2];
    for (unsigned i = 0; i < 16; i++) info->cluster[i] = (unsigned char)(found[3 + i / 8] >> (56 - i % 8 * 8));
    return SUCCESS;
}

EXPORT Result nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, FabricInfo *info) {
    return read_fabric(device, __func__, info);
}

EXPORT Result nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, FabricInfoV2 *info) {
    FabricInfo found;
    if (info->version != (sizeof(FabricInfoV2) | 2u << 24)) return VERSION_MISMATCH;
    Result result = read_fabric(device, __func__, &found);
    if (result != SUCCESS) return result;
    memcpy(info->cluster, found.cluster, sizeof info->cluster);
    info->status = found.status;
    info->clique = found.clique;
    info->state = found.state;
    return SUCCESS;
}

enum { SRAM_COUNTS = 11 };
typedef struct {
    unsigned version;
    unsigned long long counts[SRAM_COUNTS];
    unsigned is_exceeded;
} SramStatus;

EXPORT Result nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t device, SramStatus *status) {
    unsigned arguments[SRAM_COUNTS + 1][2];
    unsigned long long found[SRAM_COUNTS + 1];
    if (status->version != (sizeof(SramStatus) | 1u << 24)) return VERSION_MISMATCH;
    for (unsigned i = 0; i <= SRAM_COUNTS; i++) arguments[i][0] = i, arguments[i][1] = 0;
    Result result = read_numbers(device, __func__, __func__, arguments, SRAM_COUNTS + 1, found);
    if (result != SUCCESS) return result;
    memcpy(status->counts, found, sizeof status->counts);
    status->is_exceeded = (unsigned)found[SRAM_COUNTS];
    return SUCCESS;
}

typedef struct {
    unsigned field_id, scope_id;
    long long timestamp_us, latency_us;
    unsigned value_type, result;
    unsigned long long value; /* a union: smaller types are in its first bytes */
} FieldValue;

/* The second argument of a field's reading is its type. */
static Result read_field(const Gpu *gpu, FieldValue *into) {
    char key[48];
    snprintf(key, sizeof key, "field-%u", into->field_id);
    bool known = false;
    for (unsigned i = 0; i < gpu->reading_count; i++) {
        const Reading *reading = &gpu->readings[i];
        if (strcmp(reading->call, key)) continue;
        known = true;
        if (reading->first != into->scope_id) continue;
        into->value_type = reading->second;
        into->value = value_of(gpu, reading);
        return SUCCESS;
    }
    for (unsigned i = 0; i < gpu->zero_fields_count; i++) {
        const ZeroFields *zero = &gpu->zero_fields[i];
        if (into->field_id < zero->first || into->field_id > zero->last) continue;
        known = true;
        if (into->scope_id >= zero->scopes) continue;
        into->value_type = zero->type;
        return SUCCESS;
    }
    return known ? INVALID_ARGUMENT : NOT_SUPPORTED;
}

EXPORT Result nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, FieldValue *values) {
    ENTER_DEVICE(device, 0);
    for (int i = 0; i < count; i++) {
        values[i].timestamp_us = (long long)now_us();
        values[i].latency_us = 0;
        values[i].value = 0;
        values[i].result = read_field(gpu, &values[i]);
    }
    return leave(SUCCESS);
}

#endif
