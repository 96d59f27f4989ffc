/*
 * A simulated NVIDIA driver: NVML's own symbols over a small state file.
 *
 * The library reads "node.state" in the folder that it was loaded from, so that a simulated node is one folder with its
 * own copy of the library, and one process can hold several. The file is replaced by rename; every call looks whether
 * it changed, so that faults are injected while clients run. It is a plain line format, rendered by Python from a YAML
 * profile (purser.lab.driver.statefile is its writer and says what each line means): parsing YAML here would be a second
 * parser of the same profiles to keep right.
 *
 * As in NVML the list of devices is fixed by the first nvmlInit: a GPU removed later is lost to its handle, and one
 * that comes back or is added is seen after nvmlShutdown and nvmlInit. What is not simulated is not exported: a client
 * gets "function not found", as from a driver that is older than the function. PURSER_OLD_DRIVER leaves out what came
 * after the R450 drivers, for tests of that.
 */
#ifndef SIMULATED_H
#define SIMULATED_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_GPUS = 32, MAX_LINKS = 36, MAX_PROCESSES = 256, MAX_FAILURES = 16, MAX_EVENTS = 256, MAX_READINGS = 512,
       MAX_LACKS = 16, MAX_ZEROS = 32, MAX_PAGES = 64, POLL_MS = 20, MAX_PROFILES = 12, MAX_INSTANCES = 16, MAX_COMPUTE = 8,
       MAX_SLICES = 8, SAMPLE_US = 1000000 / 6, MAX_SAMPLES = 120 };

typedef enum {
    SUCCESS = 0,
    UNINITIALIZED = 1,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10,
    GPU_IS_LOST = 15,
    IN_USE = 19,
    MEMORY = 20,
    INSUFFICIENT_RESOURCES = 23,
    VERSION_MISMATCH = 25,
    UNKNOWN = 999,
} Result;

/* What a device may lack, beside numbers; each is a line of the state file. */
enum { HAS_MIG = 1 << 0, HAS_LINKS = 1 << 1 };

typedef struct { unsigned domain, bus, device; } Address;
typedef struct { unsigned active, type; Address remote; } NvLink;
typedef struct {
    unsigned pid, kind; /* 0: it computes, 1: it draws, 2: it computes as a client of MPS */
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
    unsigned number, slices, most, multiprocessors, starts[MAX_SLICES], start_count;
} ComputeProfile;
typedef struct {
    unsigned number, id, slices, size, most, takes_media, multiprocessors;
    unsigned engines[5]; /* copy, decoders, encoders, JPEG, OFA */
    unsigned long long memory_mib;
    unsigned starts[MAX_SLICES], start_count; /* memory slices at which it may begin; the driver's favourites first */
    char name[32];
    ComputeProfile compute[MAX_COMPUTE];
    unsigned compute_count;
} InstanceProfile; /* a size of MIG instance that the GPU offers */

typedef struct {
    bool present, lost;
    unsigned has;
    char uuid[96], name[96];
    unsigned pci_device, pci_subsystem;
    Address pci;
    unsigned long long memory_total, memory_reserved, memory_used;
    InstanceProfile profiles[MAX_PROFILES];
    unsigned profile_count;
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
    Failure failures[MAX_FAILURES + MAX_LACKS];
    unsigned failure_count;
    char hanging[MAX_FAILURES][64]; /* calls that do not return */
    unsigned hanging_count;
} Gpu;

typedef struct { unsigned long long sequence; unsigned gpu, xid, gpu_instance, compute_instance; } Event;

typedef struct {
    char driver_version[80], nvml_version[80];
    int cuda_version;
    unsigned init_error;
    bool hangs; /* no call returns */
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

/* state.c: what is read of the state file, and who may look at it. Whoever looks has the mutex. */

extern struct nvmlDevice_st handles[MAX_GPUS];
extern char folder[PATH_MAX];
extern State *state;
/* Whether a file is the one that was read. */
bool is_same_file(const struct stat *now, const struct stat *then);
extern unsigned init_count, device_count, devices[MAX_GPUS]; /* in the order of their indexes: places in the state */

/* Take the mutex and read the state again where it has changed; not for nvmlInit, which need not have been called. */
Result enter(void);
void enter_uninitialised(void);
/* Give the mutex back. */
Result leave(Result result);
/* The same for a call on a device that must have this. */
Result enter_device(nvmlDevice_t device, const char *call, unsigned has, Gpu **gpu);
/* Whether a call on the GPU at this place is answered, once it is. The state may be a new one afterwards. */
Result check(unsigned slot, const char *call, unsigned has);
/* A handle's place in the state; -1: it is none. */
int slot_of(nvmlDevice_t device);

unsigned long long now_us(void);
Result copy_text(char *into, unsigned length, const char *text);

/* readings.c */
unsigned long long value_at(const Gpu *gpu, const Reading *reading, unsigned long long at_us);
Result find_number(const Gpu *gpu, const char *key, unsigned first, unsigned second, unsigned long long *value);
Result read_number(nvmlDevice_t device, const char *call, const char *key, unsigned first, unsigned second,
                   unsigned long long *value);

#define ENTER()                                                                                                        \
    do {                                                                                                               \
        Result entered = enter();                                                                                              \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

#define ENTER_DEVICE(device, has) ENTER_DEVICE_AS(device, __func__, has)

#define ENTER_DEVICE_AS(device, call, has)                                                                             \
    Gpu *gpu = NULL;                                                                                                   \
    do {                                                                                                               \
        Result entered = enter_device(device, call, has, &gpu);                                                        \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

#endif
