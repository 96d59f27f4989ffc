/* The part of NVML that MIG takes, for one A100 with 40 GB: what the real binding's structs and pointers meet. */
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3, IN_USE = 19, INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25 };
enum { PROFILES = 3, ROOM = 16, SLICES = 7, INFO_V2 = 0x02000098, COMPUTE_INFO_V2 = 0x02000088 };

typedef struct {
    unsigned profile, slices, start, length, compute_profile;
    int used, has_compute;
} Instance;

typedef struct {
    unsigned version, id, is_p2p, slices, most, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mib;
    char name[96];
} ProfileInfo;

typedef struct {
    unsigned version, id, slices, most, multiprocessors, copy, decoders, encoders, jpeg, ofa;
    char name[96];
} ComputeInfo;

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} Pci;

static const struct {
    const char *name;
    unsigned id, slices, most, memory_mib, length, step, last;
} profiles[PROFILES] = {
    {"MIG 1g.5gb", 19, 1, 7, 4864, 1, 1, 6},
    {"MIG 2g.10gb", 14, 2, 3, 9856, 2, 2, 4},
    {"MIG 3g.20gb", 9, 3, 2, 19968, 4, 4, 4},
};
static Instance instances[ROOM];
static unsigned mode;
static int card;

int nvmlInitWithFlags(unsigned flags) { (void)flags; return SUCCESS; }
int nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(int code) { return code == INSUFFICIENT_RESOURCES ? "Insufficient Resources" : "Failed"; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return SUCCESS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { (void)index; *device = &card; return SUCCESS; }

int nvmlDeviceGetPciInfo_v3(void *device, Pci *pci) {
    (void)device;
    memset(pci, 0, sizeof *pci);
    pci->device_id = 0x20B010DE;
    strcpy(pci->bus_id, "00000000:07:00.0");
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *bytes) {
    (void)device;
    bytes[0] = 40960ull << 20;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *device, unsigned *current, unsigned *pending) {
    (void)device;
    *current = *pending = mode;
    return SUCCESS;
}

int nvmlDeviceSetMigMode(void *device, unsigned wanted, unsigned *status) {
    (void)device;
    mode = wanted;
    *status = SUCCESS;
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfoV(void *device, unsigned number, ProfileInfo *info) {
    (void)device;
    if (info->version != INFO_V2) return VERSION_MISMATCH;
    if (number >= PROFILES) return NOT_SUPPORTED;
    info->id = profiles[number].id;
    info->slices = profiles[number].slices;
    info->most = profiles[number].most;
    info->memory_mib = profiles[number].memory_mib;
    strcpy(info->name, profiles[number].name);
    return SUCCESS;
}

int nvmlDeviceGetGpuInstanceProfileInfo(void *device, unsigned number, void *info) {
    (void)device, (void)number, (void)info;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGpuInstances(void *device, unsigned profile, Instance **found, unsigned *count) {
    (void)device;
    *count = 0;
    for (int i = 0; i < ROOM; i++)
        if (instances[i].used && instances[i].profile == profile) found[(*count)++] = &instances[i];
    return SUCCESS;
}

static int is_free(unsigned start, unsigned length) {
    for (int i = 0; i < ROOM; i++) {
        const Instance *each = &instances[i];
        if (each->used && start < each->start + each->length && each->start < start + length) return 0;
    }
    return 1;
}

static int place(unsigned number, unsigned start, Instance **made) {
    for (int i = 0; i < ROOM; i++) {
        if (instances[i].used) continue;
        instances[i] = (Instance){profiles[number].id, profiles[number].slices, start, profiles[number].length, 0, 1, 0};
        *made = &instances[i];
        return SUCCESS;
    }
    return INSUFFICIENT_RESOURCES;
}

int nvmlDeviceCreateGpuInstance(void *device, unsigned profile, Instance **made) {
    (void)device;
    for (unsigned number = 0; number < PROFILES; number++) {
        if (profiles[number].id != profile) continue;
        for (unsigned start = 0; start <= profiles[number].last; start += profiles[number].step)
            if (is_free(start, profiles[number].length)) return place(number, start, made);
    }
    return INSUFFICIENT_RESOURCES;
}

int nvmlGpuInstanceDestroy(Instance *instance) {
    if (instance->has_compute) return IN_USE;
    instance->used = 0;
    return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(Instance *instance, unsigned number, unsigned engine, ComputeInfo *info) {
    (void)engine;
    if (info->version != COMPUTE_INFO_V2) return VERSION_MISMATCH;
    if (number >= instance->slices) return NOT_SUPPORTED;
    info->id = number;
    info->slices = number + 1;
    info->most = instance->slices / (number + 1);
    return SUCCESS;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(Instance *instance, unsigned number, unsigned engine, void *info) {
    (void)instance, (void)number, (void)engine, (void)info;
    return NOT_SUPPORTED;
}

int nvmlGpuInstanceGetComputeInstances(Instance *instance, unsigned profile, int **found, unsigned *count) {
    *count = instance->has_compute && instance->compute_profile == profile;
    if (*count) found[0] = &instance->has_compute;
    return SUCCESS;
}

int nvmlGpuInstanceCreateComputeInstance(Instance *instance, unsigned profile, int **made) {
    instance->has_compute = 1;
    instance->compute_profile = profile;
    *made = &instance->has_compute;
    return SUCCESS;
}

int nvmlComputeInstanceDestroy(int *compute) { *compute = 0; return SUCCESS; }
