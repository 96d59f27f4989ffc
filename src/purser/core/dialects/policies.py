"""Pod annotations that say which node and which devices are best, in Purser's names and in HAMi's.

Both may name any of Purser's policies. HAMi takes an unknown word for its default without a sound; here it is a
problem, for its author meant something.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from purser.core.dialects.errors import Problems
from purser.core.model import ContainerRequest, GpuNic, GpuPolicy, ScoreWeights
from purser.core.names import GPU_NIC_ANNOTATION, GPU_POLICY_ANNOTATION, NODE_POLICY_ANNOTATION
from purser.core.policy.words import canonical_node_policy, gpu_policies

HAMI_NODE_POLICY = "hami.io/node-scheduler-policy"
HAMI_GPU_POLICY = "hami.io/gpu-scheduler-policy"
HAMI_WEIGHTS = "hami.io/device-scoring-weights"

WEIGHTED = "weighed"
"""Stands for several policies that are weighed against one another."""

_MAX_WEIGHT = 1_000_000

T = TypeVar("T")


def read_node_policy(annotations: Mapping[str, str], problems: Problems) -> str:
    """The pod's node policy in one way of writing, empty for the scheduler's default."""
    key, value = _one_of(annotations, NODE_POLICY_ANNOTATION, HAMI_NODE_POLICY, problems)
    return _read(canonical_node_policy, key, value, problems) or ""


def node_policy_word(annotations: Mapping[str, str], default: str) -> str:
    """One of few words for a pod's node policy, for metrics: users may weigh policies in any number of ways.
    ``default`` is the scheduler's, and counts where the pod's cannot be read."""
    policy = read_node_policy(annotations, Problems()) or default
    return WEIGHTED if "," in policy else policy


def read_gpu_policy(annotations: Mapping[str, str], problems: Problems) -> tuple[GpuPolicy, ...]:
    """The pod's chain of device policies in written order, empty for the scheduler's default."""
    key, value = _one_of(annotations, GPU_POLICY_ANNOTATION, HAMI_GPU_POLICY, problems)
    return _read(gpu_policies, key, value, problems) or ()


def read_gpu_nic(
    annotations: Mapping[str, str], containers: Iterable[ContainerRequest], problems: Problems
) -> GpuNic | None:
    """How much the pod wants its GPUs and network devices below the same switches; None where no container asks for
    both.

    Without the annotation as much as can be had: who asks for both in one container does so to send from one to the
    other.
    """
    text = annotations.get(GPU_NIC_ANNOTATION, "").strip()
    if text and text not in list(GpuNic):
        problems.add(f'invalid value "{text[:64]}" for annotation {GPU_NIC_ANNOTATION}: must be {" or ".join(GpuNic)}')
        return None
    if any(container.beside for container in containers):
        return GpuNic(text or GpuNic.PREFERRED)
    if text == GpuNic.REQUIRED:
        problems.add(
            f'annotation {GPU_NIC_ANNOTATION} is "{text}", but no container asks for both GPUs '
            "and devices of an SR-IOV pool: add both to a container's limits, or remove the annotation"
        )
    return None


def read_weights(annotations: Mapping[str, str], problems: Problems) -> ScoreWeights:
    """The weights in ``slot=1,core=1,memory=3``: all three, whole numbers, one of them above 0."""
    text = annotations.get(HAMI_WEIGHTS, "").strip()
    if not text:
        return ScoreWeights()
    try:
        return _weights(text)
    except ValueError as error:
        problems.add(f'annotation {HAMI_WEIGHTS} "{text[:64]}" {error}: use a value such as slot=1,core=1,memory=1')
        return ScoreWeights()


def _one_of(annotations: Mapping[str, str], own: str, other: str, problems: Problems) -> tuple[str, str]:
    ours, theirs = annotations.get(own, "").strip(), annotations.get(other, "").strip()
    if ours and theirs and ours != theirs:
        problems.add(f'annotations {own} "{ours[:64]}" and {other} "{theirs[:64]}" differ: keep only one of them')
    return (own, ours) if ours else (other, theirs)


def _read(reader: Callable[[str], T], key: str, value: str, problems: Problems) -> T | None:
    """None for no value, and for one without sense, which is a problem."""
    if not value:
        return None
    try:
        return reader(value)
    except ValueError as error:
        problems.add(f"annotation {key}: {error}")
        return None


def _weights(text: str) -> ScoreWeights:
    """Raises ValueError with what is wrong."""
    pairs = [tuple(part.strip() for part in item.split("=")) for item in text.split(",")]
    if sorted(pair[0] for pair in pairs) != ["core", "memory", "slot"]:
        raise ValueError("must name slot, core and memory exactly once each")
    if not all(len(pair) == 2 and _is_weight(pair[1]) for pair in pairs):
        raise ValueError(f"has a weight that is not an integer from 0 to {_MAX_WEIGHT}")
    values = {pair[0]: int(pair[1]) for pair in pairs}
    if not any(values.values()):
        raise ValueError("has no weight greater than 0")
    return ScoreWeights(**values)


def _is_weight(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 7 and int(text) <= _MAX_WEIGHT
