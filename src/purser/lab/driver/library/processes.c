/* Processes on a device, and samples of what it does. */
#include "mig.h"

typedef struct {
    unsigned pid;
    unsigned long long time_us;
    unsigned load[4];
} ProcessSample;

/* The last sample, six a second, of each process that does something; the first one is taken at its start. */
EXPORT Result nvmlDeviceGetProcessUtilization(nvmlDevice_t device, ProcessSample *samples, unsigned *count,
                                              unsigned long long last_seen_us) {
    ENTER_DEVICE(device, 0);
    if (is_mig_enabled(slot_of(device))) return leave(NOT_SUPPORTED);
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

typedef struct { unsigned long long time_us, value; } Sample;

/* What a sensor said six times a second since the GPU's state is what it is: the last of them, the oldest first. */
EXPORT Result nvmlDeviceGetSamples(nvmlDevice_t device, unsigned type, unsigned long long last_seen_us,
                                   unsigned *value_type, unsigned *count, Sample *samples) {
    unsigned long long value = 0;
    ENTER_DEVICE(device, 0);
    bool is_utilization = type >= 1 && type <= 4;
    Result known = is_utilization && is_mig_enabled(slot_of(device)) ? NOT_SUPPORTED
                                                                     : find_number(gpu, __func__, type, 0, &value);
    if (known != SUCCESS) return leave(known);
    *value_type = 1; /* unsigned int */
    unsigned room = *count < MAX_SAMPLES ? *count : MAX_SAMPLES, found = 0;
    *count = MAX_SAMPLES;
    if (!samples) return leave(SUCCESS);
    unsigned long long first_us = gpu->since_us, newest_us = now_us() / SAMPLE_US * SAMPLE_US;
    if (newest_us < first_us) newest_us = first_us;
    while (found < room && newest_us - found * SAMPLE_US > last_seen_us && newest_us - found * SAMPLE_US >= first_us)
        found++;
    for (unsigned i = 0; i < found; i++) samples[i] = (Sample){newest_us - (found - 1 - i) * SAMPLE_US, value};
    *count = found;
    return leave(found ? SUCCESS : NOT_FOUND);
}

#ifndef PURSER_OLD_DRIVER /* what came after R450 */

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

static Result list_processes(const Gpu *gpu, MigPlace place, unsigned kind, unsigned *count, ProcessInfo *infos) {
    unsigned room = infos ? *count : 0, found = 0;
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const Process *each = &gpu->processes[i];
        if (each->kind != kind) continue;
        if (place.slot >= 0 && (each->gpu_instance != (unsigned)place.instance ||
                                each->compute_instance != (unsigned)place.compute))
            continue;
        if (found < room)
            infos[found] = (ProcessInfo){each->pid, each->bytes, each->gpu_instance, each->compute_instance};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}

EXPORT Result nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessInfo *infos) {
    ENTER_ANY(device);
    return leave(list_processes(gpu, place, 0, count, infos));
}

EXPORT Result nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessInfo *infos) {
    ENTER_ANY(device);
    return leave(list_processes(gpu, place, 1, count, infos));
}

EXPORT Result nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessInfo *infos) {
    ENTER_ANY(device);
    return leave(list_processes(gpu, place, 2, count, infos));
}

#endif
