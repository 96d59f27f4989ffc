/* MIG: who is where, and what is made and removed; the structs that calls give are in mig_calls.c. */
#define _GNU_SOURCE
#include "mig_state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

Mig migs[MAX_GPUS];
static struct stat mig_stat;
static struct nvmlDevice_st mig_handles[MAX_GPUS * MAX_INSTANCES * MAX_COMPUTE];
struct nvmlGpuInstance_st { char token; };
static struct nvmlGpuInstance_st instance_handles[MAX_GPUS * MAX_INSTANCES];
struct nvmlComputeInstance_st { char token; };
static struct nvmlComputeInstance_st compute_handles[MAX_GPUS * MAX_INSTANCES * MAX_COMPUTE];

/* ---- handles ---- */

static MigPlace compute_place(long index) {
    return (MigPlace){(int)(index / MAX_COMPUTE / MAX_INSTANCES), (int)(index / MAX_COMPUTE % MAX_INSTANCES),
                      (int)(index % MAX_COMPUTE)};
}

static int compute_index(MigPlace place) {
    return (place.slot * MAX_INSTANCES + place.instance) * MAX_COMPUTE + place.compute;
}

bool mig_place(nvmlDevice_t device, MigPlace *place) {
    if (device < mig_handles || device >= mig_handles + MAX_GPUS * MAX_INSTANCES * MAX_COMPUTE) return false;
    *place = compute_place(device - mig_handles);
    return true;
}

bool instance_place(nvmlGpuInstance_t instance, MigPlace *place) {
    if (instance < instance_handles || instance >= instance_handles + MAX_GPUS * MAX_INSTANCES) return false;
    long index = instance - instance_handles;
    *place = (MigPlace){(int)(index / MAX_INSTANCES), (int)(index % MAX_INSTANCES), -1};
    return true;
}

bool compute_instance_place(nvmlComputeInstance_t compute, MigPlace *place) {
    if (compute < compute_handles || compute >= compute_handles + MAX_GPUS * MAX_INSTANCES * MAX_COMPUTE) return false;
    *place = compute_place(compute - compute_handles);
    return true;
}

nvmlDevice_t mig_device(MigPlace place) { return &mig_handles[compute_index(place)]; }
nvmlGpuInstance_t instance_handle(MigPlace place) { return &instance_handles[place.slot * MAX_INSTANCES + place.instance]; }
nvmlComputeInstance_t compute_handle(MigPlace place) { return &compute_handles[compute_index(place)]; }

/* ---- the file ---- */

static bool parse_mig_line(Mig *into, const char *line) {
    unsigned slot, a, b, c, d;
    if (sscanf(line, "mode %u %u %u", &slot, &a, &b) == 3) {
        if (slot >= MAX_GPUS) return false;
        into[slot].current = a;
        into[slot].pending = b;
        return true;
    }
    if (sscanf(line, "instance %u %u %u %u", &slot, &a, &b, &c) == 4) {
        if (slot >= MAX_GPUS || a >= MAX_INSTANCES) return false;
        into[slot].instances[a] = (Instance){.present = true, .profile = b, .start = c};
        return true;
    }
    if (sscanf(line, "compute %u %u %u %u %u", &slot, &a, &b, &c, &d) == 5) {
        if (slot >= MAX_GPUS || a >= MAX_INSTANCES || b >= MAX_COMPUTE) return false;
        into[slot].instances[a].compute[b] = (Compute){.present = true, .profile = c, .start = d};
        return true;
    }
    return false;
}

static void mig_path(char *path, const char *name) { snprintf(path, PATH_MAX + 16, "%s/%s", folder, name); }

void refresh_mig(void) {
    char path[PATH_MAX + 16], line[128];
    struct stat now;
    mig_path(path, "node.mig");
    if (stat(path, &now) || is_same_file(&now, &mig_stat)) return;
    FILE *file = fopen(path, "re");
    Mig *fresh = file ? calloc(MAX_GPUS, sizeof *fresh) : NULL;
    bool good = fresh != NULL;
    while (good && fgets(line, sizeof line, file)) good = parse_mig_line(fresh, line);
    if (good) {
        memcpy(migs, fresh, sizeof migs);
        mig_stat = now;
    } else if (fresh) {
        fprintf(stderr, "simulated NVML: %s: bad line: %s", path, line);
    }
    free(fresh);
    if (file) fclose(file);
}

static void write_lines(FILE *file) {
    for (unsigned slot = 0; slot < MAX_GPUS; slot++) {
        const Mig *mig = &migs[slot];
        if (mig->current || mig->pending) fprintf(file, "mode %u %u %u\n", slot, mig->current, mig->pending);
        for (unsigned i = 0; i < MAX_INSTANCES; i++) {
            const Instance *instance = &mig->instances[i];
            if (!instance->present) continue;
            fprintf(file, "instance %u %u %u %u\n", slot, i, instance->profile, instance->start);
            for (unsigned c = 0; c < MAX_COMPUTE; c++)
                if (instance->compute[c].present)
                    fprintf(file, "compute %u %u %u %u %u\n", slot, i, c, instance->compute[c].profile,
                            instance->compute[c].start);
        }
    }
}

/* Its modification time is new even within one tick of the file system's clock, as of the state file. */
static Result write_file(void) {
    char path[PATH_MAX + 16], fresh[PATH_MAX + 16];
    mig_path(path, "node.mig");
    mig_path(fresh, ".node.mig.new");
    FILE *file = fopen(fresh, "we");
    if (!file) return UNKNOWN;
    write_lines(file);
    struct timespec times[2];
    clock_gettime(CLOCK_REALTIME, &times[0]);
    times[1] = times[0];
    bool good = !fflush(file) && !futimens(fileno(file), times);
    good = !fclose(file) && good;
    return good && !rename(fresh, path) ? SUCCESS : UNKNOWN;
}

/* Nobody else writes until end_change. With the mutex, which others wait for meanwhile. */
int begin_change(void) {
    char path[PATH_MAX + 16];
    mig_path(path, "node.lock");
    int lock = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    while (lock >= 0 && flock(lock, LOCK_EX) && errno == EINTR) continue;
    refresh_mig();
    return lock;
}

Result end_change(int lock, Result result) {
    if (result == SUCCESS) result = write_file();
    refresh_mig();
    if (lock >= 0) close(lock);
    return result;
}

/* ---- what is there ---- */

bool is_mig_enabled(int slot) { return migs[slot].current; }

Result check_mig(MigPlace place, const char *call) {
    Result result = check((unsigned)place.slot, call, HAS_MIG);
    if (result != SUCCESS) return result;
    const Instance *instance = &migs[place.slot].instances[place.instance];
    if (!instance->present) return NOT_FOUND;
    return place.compute < 0 || instance->compute[place.compute].present ? SUCCESS : NOT_FOUND;
}

Result enter_any(nvmlDevice_t device, const char *call, Gpu **gpu, MigPlace *place) {
    if (!mig_place(device, place)) {
        *place = (MigPlace){-1, -1, -1};
        return enter_device(device, call, 0, gpu);
    }
    Result result = enter();
    if (result == SUCCESS) result = check_mig(*place, call);
    *gpu = &state->gpus[place->slot];
    return result;
}

const InstanceProfile *profile_of(MigPlace place) {
    const Gpu *gpu = &state->gpus[place.slot];
    unsigned number = migs[place.slot].instances[place.instance].profile;
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].number == number) return &gpu->profiles[i];
    return NULL;
}

const ComputeProfile *compute_profile(const InstanceProfile *profile, unsigned number) {
    for (unsigned i = 0; profile && i < profile->compute_count; i++)
        if (profile->compute[i].number == number) return &profile->compute[i];
    return NULL;
}

/* Two 64-bit FNV-1a hashes; only that they are the same in Python matters. */
static unsigned long long hash(const char *text, unsigned long long seed) {
    unsigned long long value = 14695981039346656037ULL ^ seed;
    for (; *text; text++) value = (value ^ (unsigned char)*text) * 1099511628211ULL;
    return value;
}

void mig_uuid(MigPlace place, char *uuid, unsigned room) {
    char text[160];
    snprintf(text, sizeof text, "%s/%d/%d", state->gpus[place.slot].uuid, place.instance, place.compute);
    unsigned long long high = hash(text, 0), low = hash(text, 1);
    snprintf(uuid, room, "MIG-%08llx-%04llx-%04llx-%04llx-%012llx", high >> 32, high >> 16 & 0xffff, high & 0xffff,
             low >> 48, low & 0xffffffffffffULL);
}

void mig_name(MigPlace place, char *name, unsigned room) {
    const InstanceProfile *profile = profile_of(place);
    unsigned number = migs[place.slot].instances[place.instance].compute[place.compute].profile;
    const ComputeProfile *compute = compute_profile(profile, number);
    char part[16] = "";
    if (profile && compute && compute->slices < profile->slices) snprintf(part, sizeof part, "%uc.", compute->slices);
    snprintf(name, room, "%s MIG %s%s", state->gpus[place.slot].name, part, profile ? profile->name : "");
}

unsigned long long mig_memory(MigPlace place) {
    const InstanceProfile *profile = profile_of(place);
    return profile ? profile->memory_mib << 20 : 0;
}

/* ---- what fits ---- */

/* Bits of memory slices, and one more for the media extension. */
static unsigned bits(const InstanceProfile *profile, unsigned start) {
    return ((1u << profile->size) - 1) << start | profile->takes_media << MAX_SLICES;
}

unsigned taken_of(int slot) {
    unsigned taken = 0;
    for (int i = 0; i < MAX_INSTANCES; i++) {
        const InstanceProfile *profile = profile_of((MigPlace){slot, i, -1});
        if (migs[slot].instances[i].present && profile) taken |= bits(profile, migs[slot].instances[i].start);
    }
    return taken;
}

bool fits(unsigned taken, const InstanceProfile *profile, unsigned start) { return !(taken & bits(profile, start)); }

/* How many more fit at once. Places of a profile have steps of its size, so that the first ones that fit are the most. */
unsigned remaining(int slot, const InstanceProfile *profile) {
    unsigned taken = taken_of(slot), count = 0;
    for (unsigned i = 0; i < profile->start_count; i++) {
        if (!fits(taken, profile, profile->starts[i])) continue;
        taken |= bits(profile, profile->starts[i]);
        count++;
    }
    return count;
}

unsigned compute_taken(MigPlace place) {
    const InstanceProfile *profile = profile_of(place);
    unsigned taken = 0;
    for (int c = 0; c < MAX_COMPUTE; c++) {
        const Compute *compute = &migs[place.slot].instances[place.instance].compute[c];
        const ComputeProfile *each = compute_profile(profile, compute->profile);
        if (compute->present && each) taken |= ((1u << each->slices) - 1) << compute->start;
    }
    return taken;
}

unsigned compute_remaining(MigPlace place, const ComputeProfile *profile) {
    unsigned taken = compute_taken(place), count = 0;
    for (unsigned i = 0; i < profile->start_count; i++) {
        unsigned more = ((1u << profile->slices) - 1) << profile->starts[i];
        if (taken & more) continue;
        taken |= more;
        count++;
    }
    return count;
}

bool is_used(MigPlace place) {
    const Gpu *gpu = &state->gpus[place.slot];
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const Process *each = &gpu->processes[i];
        if (place.instance >= 0 && each->gpu_instance != (unsigned)place.instance) continue;
        if (place.compute >= 0 && each->compute_instance != (unsigned)place.compute) continue;
        return true;
    }
    return false;
}

/* ---- making and removing; within a change ---- */

/* Ids are places in a tree: the whole GPU, its halves, their halves, and so on. */
static int id_at(const Gpu *gpu, const InstanceProfile *profile, unsigned start) {
    unsigned slices = 0;
    for (unsigned i = 0; i < gpu->profile_count; i++)
        if (gpu->profiles[i].size > slices) slices = gpu->profiles[i].size;
    return (int)(slices / profile->size - 1 + start / profile->size);
}

Result create_instance(int slot, const InstanceProfile *profile, int wanted, MigPlace *place) {
    unsigned taken = taken_of(slot);
    for (unsigned i = 0; i < profile->start_count; i++) {
        unsigned start = profile->starts[i];
        if ((wanted >= 0 && start != (unsigned)wanted) || !fits(taken, profile, start)) continue;
        *place = (MigPlace){slot, id_at(&state->gpus[slot], profile, start), -1};
        migs[slot].instances[place->instance] = (Instance){.present = true, .profile = profile->number, .start = start};
        return SUCCESS;
    }
    return INSUFFICIENT_RESOURCES;
}

Result destroy_instance(MigPlace place) {
    Instance *instance = &migs[place.slot].instances[place.instance];
    if (!instance->present) return NOT_FOUND;
    for (int c = 0; c < MAX_COMPUTE; c++)
        if (instance->compute[c].present) return IN_USE;
    if (is_used(place)) return IN_USE;
    *instance = (Instance){.present = false};
    return SUCCESS;
}

Result create_compute(MigPlace *place, const ComputeProfile *profile, int wanted) {
    Instance *instance = &migs[place->slot].instances[place->instance];
    unsigned taken = compute_taken(*place);
    if (!instance->present) return NOT_FOUND;
    for (unsigned i = 0; i < profile->start_count; i++) {
        unsigned start = profile->starts[i];
        if ((wanted >= 0 && start != (unsigned)wanted) || taken & (((1u << profile->slices) - 1) << start)) continue;
        for (place->compute = 0; instance->compute[place->compute].present;) place->compute++;
        instance->compute[place->compute] = (Compute){.present = true, .profile = profile->number, .start = start};
        return SUCCESS;
    }
    return INSUFFICIENT_RESOURCES;
}

Result destroy_compute(MigPlace place) {
    Compute *compute = &migs[place.slot].instances[place.instance].compute[place.compute];
    if (!compute->present) return NOT_FOUND;
    if (is_used(place)) return IN_USE;
    *compute = (Compute){.present = false};
    return SUCCESS;
}

/* With somebody on the GPU the mode waits for a reset. */
Result set_mode(int slot, unsigned mode) {
    Mig *mig = &migs[slot];
    bool busy = is_used((MigPlace){slot, -1, -1});
    for (int i = 0; i < MAX_INSTANCES; i++) busy = busy || mig->instances[i].present;
    mig->pending = mode;
    if (busy && mig->current != mode) return IN_USE;
    mig->current = mode;
    return SUCCESS;
}
