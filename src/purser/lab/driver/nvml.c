/*
 * A simulated NVIDIA driver: NVML's own symbols over a small state file.
 *
 * The library reads "node.state" in the folder that it was loaded from, so that a simulated node is one folder with its
 * own copy of the library, and one process can hold several. The file is replaced by rename; every call looks whether
 * it changed, so that faults are injected while clients run. It is a plain line format, rendered by Python from a YAML
 * profile (purser.lab.driver.statefile is its writer and says what each line means): parsing YAML here would be a second
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

enum { MAX_GPUS = 32, MAX_LINKS = 36, MAX_PROCESSES = 256, MAX_FAILURES = 16, MAX_EVENTS = 256, MAX_READINGS = 512,
       MAX_ZEROS = 32, MAX_PAGES = 64 };

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

/* What a device may lack, beside numbers; each is a line of the state file. */
enum { HAS_MIG = 1 << 0, HAS_LINKS = 1 << 1 };

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
typedef struct { char call[48]; unsigned first, second; unsigned long long value, per_second; } Reading;
typedef struct { char call[48]; unsigned firsts, seconds; } Zero;
typedef struct { unsigned first, last, scopes, type; } ZeroFields;
typedef struct { unsigned cause; unsigned long long address, time_us; } Page;

typedef struct {
    bool present, lost;
    unsigned has;
    char uuid[96], name[96];
    unsigned pci_device, pci_subsystem;
    Address pci;
    unsigned long long memory_total, memory_reserved, memory_used;
    unsigned mig[2];
    unsigned long long since_us; /* of the readings */
    Reading readings[MAX_READINGS];
    unsigned reading_count;
    Zero zeros[MAX_ZEROS];
    unsigned zero_count;
    ZeroFields zero_fields[MAX_ZEROS];
    unsigned zero_fields_count;
    Page pages[MAX_PAGES];
    unsigned page_count;
    int levels[MAX_GPUS]; /* -1: not told */
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
    if (!strcmp(key, "pci"))
        return sscanf(value, "%x %x %x %x %x", &gpu->pci.domain, &gpu->pci.bus, &gpu->pci.device, &gpu->pci_device,
                      &gpu->pci_subsystem) == 5;
    if (!strcmp(key, "memory"))
        return sscanf(value, "%llu %llu %llu", &gpu->memory_total, &gpu->memory_reserved, &gpu->memory_used) == 3;
    if (!strcmp(key, "mig")) {
        gpu->has |= HAS_MIG;
        return sscanf(value, "%u %u", &gpu->mig[0], &gpu->mig[1]) == 2;
    }
    if (!strcmp(key, "since")) return sscanf(value, "%llu", &gpu->since_us) == 1;
    if (!strcmp(key, "reading")) {
        if (gpu->reading_count == MAX_READINGS) return false;
        Reading *reading = &gpu->readings[gpu->reading_count++];
        return sscanf(value, "%47s %u %u %llu %llu", reading->call, &reading->first, &reading->second, &reading->value,
                      &reading->per_second) == 5;
    }
    if (!strcmp(key, "zero")) {
        if (gpu->zero_count == MAX_ZEROS) return false;
        Zero *zero = &gpu->zeros[gpu->zero_count++];
        return sscanf(value, "%47s %u %u", zero->call, &zero->firsts, &zero->seconds) == 3;
    }
    if (!strcmp(key, "zero_fields")) {
        if (gpu->zero_fields_count == MAX_ZEROS) return false;
        ZeroFields *zero = &gpu->zero_fields[gpu->zero_fields_count++];
        return sscanf(value, "%u %u %u %u", &zero->first, &zero->last, &zero->scopes, &zero->type) == 4;
    }
    if (!strcmp(key, "page")) {
        if (gpu->page_count == MAX_PAGES) return false;
        Page *page = &gpu->pages[gpu->page_count++];
        return sscanf(value, "%u %llu %llu", &page->cause, &page->address, &page->time_us) == 3;
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

#define ENTER_DEVICE(device, has) ENTER_DEVICE_AS(device, __func__, has)

#define ENTER_DEVICE_AS(device, call, has)                                                                             \
    Gpu *gpu = NULL;                                                                                                   \
    do {                                                                                                               \
        Result entered = enter_device(device, call, has, &gpu);                                                        \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

static unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

/* ---- numbers: what the state file says of a call and its arguments ---- */

static unsigned long long value_of(const Gpu *gpu, const Reading *reading) {
    unsigned long long now = now_us(), since = gpu->since_us;
    double seconds = now > since ? (now - since) / 1e6 : 0;
    return reading->value + (unsigned long long)(reading->per_second * seconds);
}

static Result find_number(const Gpu *gpu, const char *key, unsigned first, unsigned second, unsigned long long *value) {
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

static Result read_number(nvmlDevice_t device, const char *call, const char *key, unsigned first, unsigned second,
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

NUMBER(nvmlDeviceGetMinorNumber, unsigned)
NUMBER(nvmlDeviceGetBrand, unsigned)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned)
NUMBER(nvmlDeviceGetComputeMode, unsigned)
NUMBER(nvmlDeviceGetVirtualizationMode, unsigned)
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned)
TWO_NUMBERS(nvmlDeviceGetCudaComputeCapability, int)

/* Only a guest with a vGPU has licences. */
EXPORT Result nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, void *features) {
    (void)features;
    ENTER_DEVICE(device, 0);
    return leave(NOT_SUPPORTED);
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

/* ---- readings ---- */

typedef struct { unsigned gpu, memory; } Utilization;

EXPORT Result nvmlDeviceGetUtilizationRates(nvmlDevice_t device, Utilization *utilisation) {
    static const unsigned arguments[2][2] = {{0, 0}, {1, 0}};
    unsigned long long found[2] = {0, 0};
    Result result = read_numbers(device, __func__, __func__, arguments, 2, found);
    if (result == SUCCESS) *utilisation = (Utilization){(unsigned)found[0], (unsigned)found[1]};
    return result;
}

TWO_NUMBERS(nvmlDeviceGetEncoderUtilization, unsigned)
TWO_NUMBERS(nvmlDeviceGetDecoderUtilization, unsigned)
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

/* ---- processes ---- */

enum { SAMPLE_US = 1000000 / 6 };

typedef struct {
    unsigned pid;
    unsigned long long time_us;
    unsigned load[4];
} ProcessSample;

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
