/*
 * MIG: instances of GPUs, in "node.mig" beside the state file.
 *
 * That file is written by everybody who makes or removes instances, this library and Python (purser.lab.driver.mig says
 * what each line means), under the lock of "node.lock": instances outlive the process that made them. Which profiles a
 * GPU offers, and where they may lie, is in the state file.
 */
#ifndef MIG_H
#define MIG_H

#include "simulated.h"

/* A place in the state of an instance: of a GPU instance where "compute" is negative. */
typedef struct { int slot, instance, compute; } MigPlace;

/* Read "node.mig" where it has changed; with the mutex. */
void refresh_mig(void);
/* The place of a MIG device's handle; false: it is none. */
bool mig_place(nvmlDevice_t device, MigPlace *place);
/* The device's handle at a place. */
nvmlDevice_t mig_device(MigPlace place);
/* Whether the instance that a handle means is there, and answers. */
Result check_mig(MigPlace place, const char *call);
/* For a call on a device or a MIG device; of the former place->instance is negative. */
Result enter_any(nvmlDevice_t device, const char *call, Gpu **gpu, MigPlace *place);
bool is_mig_enabled(int slot);
void mig_uuid(MigPlace place, char *uuid, unsigned room);
void mig_name(MigPlace place, char *name, unsigned room);
unsigned long long mig_memory(MigPlace place);

#define ENTER_ANY(device)                                                                                              \
    Gpu *gpu = NULL;                                                                                                   \
    MigPlace place;                                                                                                    \
    do {                                                                                                               \
        Result entered = enter_any(device, __func__, &gpu, &place);                                                    \
        if (entered != SUCCESS) return leave(entered);                                                                 \
    } while (0)

#endif
