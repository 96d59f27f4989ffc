/* GPU performance monitoring (GPM): samples, and the mean of what two of them counted. */
#include "mig.h"

#ifndef PURSER_OLD_DRIVER /* what came after R450 */

#include <math.h>
#include <stdlib.h>

enum { MAX_METRICS = 16 };

typedef struct {
    bool taken;
    unsigned slot, instance; /* 0: the GPU, otherwise a GPU instance counted from 1 */
    unsigned long long at_us;
    unsigned metrics[MAX_METRICS], count;
    unsigned long long values[MAX_METRICS];
} GpmSample;
typedef GpmSample *nvmlGpmSample_t;

typedef struct { unsigned version, is_supported; } GpmSupport;
typedef struct {
    unsigned metric, result;
    double value;
    const char *short_name, *long_name, *unit;
} GpmMetric;
typedef struct {
    unsigned version, count;
    nvmlGpmSample_t before, after;
    GpmMetric metrics[];
} GpmMetrics;

/* The readings of a GPU that has GPM are in its state: of the whole GPU all metrics that there are. */
static bool is_metric(const Reading *reading, unsigned instance) {
    return !strcmp(reading->call, "gpm") && reading->second == instance;
}

static bool has_gpm(const Gpu *gpu) {
    for (unsigned i = 0; i < gpu->reading_count; i++)
        if (is_metric(&gpu->readings[i], 0)) return true;
    return false;
}

EXPORT Result nvmlGpmQueryDeviceSupport(nvmlDevice_t device, GpmSupport *support) {
    ENTER_DEVICE(device, 0);
    if (support->version != 1) return leave(VERSION_MISMATCH);
    support->is_supported = has_gpm(gpu);
    return leave(SUCCESS);
}

EXPORT Result nvmlGpmSampleAlloc(nvmlGpmSample_t *sample) {
    ENTER();
    *sample = calloc(1, sizeof **sample);
    return leave(*sample ? SUCCESS : MEMORY);
}

EXPORT Result nvmlGpmSampleFree(nvmlGpmSample_t sample) {
    ENTER();
    if (!sample) return leave(INVALID_ARGUMENT);
    free(sample);
    return leave(SUCCESS);
}

static Result take(const Gpu *gpu, unsigned slot, unsigned instance, nvmlGpmSample_t sample) {
    if (!sample) return INVALID_ARGUMENT;
    if (!has_gpm(gpu)) return NOT_SUPPORTED;
    *sample = (GpmSample){.taken = true, .slot = slot, .instance = instance, .at_us = now_us()};
    for (unsigned i = 0; i < gpu->reading_count && sample->count < MAX_METRICS; i++) {
        const Reading *reading = &gpu->readings[i];
        if (!is_metric(reading, instance)) continue;
        sample->metrics[sample->count] = reading->first;
        sample->values[sample->count++] = value_at(gpu, reading, sample->at_us);
    }
    return SUCCESS;
}

EXPORT Result nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample) {
    ENTER_DEVICE(device, 0);
    return leave(take(gpu, (unsigned)slot_of(device), 0, sample));
}

EXPORT Result nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned instance, nvmlGpmSample_t sample) {
    ENTER_DEVICE(device, HAS_MIG);
    if (!is_mig_enabled(slot_of(device)) || instance >= MAX_INSTANCES) return leave(INVALID_ARGUMENT);
    Result there = check_mig((MigPlace){slot_of(device), (int)instance, -1}, __func__);
    return leave(there == SUCCESS ? take(gpu, (unsigned)slot_of(device), instance + 1, sample) : there);
}

/* An instance that nothing has run on since it was made has no counters: its metrics are 0. */
static bool find_count(const GpmSample *sample, unsigned metric, unsigned long long *value) {
    *value = 0;
    for (unsigned i = 0; i < sample->count; i++)
        if (sample->metrics[i] == metric) {
            *value = sample->values[i];
            return true;
        }
    return false;
}

static bool is_of_engines(unsigned metric) { return metric == 1 || metric == 2 || metric == 5 || metric == 10; }

static void answer(const GpmSample *before, const GpmSample *after, GpmMetric *metric) {
    unsigned long long then = 0, now = 0;
    bool is_known = find_count(after, metric->metric, &now);
    find_count(before, metric->metric, &then);
    metric->result = is_known || (after->instance && is_of_engines(metric->metric)) ? SUCCESS : NOT_SUPPORTED;
    metric->value = after->at_us > before->at_us && now >= then ? (double)(now - then) / (after->at_us - before->at_us)
                                                               : NAN;
    metric->short_name = metric->long_name = metric->unit = "";
}

EXPORT Result nvmlGpmMetricsGet(GpmMetrics *asked) {
    ENTER();
    const GpmSample *before = asked->before, *after = asked->after;
    if (asked->version != 1) return leave(VERSION_MISMATCH);
    if (!before || !after || !before->taken || !after->taken) return leave(INVALID_ARGUMENT);
    if (before->slot != after->slot || before->instance != after->instance) return leave(INVALID_ARGUMENT);
    for (unsigned i = 0; i < asked->count; i++) answer(before, after, &asked->metrics[i]);
    return leave(SUCCESS);
}

#endif
