/* Devices: who they are, and how they are connected. */
#include "mig.h"

EXPORT Result nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER();
    *count = device_count;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    ENTER();
    if (index >= device_count) return leave(INVALID_ARGUMENT);
    Result result = check(devices[index], __func__, 0);
    if (result == SUCCESS) *device = &handles[devices[index]];
    return leave(result);
}

static Result find_mig_device(int slot, const char *call, const char *uuid, nvmlDevice_t *device) {
    char each[64];
    for (int i = 0; i < MAX_INSTANCES; i++)
        for (int c = 0; c < MAX_COMPUTE; c++) {
            MigPlace place = {slot, i, c};
            if (check_mig(place, call) != SUCCESS) continue;
            mig_uuid(place, each, sizeof each);
            if (strcmp(each, uuid)) continue;
            *device = mig_device(place);
            return SUCCESS;
        }
    return NOT_FOUND;
}

/* As in NVML every GPU is asked, so one that is lost spoils the search for those behind it. */
EXPORT Result nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER();
    for (unsigned i = 0; i < device_count; i++) {
        Result result = check(devices[i], __func__, 0);
        if (result != SUCCESS) return leave(result);
        if (!strcmp(state->gpus[devices[i]].uuid, uuid)) {
            *device = &handles[devices[i]];
            return leave(SUCCESS);
        }
        if (find_mig_device((int)devices[i], __func__, uuid, device) == SUCCESS) return leave(SUCCESS);
    }
    return leave(NOT_FOUND);
}

EXPORT Result nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    Address wanted = {0, 0, 0};
    bool long_form = sscanf(bus_id, "%x:%x:%x.", &wanted.domain, &wanted.bus, &wanted.device) == 3;
    ENTER();
    if (!long_form) return leave(INVALID_ARGUMENT);
    for (unsigned i = 0; i < device_count; i++) {
        if (memcmp(&state->gpus[devices[i]].pci, &wanted, sizeof wanted)) continue;
        Result result = check(devices[i], __func__, 0);
        if (result == SUCCESS) *device = &handles[devices[i]];
        return leave(result);
    }
    return leave(NOT_FOUND);
}

EXPORT Result nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    char of_mig[160];
    ENTER_ANY(device);
    if (place.slot < 0) return leave(copy_text(name, length, gpu->name));
    mig_name(place, of_mig, sizeof of_mig);
    return leave(copy_text(name, length, of_mig));
}

EXPORT Result nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    char of_mig[64];
    ENTER_ANY(device);
    if (place.slot < 0) return leave(copy_text(uuid, length, gpu->uuid));
    mig_uuid(place, of_mig, sizeof of_mig);
    return leave(copy_text(uuid, length, of_mig));
}

EXPORT Result nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    ENTER_DEVICE(device, 0);
    for (unsigned i = 0; i < device_count; i++)
        if (devices[i] == (unsigned)slot_of(device)) {
            *index = i;
            return leave(SUCCESS);
        }
    return leave(INVALID_ARGUMENT);
}

typedef struct { unsigned long long total, free, used; } Memory;

typedef struct { unsigned long long total, reserved, used; } Amounts;

static Amounts amounts_of(const Gpu *gpu, MigPlace place) {
    if (place.slot < 0) return (Amounts){gpu->memory_total, gpu->memory_reserved, gpu->memory_used};
    Amounts amounts = {mig_memory(place), 0, 0};
    for (unsigned i = 0; i < gpu->process_count; i++)
        if (gpu->processes[i].gpu_instance == (unsigned)place.instance) amounts.used += gpu->processes[i].bytes;
    return amounts;
}

/* The first version counts what the driver reserves as used. */
EXPORT Result nvmlDeviceGetMemoryInfo(nvmlDevice_t device, Memory *memory) {
    ENTER_ANY(device);
    Amounts amounts = amounts_of(gpu, place);
    memory->total = amounts.total;
    memory->used = amounts.used + amounts.reserved;
    memory->free = memory->total > memory->used ? memory->total - memory->used : 0;
    return leave(SUCCESS);
}

typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

static void put_address(PciInfo *info, Address address) {
    memset(info, 0, sizeof *info);
    info->domain = address.domain;
    info->bus = address.bus & 0xff;
    info->device = address.device & 0xff;
    snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus, info->device);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04X:%02X:%02X.0", info->domain & 0xffff, info->bus,
             info->device);
}

EXPORT Result nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, PciInfo *info) {
    ENTER_DEVICE(device, 0);
    put_address(info, gpu->pci);
    info->pci_device_id = gpu->pci_device;
    info->pci_subsystem_id = gpu->pci_subsystem;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned *level) {
    ENTER_DEVICE(one, 0);
    int slot = slot_of(other);
    if (slot < 0) return leave(INVALID_ARGUMENT);
    Result result = check((unsigned)slot, __func__, 0);
    if (result != SUCCESS) return leave(result);
    gpu = &state->gpus[slot_of(one)];
    if (gpu->levels[slot] < 0) return leave(NOT_SUPPORTED);
    *level = (unsigned)gpu->levels[slot];
    return leave(SUCCESS);
}

static Result find_link(Gpu *gpu, unsigned link, NvLink **found) {
    if (link >= gpu->link_count) return INVALID_ARGUMENT;
    *found = &gpu->links[link];
    return SUCCESS;
}

EXPORT Result nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    ENTER_DEVICE(device, HAS_LINKS);
    NvLink *found = NULL;
    Result result = find_link(gpu, link, &found);
    if (result == SUCCESS) *active = found->active;
    return leave(result);
}

EXPORT Result nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, unsigned counter,
                                              unsigned long long *count) {
    return read_number(device, __func__, __func__, link, counter, count);
}

EXPORT Result nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, PciInfo *info) {
    ENTER_DEVICE(device, HAS_LINKS);
    NvLink *found = NULL;
    Result result = find_link(gpu, link, &found);
    if (result == SUCCESS) put_address(info, found->remote);
    return leave(result);
}

#ifndef PURSER_OLD_DRIVER /* what came after R450 */

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

EXPORT Result nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, MemoryV2 *memory) {
    ENTER_ANY(device);
    if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return leave(VERSION_MISMATCH);
    Amounts amounts = amounts_of(gpu, place);
    memory->total = amounts.total;
    memory->reserved = amounts.reserved;
    memory->used = amounts.used;
    unsigned long long taken = amounts.used + amounts.reserved;
    memory->free = memory->total > taken ? memory->total - taken : 0;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
    ENTER_DEVICE(device, HAS_LINKS);
    NvLink *found = NULL;
    Result result = find_link(gpu, link, &found);
    if (result == SUCCESS) *type = found->type;
    return leave(result);
}

#endif
