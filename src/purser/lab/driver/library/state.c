/* The state file: read, and read again when it has changed. */
#define _GNU_SOURCE
#include "mig.h"

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

struct nvmlDevice_st handles[MAX_GPUS];
char folder[PATH_MAX];
State *state; /* NULL: no readable state file yet */
unsigned init_count, device_count, devices[MAX_GPUS];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char state_path[PATH_MAX + 16];
static struct stat state_stat;

/* "6,4,5": false where there are more than there is room for, or something else. */
static bool parse_starts(const char *text, unsigned *starts, unsigned *count) {
    for (*count = 0; *count < MAX_SLICES; text++) {
        char *end;
        unsigned long start = strtoul(text, &end, 10);
        if (end == text || start >= MAX_SLICES) return false;
        starts[(*count)++] = (unsigned)start;
        text = end;
        if (*text != ',') return !*text;
    }
    return false;
}

static bool parse_profile(Gpu *gpu, const char *value) {
    if (gpu->profile_count == MAX_PROFILES) return false;
    InstanceProfile *into = &gpu->profiles[gpu->profile_count++];
    char starts[64];
    return sscanf(value, "%u %u %u %u %u %u %llu %u %u %u %u %u %u %63s %31s", &into->number, &into->id, &into->slices,
                  &into->size, &into->most, &into->takes_media, &into->memory_mib, &into->multiprocessors,
                  &into->engines[0], &into->engines[1], &into->engines[2], &into->engines[3], &into->engines[4], starts,
                  into->name) == 15 &&
           into->size && parse_starts(starts, into->starts, &into->start_count);
}

/* Of the profile before it. */
static bool parse_compute(Gpu *gpu, const char *value) {
    if (!gpu->profile_count) return false;
    InstanceProfile *profile = &gpu->profiles[gpu->profile_count - 1];
    if (profile->compute_count == MAX_COMPUTE) return false;
    ComputeProfile *into = &profile->compute[profile->compute_count++];
    char starts[64];
    return sscanf(value, "%u %u %u %u %63s", &into->number, &into->slices, &into->most, &into->multiprocessors,
                  starts) == 5 &&
           parse_starts(starts, into->starts, &into->start_count);
}

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
    if (!strcmp(key, "mig")) { gpu->has |= HAS_MIG; return true; }
    if (!strcmp(key, "mig_profile")) return parse_profile(gpu, value);
    if (!strcmp(key, "mig_compute")) return parse_compute(gpu, value);
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
        return sscanf(value, "%u %u %llu %u %u %u %u %llu %u %u", &process->pid, &process->kind, &process->bytes,
                      &process->load[0], &process->load[1], &process->load[2], &process->load[3], &process->started_us,
                      &process->gpu_instance, &process->compute_instance) == 10;
    }
    if (!strcmp(key, "fail")) {
        if (gpu->failure_count == MAX_FAILURES + MAX_LACKS) return false;
        Failure *failure = &gpu->failures[gpu->failure_count++];
        return sscanf(value, "%63s %u", failure->call, &failure->code) == 2;
    }
    if (!strcmp(key, "hang")) {
        if (gpu->hanging_count == MAX_FAILURES) return false;
        return sscanf(value, "%63s", gpu->hanging[gpu->hanging_count++]) == 1;
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
    if (!strcmp(key, "hangs")) { into->hangs = atoi(value) != 0; return true; }
    if (!strcmp(key, "event")) {
        if (into->event_count == MAX_EVENTS) return false;
        Event *event = &into->events[into->event_count++];
        return sscanf(value, "%llu %u %u %u %u", &event->sequence, &event->gpu, &event->xid, &event->gpu_instance,
                      &event->compute_instance) == 5 &&
               event->gpu < MAX_GPUS;
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

bool is_same_file(const struct stat *now, const struct stat *then) {
    return now->st_ino == then->st_ino && now->st_size == then->st_size && now->st_mtim.tv_sec == then->st_mtim.tv_sec &&
           now->st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

/* Called with the mutex held. A file that vanished or is bad leaves the last good state in force, but nothing hangs
 * where there is no file: nobody could end that. */
static void refresh(void) {
    struct stat now;
    if (stat(state_path, &now)) {
        if (!state) return;
        state->hangs = false;
        for (unsigned i = 0; i < MAX_GPUS; i++) state->gpus[i].hanging_count = 0;
        return;
    }
    refresh_mig();
    if (state && is_same_file(&now, &state_stat)) return;
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

Result leave(Result result) {
    pthread_mutex_unlock(&mutex);
    return result;
}

/* A call is named with or without its version: nvmlDeviceGetPciInfo is nvmlDeviceGetPciInfo_v3 too. */
static bool names(const char *name, const char *call) {
    size_t length = strlen(name);
    if (!strcmp(name, "*")) return true;
    return !strncmp(name, call, length) && (!call[length] || !strncmp(call + length, "_v", 2));
}

/* Others make their calls meanwhile, and one of them may be the call that ends this. */
static void sleep_without_mutex(void) {
    pthread_mutex_unlock(&mutex);
    poll(NULL, 0, POLL_MS);
    pthread_mutex_lock(&mutex);
    refresh();
}

void enter_uninitialised(void) {
    pthread_mutex_lock(&mutex);
    refresh();
    while (state && state->hangs) sleep_without_mutex();
}

Result enter(void) {
    enter_uninitialised();
    return init_count ? SUCCESS : UNINITIALIZED;
}

static bool hangs(const Gpu *gpu, const char *call) {
    for (unsigned i = 0; i < gpu->hanging_count; i++)
        if (names(gpu->hanging[i], call)) return true;
    return false;
}

Result check(unsigned slot, const char *call, unsigned has) {
    while (hangs(&state->gpus[slot], call)) sleep_without_mutex();
    const Gpu *gpu = &state->gpus[slot];
    if (gpu->lost || !gpu->present) return GPU_IS_LOST;
    for (unsigned i = 0; i < gpu->failure_count; i++)
        if (names(gpu->failures[i].call, call)) return gpu->failures[i].code;
    return (gpu->has & has) == has ? SUCCESS : NOT_SUPPORTED;
}

int slot_of(nvmlDevice_t device) {
    return device >= handles && device < handles + MAX_GPUS ? (int)(device - handles) : -1;
}

Result enter_device(nvmlDevice_t device, const char *call, unsigned has, Gpu **gpu) {
    Result result = enter();
    if (result != SUCCESS) return result;
    int slot = slot_of(device);
    if (slot < 0) return INVALID_ARGUMENT;
    result = check((unsigned)slot, call, has);
    *gpu = &state->gpus[slot];
    return result;
}

unsigned long long now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

Result copy_text(char *into, unsigned length, const char *text) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    memcpy(into, text, strlen(text) + 1);
    return SUCCESS;
}
