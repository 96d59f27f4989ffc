/* The library and the driver as a whole. */
#include "simulated.h"

static Result initialise(void) {
    enter_uninitialised();
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
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case VERSION_MISMATCH: return "Argument version mismatch";
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
