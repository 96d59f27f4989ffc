/* What mig.c and mig_calls.c share. */
#ifndef MIG_STATE_H
#define MIG_STATE_H

#include "mig.h"

typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;
typedef struct nvmlComputeInstance_st *nvmlComputeInstance_t;

typedef struct { bool present; unsigned profile, start; } Compute;
typedef struct { bool present; unsigned profile, start; Compute compute[MAX_COMPUTE]; } Instance;
typedef struct { unsigned current, pending; Instance instances[MAX_INSTANCES]; } Mig;

extern Mig migs[MAX_GPUS];

bool instance_place(nvmlGpuInstance_t instance, MigPlace *place);
bool compute_instance_place(nvmlComputeInstance_t compute, MigPlace *place);
nvmlGpuInstance_t instance_handle(MigPlace place);
nvmlComputeInstance_t compute_handle(MigPlace place);

const InstanceProfile *profile_of(MigPlace place);
const ComputeProfile *compute_profile(const InstanceProfile *profile, unsigned number);
unsigned remaining(int slot, const InstanceProfile *profile);
unsigned compute_remaining(MigPlace place, const ComputeProfile *profile);

/* Everything below happens between these two. */
int begin_change(void);
Result end_change(int lock, Result result);
/* "wanted": where it is to lie; negative: wherever the driver likes. */
Result create_instance(int slot, const InstanceProfile *profile, int wanted, MigPlace *place);
Result create_compute(MigPlace *place, const ComputeProfile *profile, int wanted);
Result destroy_instance(MigPlace place);
Result destroy_compute(MigPlace place);
Result set_mode(int slot, unsigned mode);

#endif
