"""What a pod asks for, on the event `Granted`: of a pod that is gone there is nothing else to tell it."""

import msgspec

from purser.core.decoding import JsonReader, UnreadableError
from purser.core.fleet.free_resources import MANY
from purser.core.model import WHOLE_PERCENT, Grant, PodRequest
from purser.core.names import ASKED_ANNOTATION
from purser.core.placement.shape import PodShape, shape_of

_MAX_BYTES = 4096
_MAX_WORDS = 64
_MAX_GPUS = 1024
"""As many as dialects let a pod ask for."""
_NAME = f"annotation {ASKED_ANNOTATION}"
_shape_reader = JsonReader(PodShape, _NAME, max_bytes=_MAX_BYTES)


def asked_annotation(request: PodRequest, grant: Grant) -> dict[str, str]:
    """The annotation; empty for a shape that is too long for it."""
    text = msgspec.json.encode(shape_of(request) or held_shape(grant, request.cpu_milli, request.memory_mib))
    return {ASKED_ANNOTATION: text.decode()} if len(text) <= _MAX_BYTES else {}


def read_asked_shape(text: str) -> PodShape:
    """The shape in the annotation. Raises `UnreadableError`."""
    shape = _shape_reader.read(text)
    check_shape(shape, _NAME)
    return shape


def check_shape(shape: PodShape, name: str) -> None:
    """Whether it is one that a pod can have: others may have written it. Raises `UnreadableError`."""
    amounts = (shape.cpu_milli, shape.memory_mib, shape.gpu_memory_mib)
    percents = (shape.gpu_memory_percent, shape.gpu_cores_percent)
    words = (shape.models, shape.models_denied, shape.modes, shape.held_by, shape.mig_profiles)
    problems = (
        (not all(0 <= amount <= 2 * MANY for amount in amounts), "an amount is negative or too large"),
        (not all(0 <= percent <= WHOLE_PERCENT for percent in percents), "a percentage is not from 0 to 100"),
        (not 0 <= shape.gpu_count <= _MAX_GPUS, f"gpu_count is not from 0 to {_MAX_GPUS}"),
        (bool(shape.gpu_memory_mib and shape.gpu_memory_percent), "GPU memory is both in MiB and in percent"),
        (any(len(each) > _MAX_WORDS for each in words), f"a list has more than {_MAX_WORDS} entries"),
    )
    for is_wrong, problem in problems:
        if is_wrong:
            raise UnreadableError(f"{name} has a request that no pod can have: {problem}")


def held_shape(grant: Grant, cpu_milli: int, memory_mib: int) -> PodShape:
    """The shape of what a pod holds, where what it asks for is more than a size."""
    shares = [share for part in grant.containers for share in part.shares]
    gpus = len({share.uuid for share in shares})
    memory = max((share.memory_mib for share in shares), default=0)
    cores = min(max((share.cores_percent for share in shares), default=0), WHOLE_PERCENT)
    return PodShape(cpu_milli, memory_mib, gpus, memory, gpu_cores_percent=cores)
