/* Processes on a device. */
#include "mig.h"

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

#ifndef PURSER_OLD_DRIVER /* what came after R450 */

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} ProcessInfo;

static Result list_processes(const Gpu *gpu, MigPlace place, bool graphics, unsigned *count, ProcessInfo *infos) {
    unsigned room = infos ? *count : 0, found = 0;
    for (unsigned i = 0; i < gpu->process_count; i++) {
        const Process *each = &gpu->processes[i];
        if (each->is_graphics != graphics) continue;
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
    return leave(list_processes(gpu, place, false, count, infos));
}

EXPORT Result nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned *count, ProcessInfo *infos) {
    ENTER_ANY(device);
    return leave(list_processes(gpu, place, true, count, infos));
}

#endif
