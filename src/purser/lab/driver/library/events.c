/* Events: Xids. */
#include "simulated.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

enum { EVENT_XID = 8 };

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
        *data = (EventData){&handles[event->gpu], EVENT_XID, event->xid, event->gpu_instance,
                            event->compute_instance};
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
