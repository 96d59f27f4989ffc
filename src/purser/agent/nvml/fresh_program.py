"""Prints a line for each device that NVML lists: its uuid, or nothing where it does not answer.

``python fresh_program.py LIBRARY``. A process of its own, without the rest of Purser: it starts in a few milliseconds.
"""

import ctypes
import sys

UUID_BYTES = 96
"""NVML_DEVICE_UUID_V2_BUFFER_SIZE."""

MEMORY_BYTES = 24
"""Of nvmlMemory_t: total, free and used."""


NOT_SUPPORTED = 3
"""Of GPUs that use the machine's memory."""


def main(library: str) -> None:
    """Raises OSError where the devices cannot be listed."""
    nvml = ctypes.CDLL(library)
    count = ctypes.c_uint()
    for call, arguments in (("nvmlInit_v2", ()), ("nvmlDeviceGetCount_v2", (ctypes.byref(count),))):
        if error := getattr(nvml, call)(*arguments):
            raise OSError(error, f"{call} failed")
    for index in range(count.value):
        print(_uuid(nvml, index))


def _uuid(nvml: ctypes.CDLL, index: int) -> str:
    handle, uuid, memory = ctypes.c_void_p(), ctypes.create_string_buffer(UUID_BYTES), (ctypes.c_char * MEMORY_BYTES)()
    is_lost = (
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        or nvml.nvmlDeviceGetUUID(handle, uuid, UUID_BYTES)
        or nvml.nvmlDeviceGetMemoryInfo(handle, memory) not in (0, NOT_SUPPORTED)
    )
    return "" if is_lost else uuid.value.decode(errors="replace")


if __name__ == "__main__":
    main(sys.argv[1])
