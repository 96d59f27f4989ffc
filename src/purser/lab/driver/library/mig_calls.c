/* NVML's calls for MIG. */
#include "mig_state.h"

#include <stdlib.h>

enum { GPU_PROFILES = 18, COMPUTE_PROFILES = 9 }; /* NVML's own numbers of them */

static Result enter_enabled(nvmlDevice_t device, const char *call, Gpu **gpu, int *slot) {
    Result result = enter_device(device, call, HAS_MIG, gpu);
    *slot = slot_of(device);
    if (result != SUCCESS) return result;
    return is_mig_enabled(*slot) ? SUCCESS : NOT_SUPPORTED;
}

#define ENTER_ENABLED(device)                                                                                          \
    Gpu *gpu = NULL;                                                                                                   \
    int slot = -1;                                                                                                     \
    do {                                                                                                               \
        Result entered = enter_enabled(device, __func__, &gpu, &slot);                                                 \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

static Result enter_place(bool is_one, MigPlace place, const char *call) {
    Result result = enter();
    if (result != SUCCESS) return result;
    return is_one ? check_mig(place, call) : INVALID_ARGUMENT;
}

#define ENTER_INSTANCE(instance)                                                                                       \
    MigPlace place = {0, 0, 0};                                                                                        \
    do {                                                                                                               \
        bool is_one = instance_place(instance, &place);                                                                \
        Result entered = enter_place(is_one, place, __func__);                                                         \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

#define ENTER_COMPUTE(compute)                                                                                         \
    MigPlace place = {0, 0, 0};                                                                                        \
    do {                                                                                                               \
        bool is_one = compute_instance_place(compute, &place);                                                         \
        Result entered = enter_place(is_one, place, __func__);                                                         \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

/* ---- the mode ---- */

EXPORT Result nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(device, HAS_MIG);
    (void)gpu;
    *current = migs[slot_of(device)].current;
    *pending = migs[slot_of(device)].pending;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceSetMigMode(nvmlDevice_t device, unsigned mode, Result *activation) {
    ENTER_DEVICE(device, HAS_MIG);
    (void)gpu;
    if (mode > 1 || !activation) return leave(INVALID_ARGUMENT);
    int lock = begin_change();
    *activation = set_mode(slot_of(device), mode);
    return leave(end_change(lock, SUCCESS));
}

/* ---- GPU instances ---- */

typedef struct {
    unsigned id, is_p2p, slices, most, multiprocessors, engines[5]; /* copy, decoders, encoders, JPEG, OFA */
    unsigned long long memory_mib;
} ProfileInfo;

typedef struct {
    unsigned version, id, is_p2p, slices, most, multiprocessors, engines[5];
    unsigned long long memory_mib;
    char name[96];
} ProfileInfoV2;

typedef struct { unsigned start, size; } Placement;

static const InstanceProfile *profile_by_number(const Gpu *gpu, unsigned number) {
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].number == number) return &gpu->profiles[i];
    return NULL;
}

static const InstanceProfile *profile_by_id(const Gpu *gpu, unsigned id) {
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].id == id) return &gpu->profiles[i];
    return NULL;
}

static Result fill_v2(const InstanceProfile *profile, ProfileInfoV2 *info) {
    if (info->version != (sizeof *info | 2u << 24)) return VERSION_MISMATCH;
    *info = (ProfileInfoV2){info->version, profile->id, 0, profile->slices, profile->most, profile->multiprocessors,
                            {0}, profile->memory_mib, ""};
    memcpy(info->engines, profile->engines, sizeof info->engines);
    snprintf(info->name, sizeof info->name, "MIG %s", profile->name);
    return SUCCESS;
}

/* With MIG off as well: a driver of R580 says so of an H200. */
EXPORT Result nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned number, ProfileInfo *info) {
    ENTER_DEVICE(device, HAS_MIG);
    if (number >= GPU_PROFILES) return leave(INVALID_ARGUMENT);
    const InstanceProfile *profile = profile_by_number(gpu, number);
    if (!profile) return leave(NOT_SUPPORTED);
    *info = (ProfileInfo){profile->id, 0, profile->slices, profile->most, profile->multiprocessors, {0},
                          profile->memory_mib};
    memcpy(info->engines, profile->engines, sizeof info->engines);
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned number, ProfileInfoV2 *info) {
    ENTER_DEVICE(device, HAS_MIG);
    if (number >= GPU_PROFILES) return leave(INVALID_ARGUMENT);
    const InstanceProfile *profile = profile_by_number(gpu, number);
    return leave(profile ? fill_v2(profile, info) : NOT_SUPPORTED);
}

EXPORT Result nvmlDeviceGetGpuInstanceProfileInfoByIdV(nvmlDevice_t device, unsigned id, ProfileInfoV2 *info) {
    ENTER_ENABLED(device);
    const InstanceProfile *profile = profile_by_id(gpu, id);
    return leave(profile ? fill_v2(profile, info) : NOT_SUPPORTED);
}

static int by_start(const void *one, const void *other) {
    return (int)((const Placement *)one)->start - (int)((const Placement *)other)->start;
}

static Result give_placements(const unsigned *starts, unsigned start_count, unsigned size, Placement *placements,
                              unsigned *count) {
    unsigned room = placements ? *count : start_count;
    *count = start_count;
    if (start_count > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; placements && i < start_count; i++) placements[i] = (Placement){starts[i], size};
    if (placements) qsort(placements, start_count, sizeof *placements, by_start);
    return SUCCESS;
}

EXPORT Result nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned id, Placement *placements,
                                                            unsigned *count) {
    ENTER_ENABLED(device);
    const InstanceProfile *profile = profile_by_id(gpu, id);
    if (!profile) return leave(INVALID_ARGUMENT);
    return leave(give_placements(profile->starts, profile->start_count, profile->size, placements, count));
}

EXPORT Result nvmlDeviceGetGpuInstanceRemainingCapacity(nvmlDevice_t device, unsigned id, unsigned *count) {
    ENTER_ENABLED(device);
    const InstanceProfile *profile = profile_by_id(gpu, id);
    if (!profile) return leave(INVALID_ARGUMENT);
    *count = remaining(slot, profile);
    return leave(SUCCESS);
}

static Result create_at(int slot, unsigned id, int wanted, nvmlGpuInstance_t *instance) {
    const InstanceProfile *profile = profile_by_id(&state->gpus[slot], id);
    MigPlace place;
    if (!profile) return INVALID_ARGUMENT;
    int lock = begin_change();
    Result result = end_change(lock, create_instance(slot, profile, wanted, &place));
    if (result == SUCCESS) *instance = instance_handle(place);
    return result;
}

EXPORT Result nvmlDeviceCreateGpuInstance(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    ENTER_ENABLED(device);
    (void)gpu;
    return leave(create_at(slot, id, -1, instance));
}

static bool is_offered(const unsigned *starts, unsigned count, unsigned size, const Placement *placement) {
    for (unsigned i = 0; placement && placement->size == size && i < count; i++)
        if (starts[i] == placement->start) return true;
    return false;
}

EXPORT Result nvmlDeviceCreateGpuInstanceWithPlacement(nvmlDevice_t device, unsigned id, const Placement *placement,
                                                       nvmlGpuInstance_t *instance) {
    ENTER_ENABLED(device);
    const InstanceProfile *profile = profile_by_id(gpu, id);
    if (!profile || !is_offered(profile->starts, profile->start_count, profile->size, placement))
        return leave(INVALID_ARGUMENT);
    return leave(create_at(slot, id, (int)placement->start, instance));
}

EXPORT Result nvmlGpuInstanceDestroy(nvmlGpuInstance_t instance) {
    ENTER_INSTANCE(instance);
    int lock = begin_change();
    return leave(end_change(lock, destroy_instance(place)));
}

EXPORT Result nvmlDeviceGetGpuInstances(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instances,
                                        unsigned *count) {
    ENTER_ENABLED(device);
    const InstanceProfile *profile = profile_by_id(gpu, id);
    if (!profile) return leave(INVALID_ARGUMENT);
    unsigned room = *count, found = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const Instance *each = &migs[slot].instances[i];
        if (!each->present || each->profile != profile->number) continue;
        if (found < room) instances[found] = instance_handle((MigPlace){slot, i, -1});
        found++;
    }
    *count = found;
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

EXPORT Result nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned id, nvmlGpuInstance_t *instance) {
    ENTER_ENABLED(device);
    (void)gpu;
    if (id >= MAX_INSTANCES || !migs[slot].instances[id].present) return leave(NOT_FOUND);
    *instance = instance_handle((MigPlace){slot, (int)id, -1});
    return leave(SUCCESS);
}

typedef struct { nvmlDevice_t device; unsigned id, profile_id; Placement placement; } InstanceInfo;

EXPORT Result nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, InstanceInfo *info) {
    ENTER_INSTANCE(instance);
    const InstanceProfile *profile = profile_of(place);
    if (!profile) return leave(UNKNOWN);
    unsigned start = migs[place.slot].instances[place.instance].start;
    *info = (InstanceInfo){&handles[place.slot], (unsigned)place.instance, profile->id, {start, profile->size}};
    return leave(SUCCESS);
}

/* ---- compute instances ---- */

typedef struct { unsigned id, slices, most, multiprocessors, engines[5]; } ComputeInfo;
typedef struct { unsigned version, id, slices, most, multiprocessors, engines[5]; char name[96]; } ComputeInfoV2;

EXPORT Result nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned number,
                                                           unsigned engine, ComputeInfo *info) {
    ENTER_INSTANCE(instance);
    if (number >= COMPUTE_PROFILES || engine) return leave(INVALID_ARGUMENT);
    const InstanceProfile *profile = profile_of(place);
    const ComputeProfile *compute = compute_profile(profile, number);
    if (!compute) return leave(NOT_SUPPORTED);
    *info = (ComputeInfo){compute->number, compute->slices, compute->most, compute->multiprocessors, {0}};
    memcpy(info->engines, profile->engines, sizeof info->engines);
    return leave(SUCCESS);
}

EXPORT Result nvmlGpuInstanceGetComputeInstanceProfileInfoV(nvmlGpuInstance_t instance, unsigned number,
                                                            unsigned engine, ComputeInfoV2 *info) {
    ENTER_INSTANCE(instance);
    if (number >= COMPUTE_PROFILES || engine) return leave(INVALID_ARGUMENT);
    if (info->version != (sizeof *info | 2u << 24)) return leave(VERSION_MISMATCH);
    const InstanceProfile *profile = profile_of(place);
    const ComputeProfile *compute = compute_profile(profile, number);
    if (!compute) return leave(NOT_SUPPORTED);
    *info = (ComputeInfoV2){info->version, compute->number, compute->slices, compute->most, compute->multiprocessors,
                            {0}, ""};
    memcpy(info->engines, profile->engines, sizeof info->engines);
    char part[16] = "";
    if (compute->slices < profile->slices) snprintf(part, sizeof part, "%uc.", compute->slices);
    snprintf(info->name, sizeof info->name, "MIG %s%s", part, profile->name);
    return leave(SUCCESS);
}

EXPORT Result nvmlGpuInstanceGetComputeInstanceRemainingCapacity(nvmlGpuInstance_t instance, unsigned number,
                                                                 unsigned *count) {
    ENTER_INSTANCE(instance);
    const ComputeProfile *compute = compute_profile(profile_of(place), number);
    if (!compute) return leave(INVALID_ARGUMENT);
    *count = compute_remaining(place, compute);
    return leave(SUCCESS);
}

EXPORT Result nvmlGpuInstanceGetComputeInstancePossiblePlacements(nvmlGpuInstance_t instance, unsigned number,
                                                                  Placement *placements, unsigned *count) {
    ENTER_INSTANCE(instance);
    const ComputeProfile *compute = compute_profile(profile_of(place), number);
    if (!compute) return leave(INVALID_ARGUMENT);
    return leave(give_placements(compute->starts, compute->start_count, compute->slices, placements, count));
}

static Result create_compute_at(MigPlace place, const ComputeProfile *compute, int wanted,
                                nvmlComputeInstance_t *made) {
    int lock = begin_change();
    Result result = end_change(lock, create_compute(&place, compute, wanted));
    if (result == SUCCESS) *made = compute_handle(place);
    return result;
}

EXPORT Result nvmlGpuInstanceCreateComputeInstance(nvmlGpuInstance_t instance, unsigned number,
                                                   nvmlComputeInstance_t *made) {
    ENTER_INSTANCE(instance);
    const ComputeProfile *compute = compute_profile(profile_of(place), number);
    return leave(compute ? create_compute_at(place, compute, -1, made) : INVALID_ARGUMENT);
}

EXPORT Result nvmlGpuInstanceCreateComputeInstanceWithPlacement(nvmlGpuInstance_t instance, unsigned number,
                                                                const Placement *placement,
                                                                nvmlComputeInstance_t *made) {
    ENTER_INSTANCE(instance);
    const ComputeProfile *compute = compute_profile(profile_of(place), number);
    if (!compute || !is_offered(compute->starts, compute->start_count, compute->slices, placement))
        return leave(INVALID_ARGUMENT);
    return leave(create_compute_at(place, compute, (int)placement->start, made));
}

EXPORT Result nvmlComputeInstanceDestroy(nvmlComputeInstance_t compute) {
    ENTER_COMPUTE(compute);
    int lock = begin_change();
    return leave(end_change(lock, destroy_compute(place)));
}

EXPORT Result nvmlGpuInstanceGetComputeInstances(nvmlGpuInstance_t instance, unsigned number,
                                                 nvmlComputeInstance_t *found, unsigned *count) {
    ENTER_INSTANCE(instance);
    if (!compute_profile(profile_of(place), number)) return leave(INVALID_ARGUMENT);
    unsigned room = *count, all = 0;
    for (place.compute = 0; place.compute < MAX_COMPUTE; place.compute++) {
        const Compute *each = &migs[place.slot].instances[place.instance].compute[place.compute];
        if (!each->present || each->profile != number) continue;
        if (all < room) found[all] = compute_handle(place);
        all++;
    }
    *count = all;
    return leave(all > room ? INSUFFICIENT_SIZE : SUCCESS);
}

EXPORT Result nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id,
                                                    nvmlComputeInstance_t *found) {
    ENTER_INSTANCE(instance);
    place.compute = (int)id;
    if (id >= MAX_COMPUTE || check_mig(place, __func__) != SUCCESS) return leave(NOT_FOUND);
    *found = compute_handle(place);
    return leave(SUCCESS);
}

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t instance;
    unsigned id, profile_id;
    Placement placement;
} ComputeInstanceInfo;

EXPORT Result nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, ComputeInstanceInfo *info) {
    ENTER_COMPUTE(compute);
    const Compute *each = &migs[place.slot].instances[place.instance].compute[place.compute];
    const ComputeProfile *profile = compute_profile(profile_of(place), each->profile);
    if (!profile) return leave(UNKNOWN);
    *info = (ComputeInstanceInfo){&handles[place.slot], instance_handle(place), (unsigned)place.compute,
                                  profile->number, {each->start, profile->slices}};
    return leave(SUCCESS);
}

/* ---- MIG devices: compute instances as devices ---- */

EXPORT Result nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    MigPlace place;
    ENTER();
    if (!mig_place(device, &place) && slot_of(device) < 0) return leave(INVALID_ARGUMENT);
    *is_mig = mig_place(device, &place);
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned index, nvmlDevice_t *found) {
    unsigned long long most = 0;
    ENTER_DEVICE(device, HAS_MIG);
    find_number(gpu, "nvmlDeviceGetMaxMigDeviceCount", 0, 0, &most);
    if (index >= most) return leave(INVALID_ARGUMENT);
    for (int i = 0; i < MAX_INSTANCES; i++)
        for (int c = 0; c < MAX_COMPUTE; c++) {
            MigPlace place = {slot_of(device), i, c};
            if (check_mig(place, __func__) != SUCCESS || index--) continue;
            *found = mig_device(place);
            return leave(SUCCESS);
        }
    return leave(NOT_FOUND);
}

EXPORT Result nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent) {
    ENTER_ANY(device);
    (void)gpu;
    if (place.slot < 0) return leave(INVALID_ARGUMENT);
    *parent = &handles[place.slot];
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    ENTER_ANY(device);
    (void)gpu;
    if (place.slot < 0) return leave(NOT_SUPPORTED);
    *id = (unsigned)place.instance;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    ENTER_ANY(device);
    (void)gpu;
    if (place.slot < 0) return leave(NOT_SUPPORTED);
    *id = (unsigned)place.compute;
    return leave(SUCCESS);
}

typedef struct {
    unsigned multiprocessors, engines[5], instance_slices, compute_slices;
    unsigned long long memory_mib;
} Attributes;

EXPORT Result nvmlDeviceGetAttributes_v2(nvmlDevice_t device, Attributes *attributes) {
    ENTER_ANY(device);
    (void)gpu;
    if (place.slot < 0) return leave(NOT_SUPPORTED);
    const InstanceProfile *profile = profile_of(place);
    unsigned number = migs[place.slot].instances[place.instance].compute[place.compute].profile;
    const ComputeProfile *compute = compute_profile(profile, number);
    if (!compute) return leave(UNKNOWN);
    *attributes = (Attributes){compute->multiprocessors, {0}, profile->slices, compute->slices, profile->memory_mib};
    memcpy(attributes->engines, profile->engines, sizeof attributes->engines);
    return leave(SUCCESS);
}
