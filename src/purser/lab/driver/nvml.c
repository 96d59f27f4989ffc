/*
 * A simulated NVIDIA driver: NVML's own symbols over a small state file.
 *
 * The library reads "node.state" in the folder that it was loaded from, so that a simulated node is one folder with its
 * own copy of the library, and one process can hold several. The file is replaced by rename; every call looks whether
 * it changed, so that faults are injected while clients run. It is a plain line format, rendered by Python from a YAML
 * profile (purser.lab.driver.state is its writer and says what each line means): parsing YAML here would be a second
 * parser of the same profiles to keep right.
 *
 * As in NVML the list of devices is fixed by the first nvmlInit: a card removed later is lost to its handle, and one
 * that comes back or is added is seen after nvmlShutdown and nvmlInit. What is not simulated is not exported: a client
 * gets "function not found", as from a driver that is older than the function. PURSER_OLD_DRIVER leaves out what came
 * after the R450 drivers, for tests of that.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_GPUS = 32, MAX_LINKS = 36, MAX_PROCESSES = 256, MAX_FAILURES = 16, MAX_EVENTS = 256 };

typedef enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    MEMORY = 20,
    UNKNOWN = 999,
} Result;

/* What a device may lack; each is a line of the state file. */
enum {
    HAS_MIG = 1 << 0,
    HAS_UTILISATION = 1 << 1,
    HAS_TEMPERATURE = 1 << 2,
    HAS_POWER = 1 << 3,
    HAS_ECC = 1 << 4,
    HAS_REMAPPED = 1 << 5,
    HAS_RECOVERY = 1 << 6,
    HAS_LINKS = 1 << 7,
};

typedef struct { unsigned domain, bus, device; } Address;
typedef struct { unsigned active, type; Address remote; } NvLink;
typedef struct {
    unsigned pid, is_graphics;
    unsigned long long bytes;
    unsigned load[4];               /* percent: SM, memory, encoder, decoder */
    unsigned long long started_us;  /* since the epoch */
    unsigned gpu_instance, compute_instance;
} Process;
typedef struct { char call[64]; unsigned code; } Failure;

typedef struct {
    bool present, lost;
    unsigned has;
    char uuid[96], name[96];
    unsigned minor, pci_device, pci_subsystem;
    Address pci;
    unsigned long long memory_total, memory_reserved, memory_used;
    int capability[2];
    unsigned architecture, brand, persistence;
    unsigned mig[2], max_mig, utilisation[2], temperature, power, power_limit;
    unsigned ecc[2], remapped[4], recovery;
    unsigned long long ecc_errors[4]; /* corrected, uncorrected: volatile, then aggregate */
    int levels[MAX_GPUS];             /* -1: not told */
    NvLink links[MAX_LINKS];
    unsigned link_count;
    Process processes[MAX_PROCESSES];
    unsigned process_count;
    Failure failures[MAX_FAILURES];
    unsigned failure_count;
} Gpu;

typedef struct { unsigned long long sequence; unsigned gpu, xid; } Event;

typedef struct {
    char driver_version[80], nvml_version[80];
    int cuda_version;
    unsigned init_error;
    Gpu gpus[MAX_GPUS];
    Event events[MAX_EVENTS];
    unsigned event_count;
} State;

struct nvmlDevice_st { char token; };
typedef struct nvmlDevice_st *nvmlDevice_t;

struct nvmlEventSet_st {
    unsigned long long cursor;
    unsigned long long since[MAX_GPUS]; /* sequence at which the device was registered */
    bool registered[MAX_GPUS];
    int watch; /* inotify, or -1: then changes are polled for */
};
typedef struct nvmlEventSet_st *nvmlEventSet_t;

static struct nvmlDevice_st handles[MAX_GPUS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_MAX], state_path[PATH_MAX + 16];
static State *state; /* NULL: no readable state file yet */
static struct stat state_stat;
static unsigned init_count, device_count, devices[MAX_GPUS];

/* ---- the state file ---- */

static bool parse_gpu_line(Gpu *gpu, const char *key, const char *value) {
    unsigned a, b, c;
    if (!strcmp(key, "present")) { gpu->present = atoi(value) != 0; return true; }
    if (!strcmp(key, "lost")) { gpu->lost = atoi(value) != 0; return true; }
    if (!strcmp(key, "uuid")) { snprintf(gpu->uuid, sizeof gpu->uuid, "%s", value); return true; }
    if (!strcmp(key, "name")) { snprintf(gpu->name, sizeof gpu->name, "%s", value); return true; }
    if (!strcmp(key, "minor")) return sscanf(value, "%u", &gpu->minor) == 1;
    if (!strcmp(key, "pci"))
        return sscanf(value, "%x %x %x %x %x", &gpu->pci.domain, &gpu->pci.bus, &gpu->pci.device, &gpu->pci_device,
                      &gpu->pci_subsystem) == 5;
    if (!strcmp(key, "memory"))
        return sscanf(value, "%llu %llu %llu", &gpu->memory_total, &gpu->memory_reserved, &gpu->memory_used) == 3;
    if (!strcmp(key, "capability")) return sscanf(value, "%d %d", &gpu->capability[0], &gpu->capability[1]) == 2;
    if (!strcmp(key, "architecture")) return sscanf(value, "%u", &gpu->architecture) == 1;
    if (!strcmp(key, "brand")) return sscanf(value, "%u", &gpu->brand) == 1;
    if (!strcmp(key, "persistence")) return sscanf(value, "%u", &gpu->persistence) == 1;
    if (!strcmp(key, "mig")) {
        gpu->has |= HAS_MIG;
        return sscanf(value, "%u %u %u", &gpu->mig[0], &gpu->mig[1], &gpu->max_mig) == 3;
    }
    if (!strcmp(key, "utilisation")) {
        gpu->has |= HAS_UTILISATION;
        return sscanf(value, "%u %u", &gpu->utilisation[0], &gpu->utilisation[1]) == 2;
    }
    if (!strcmp(key, "temperature")) {
        gpu->has |= HAS_TEMPERATURE;
        return sscanf(value, "%u", &gpu->temperature) == 1;
    }
    if (!strcmp(key, "power")) {
        gpu->has |= HAS_POWER;
        return sscanf(value, "%u %u", &gpu->power, &gpu->power_limit) == 2;
    }
    if (!strcmp(key, "ecc")) {
        gpu->has |= HAS_ECC;
        return sscanf(value, "%u %u %llu %llu %llu %llu", &gpu->ecc[0], &gpu->ecc[1], &gpu->ecc_errors[0],
                      &gpu->ecc_errors[1], &gpu->ecc_errors[2], &gpu->ecc_errors[3]) == 6;
    }
    if (!strcmp(key, "remapped")) {
        gpu->has |= HAS_REMAPPED;
        return sscanf(value, "%u %u %u %u", &gpu->remapped[0], &gpu->remapped[1], &gpu->remapped[2],
                      &gpu->remapped[3]) == 4;
    }
    if (!strcmp(key, "recovery")) {
        gpu->has |= HAS_RECOVERY;
        return sscanf(value, "%u", &gpu->recovery) == 1;
    }
    if (!strcmp(key, "level")) {
        if (sscanf(value, "%u %u", &a, &b) != 2 || a >= MAX_GPUS) return false;
        gpu->levels[a] = (int)b;
        return true;
    }
    if (!strcmp(key, "nvlink")) {
        Address remote;
        if (sscanf(value, "%u %u %u %x %x %x", &a, &b, &c, &remote.domain, &remote.bus, &remote.device) != 6 ||
            a >= MAX_LINKS)
            return false;
        gpu->has |= HAS_LINKS;
        gpu->links[a] = (NvLink){.active = b, .type = c, .remote = remote};
        if (gpu->link_count <= a) gpu->link_count = a + 1;
        return true;
    }
    if (!strcmp(key, "process")) {
        if (gpu->process_count == MAX_PROCESSES) return false;
        Process *process = &gpu->processes[gpu->process_count++];
        return sscanf(value, "%u %u %llu %u %u %u %u %llu %u %u", &process->pid, &process->is_graphics, &process->bytes,
                      &process->load[0], &process->load[1], &process->load[2], &process->load[3], &process->started_us,
                      &process->gpu_instance, &process->compute_instance) == 10;
    }
    if (!strcmp(key, "fail")) {
        if (gpu->failure_count == MAX_FAILURES) return false;
        Failure *failure = &gpu->failures[gpu->failure_count++];
        return sscanf(value, "%63s %u", failure->call, &failure->code) == 2;
    }
    return false;
}

static bool parse_line(State *into, Gpu **gpu, const char *key, const char *value) {
    unsigned number;
    if (!strcmp(key, "gpu")) {
        if (sscanf(value, "%u", &number) != 1 || number >= MAX_GPUS) return false;
        *gpu = &into->gpus[number];
        for (int i = 0; i < MAX_GPUS; i++) (*gpu)->levels[i] = -1;
        return true;
    }
    if (!strcmp(key, "driver_version")) {
        snprintf(into->driver_version, sizeof into->driver_version, "%s", value);
        return true;
    }
    if (!strcmp(key, "nvml_version")) {
        snprintf(into->nvml_version, sizeof into->nvml_version, "%s", value);
        return true;
    }
    if (!strcmp(key, "cuda_version")) return sscanf(value, "%d", &into->cuda_version) == 1;
    if (!strcmp(key, "init_error")) return sscanf(value, "%u", &into->init_error) == 1;
    if (!strcmp(key, "event")) {
        if (into->event_count == MAX_EVENTS) return false;
        Event *event = &into->events[into->event_count++];
        return sscanf(value, "%llu %u %u", &event->sequence, &event->gpu, &event->xid) == 3 && event->gpu < MAX_GPUS;
    }
    return *gpu != NULL && parse_gpu_line(*gpu, key, value);
}

static State *read_state(void) {
    FILE *file = fopen(state_path, "re");
    State *fresh = file ? calloc(1, sizeof *fresh) : NULL;
    Gpu *gpu = NULL;
    char line[512];
    while (fresh && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!*line || *line == '#') continue;
        char *value = strchr(line, ' ');
        if (value) *value++ = 0;
        if (!value || !parse_line(fresh, &gpu, line, value)) {
            fprintf(stderr, "simulated NVML: %s: bad line: %s %s\n", state_path, line, value ? value : "");
            free(fresh);
            fresh = NULL;
        }
    }
    if (file) fclose(file);
    return fresh;
}

/* Called with the mutex held. A file that vanished or is bad leaves the last good state in force. */
static void refresh(void) {
    struct stat now;
    if (stat(state_path, &now)) return;
    if (state && now.st_ino == state_stat.st_ino && now.st_size == state_stat.st_size &&
        now.st_mtim.tv_sec == state_stat.st_mtim.tv_sec && now.st_mtim.tv_nsec == state_stat.st_mtim.tv_nsec)
        return;
    State *fresh = read_state();
    if (!fresh) return;
    free(state);
    state = fresh;
    state_stat = now;
}

__attribute__((constructor)) static void find_folder(void) {
    Dl_info self;
    if (!dladdr((void *)&find_folder, &self) || !realpath(self.dli_fname, folder)) return;
    char *slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    snprintf(state_path, sizeof state_path, "%s/node.state", folder);
}

__attribute__((destructor)) static void free_state(void) { free(state); }

/* ---- entering and leaving calls: enter* take the mutex, leave gives it back ---- */

static Result leave(Result result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

static Result enter(void) {
    pthread_mutex_lock(&mutex);
    if (!init_count) return UNINITIALIZED;
    refresh();
    return SUCCESS;
}

/* A failure names a call with or without its version: nvmlDeviceGetPciInfo is nvmlDeviceGetPciInfo_v3 too. */
static bool names(const Failure *failure, const char *call) {
    size_t length = strlen(failure->call);
    if (!strcmp(failure->call, "*")) return true;
    return !strncmp(failure->call, call, length) && (!call[length] || !strncmp(call + length, "_v", 2));
}

static Result check(const Gpu *gpu, const char *call, unsigned has) {
    if (gpu->lost || !gpu->present) return GPU_IS_LOST;
    for (unsigned i = 0; i < gpu->failure_count; i++)
        if (names(&gpu->failures[i], call)) return gpu->failures[i].code;
    return (gpu->has & has) == has ? SUCCESS : NOT_SUPPORTED;
}

static int slot_of(nvmlDevice_t device) {
    return device >= handles && device < handles + MAX_GPUS ? (int)(device - handles) : -1;
}

static Result enter_device(nvmlDevice_t device, const char *call, unsigned has, Gpu **gpu) {
    Result result = enter();
    if (result != SUCCESS) return result;
    int slot = slot_of(device);
    if (slot < 0) return INVALID_ARGUMENT;
    *gpu = &state->gpus[slot];
    return check(*gpu, call, has);
}

#define ENTER()                                                                                                        \
    do {                                                                                                               \
        Result entered = enter();                                                                                      \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

#define ENTER_DEVICE(device, has)                                                                                      \
    Gpu *gpu = NULL;                                                                                                   \
    do {                                                                                                               \
        Result entered = enter_device(device, __func__, has, &gpu);                                                    \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

static Result copy_text(char *into, unsigned length, const char *text) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    memcpy(into, text, strlen(text) + 1);
    return SUCCESS;
}

/* ---- library and system ---- */

static Result initialise(void) {
    pthread_mutex_lock(&mutex);
    refresh();
    if (!state) return leave(UNKNOWN);
    if (state->init_error) return leave((Result)state->init_error);
    if (init_count++ == 0) {
        device_count = 0;
        for (unsigned slot = 0; slot < MAX_GPUS; slot++)
            if (state->gpus[slot].present) devices[device_count++] = slot;
    }
    return leave(SUCCESS);
}

EXPORT Result nvmlInit_v2(void) { return initialise(); }

EXPORT Result nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return initialise();
}

EXPORT Result nvmlShutdown(void) {
    ENTER();
    init_count--;
    return leave(SUCCESS);
}

EXPORT const char *nvmlErrorString(Result result) {
    switch ((int)result) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
    case INVALID_ARGUMENT: return "A supplied argument is invalid";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case 9: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case GPU_IS_LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

EXPORT Result nvmlSystemGetDriverVersion(char *version, unsigned length) {
    ENTER();
    return leave(copy_text(version, length, state->driver_version));
}

EXPORT Result nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    ENTER();
    return leave(copy_text(version, length, state->nvml_version));
}

EXPORT Result nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER();
    *version = state->cuda_version;
    return leave(SUCCESS);
}

EXPORT Result nvmlSystemGetCudaDriverVersion_v2(int *version) {
    ENTER();
    *version = state->cuda_version;
    return leave(SUCCESS);
}

/* ---- devices ---- */

EXPORT Result nvmlDeviceGetCount_v2(unsigned *count) {
    ENTER();
    *count = device_count;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device) {
    ENTER();
    if (index >= device_count) return leave(INVALID_ARGUMENT);
    Result result = check(&state->gpus[devices[index]], __func__, 0);
    if (result == SUCCESS) *device = &handles[devices[index]];
    return leave(result);
}

/* As in NVML every card is asked, so one that is lost spoils the search for those behind it. */
EXPORT Result nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    ENTER();
    for (unsigned i = 0; i < device_count; i++) {
        Gpu *gpu = &state->gpus[devices[i]];
        Result result = check(gpu, __func__, 0);
        if (result != SUCCESS) return leave(result);
        if (!strcmp(gpu->uuid, uuid)) {
            *device = &handles[devices[i]];
            return leave(SUCCESS);
        }
    }
    return leave(NOT_FOUND);
}

EXPORT Result nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
    Address wanted = {0, 0, 0};
    bool long_form = sscanf(bus_id, "%x:%x:%x.", &wanted.domain, &wanted.bus, &wanted.device) == 3;
    ENTER();
    if (!long_form) return leave(INVALID_ARGUMENT);
    for (unsigned i = 0; i < device_count; i++) {
        Gpu *gpu = &state->gpus[devices[i]];
        if (memcmp(&gpu->pci, &wanted, sizeof wanted)) continue;
        Result result = check(gpu, __func__, 0);
        if (result == SUCCESS) *device = &handles[devices[i]];
        return leave(result);
    }
    return leave(NOT_FOUND);
}

EXPORT Result nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned length) {
    ENTER_DEVICE(device, 0);
    return leave(copy_text(name, length, gpu->name));
}

EXPORT Result nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned length) {
    ENTER_DEVICE(device, 0);
    return leave(copy_text(uuid, length, gpu->uuid));
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

EXPORT Result nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    ENTER_DEVICE(device, 0);
    *minor = gpu->minor;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetBrand(nvmlDevice_t device, unsigned *brand) {
    ENTER_DEVICE(device, 0);
    *brand = gpu->brand;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    ENTER_DEVICE(device, 0);
    *major = gpu->capability[0];
    *minor = gpu->capability[1];
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    ENTER_DEVICE(device, 0);
    *mode = gpu->persistence;
    return leave(SUCCESS);
}

typedef struct { unsigned long long total, free, used; } Memory;

/* The first version counts what the driver reserves as used. */
EXPORT Result nvmlDeviceGetMemoryInfo(nvmlDevice_t device, Memory *memory) {
    ENTER_DEVICE(device, 0);
    memory->total = gpu->memory_total;
    memory->used = gpu->memory_used + gpu->memory_reserved;
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

EXPORT Result nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(device, HAS_MIG);
    *current = gpu->mig[0];
    *pending = gpu->mig[1];
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned *count) {
    ENTER_DEVICE(device, 0); /* zero, not an error, where the card knows no MIG */
    *count = gpu->max_mig;
    return leave(SUCCESS);
}

/* ---- readings ---- */

typedef struct { unsigned gpu, memory; } Utilization;

EXPORT Result nvmlDeviceGetUtilizationRates(nvmlDevice_t device, Utilization *utilisation) {
    ENTER_DEVICE(device, HAS_UTILISATION);
    utilisation->gpu = gpu->utilisation[0];
    utilisation->memory = gpu->utilisation[1];
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius) {
    ENTER_DEVICE(device, HAS_TEMPERATURE);
    if (sensor) return leave(INVALID_ARGUMENT);
    *celsius = gpu->temperature;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    ENTER_DEVICE(device, HAS_POWER);
    *milliwatts = gpu->power;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t device, unsigned *milliwatts) {
    ENTER_DEVICE(device, HAS_POWER);
    *milliwatts = gpu->power_limit;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetPowerManagementLimit(nvmlDevice_t device, unsigned *milliwatts) {
    ENTER_DEVICE(device, HAS_POWER);
    *milliwatts = gpu->power_limit;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned *current, unsigned *pending) {
    ENTER_DEVICE(device, HAS_ECC);
    *current = gpu->ecc[0];
    *pending = gpu->ecc[1];
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned type, unsigned counter,
                                          unsigned long long *count) {
    ENTER_DEVICE(device, HAS_ECC);
    if (type > 1 || counter > 1) return leave(INVALID_ARGUMENT);
    if (!gpu->ecc[0]) return leave(NOT_SUPPORTED);
    *count = gpu->ecc_errors[counter * 2 + type];
    return leave(SUCCESS);
}

/* ---- processes ---- */

enum { SAMPLE_US = 1000000 / 6 };

typedef struct {
    unsigned pid;
    unsigned long long time_us;
    unsigned load[4];
} ProcessSample;

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

/* The last sample, six a second, of each process that does something; the first one is taken at its start. */
EXPORT Result nvmlDeviceGetProcessUtilization(nvmlDevice_t device, ProcessSample *samples, unsigned *count,
                                              unsigned long long last_seen_us) {
    ENTER_DEVICE(device, 0);
    if (gpu->mig[0]) return leave(NOT_SUPPORTED);
    unsigned long long sampled_us = now_us() / SAMPLE_US * SAMPLE_US;
    unsigned room = samples ? *count : 0, found = 0;
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const Process *each = &gpu->processes[i];
        unsigned long long time_us = sampled_us > each->started_us ? sampled_us : each->started_us;
        if (time_us <= last_seen_us || !(each->load[0] | each->load[1] | each->load[2] | each->load[3])) continue;
        if (found < room) {
            samples[found] = (ProcessSample){.pid = each->pid, .time_us = time_us};
            memcpy(samples[found].load, each->load, sizeof each->load);
        }
        found++;
    }
    *count = found;
    if (!found) return leave(NOT_FOUND);
    return leave(found > room ? INSUFFICIENT_SIZE : SUCCESS);
}

/* ---- topology ---- */

EXPORT Result nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, unsigned *level) {
    ENTER_DEVICE(one, 0);
    int slot = slot_of(other);
    if (slot < 0) return leave(INVALID_ARGUMENT);
    Result result = check(&state->gpus[slot], __func__, 0);
    if (result != SUCCESS) return leave(result);
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

EXPORT Result nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, PciInfo *info) {
    ENTER_DEVICE(device, HAS_LINKS);
    NvLink *found = NULL;
    Result result = find_link(gpu, link, &found);
    if (result == SUCCESS) put_address(info, found->remote);
    return leave(result);
}

/* ---- what came after R450 ---- */
#ifndef PURSER_OLD_DRIVER

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;

EXPORT Result nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, MemoryV2 *memory) {
    ENTER_DEVICE(device, 0);
    if (memory->version != (sizeof(MemoryV2) | 2u << 24)) return leave(25); /* argument version mismatch */
    memory->total = gpu->memory_total;
    memory->reserved = gpu->memory_reserved;
    memory->used = gpu->memory_used;
    unsigned long long taken = gpu->memory_used + gpu->memory_reserved;
    memory->free = memory->total > taken ? memory->total - taken : 0;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned *architecture) {
    ENTER_DEVICE(device, 0);
    *architecture = gpu->architecture;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                        unsigned *pending, unsigned *failed) {
    ENTER_DEVICE(device, HAS_REMAPPED);
    *correctable = gpu->remapped[0];
    *uncorrectable = gpu->remapped[1];
    *pending = gpu->remapped[2];
    *failed = gpu->remapped[3];
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, unsigned *type) {
    ENTER_DEVICE(device, HAS_LINKS);
    NvLink *found = NULL;
    Result result = find_link(gpu, link, &found);
    if (result == SUCCESS) *type = found->type;
    return leave(result);
}

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

static Result list_processes(const Gpu *gpu, bool graphics, unsigned *count, ProcessInfo *infos) {
    unsigned room = infos ? *count : 0, found = 0;
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const Process *each = &gpu->processes[i];
        if (each->is_graphics != graphics) continue;
        if (found < room)
            infos[found] = (ProcessInfo){each->pid, each->bytes, each->gpu_instance, each->compute_instance};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT Result nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessInfo *infos) {
    ENTER_DEVICE(device, 0);
    return leave(list_processes(gpu, false, count, infos));
}

EXPORT Result nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessInfo *infos) {
    ENTER_DEVICE(device, 0);
    return leave(list_processes(gpu, true, count, infos));
}

enum { FIELD_RECOVERY_ACTION = 230, VALUE_TYPE_UNSIGNED_INT = 1 };

typedef struct {
    unsigned field_id, scope_id;
    long long timestamp, latency_us;
    unsigned value_type, result;
    union { unsigned number; unsigned long long wide; } value;
} FieldValue;

EXPORT Result nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, FieldValue *values) {
    ENTER_DEVICE(device, 0);
    for (int i = 0; i < count; i++) {
        bool known = values[i].field_id == FIELD_RECOVERY_ACTION && gpu->has & HAS_RECOVERY;
        values[i].result = known ? SUCCESS : NOT_SUPPORTED;
        values[i].value_type = VALUE_TYPE_UNSIGNED_INT;
        values[i].value.wide = 0;
        if (known) values[i].value.number = gpu->recovery;
    }
    return leave(SUCCESS);
}

#endif

/* ---- events ---- */

enum { EVENT_XID = 8, POLL_MS = 20 };

EXPORT Result nvmlEventSetCreate(nvmlEventSet_t *set) {
    ENTER();
    nvmlEventSet_t created = calloc(1, sizeof *created);
    if (!created) return leave(MEMORY);
    created->watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (created->watch >= 0 && inotify_add_watch(created->watch, folder, IN_MOVED_TO | IN_CLOSE_WRITE) < 0) {
        close(created->watch);
        created->watch = -1;
    }
    *set = created;
    return leave(SUCCESS);
}

EXPORT Result nvmlEventSetFree(nvmlEventSet_t set) {
    ENTER();
    if (!set) return leave(INVALID_ARGUMENT);
    if (set->watch >= 0) close(set->watch);
    free(set);
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    ENTER_DEVICE(device, 0);
    *types = EVENT_XID;
    return leave(SUCCESS);
}

EXPORT Result nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    ENTER_DEVICE(device, 0);
    if (!set) return leave(INVALID_ARGUMENT);
    if (types & ~(unsigned long long)EVENT_XID) return leave(NOT_SUPPORTED);
    int slot = slot_of(device);
    if (!set->registered[slot] && state->event_count) set->since[slot] = state->events[state->event_count - 1].sequence;
    set->registered[slot] = true;
    return leave(SUCCESS);
}

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} EventData;

/* The oldest event that this set has not delivered yet and was registered for when it happened. */
static bool take_event(nvmlEventSet_t set, EventData *data) {
    for (unsigned i = 0; i < state->event_count; i++) {
        const Event *event = &state->events[i];
        if (event->sequence <= set->cursor) continue;
        set->cursor = event->sequence;
        if (!set->registered[event->gpu] || event->sequence <= set->since[event->gpu]) continue;
        *data = (EventData){&handles[event->gpu], EVENT_XID, event->xid, UINT_MAX, UINT_MAX};
        return true;
    }
    return false;
}

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* Sleep until the folder changes or the time is over. A change before the call is in the queue and ends it at once. */
static void await_change(nvmlEventSet_t set, long long timeout_ms) {
    char buffer[4096];
    struct pollfd fd = {.fd = set->watch, .events = POLLIN};
    if (set->watch < 0) {
        poll(NULL, 0, (int)(timeout_ms < POLL_MS ? timeout_ms : POLL_MS));
        return;
    }
    if (poll(&fd, 1, (int)(timeout_ms < INT_MAX ? timeout_ms : INT_MAX)) > 0)
        while (read(set->watch, buffer, sizeof buffer) > 0) continue;
}

EXPORT Result nvmlEventSetWait_v2(nvmlEventSet_t set, EventData *data, unsigned timeout_ms) {
    long long deadline = now_ms() + timeout_ms;
    if (!set || !data) return INVALID_ARGUMENT;
    for (;;) {
        ENTER();
        bool taken = take_event(set, data);
        leave(SUCCESS);
        if (taken) return SUCCESS;
        long long left = deadline - now_ms();
        if (left <= 0) return TIMEOUT;
        await_change(set, left);
    }
}
