"""Resource names for GPUs that are not served, with what to write instead: a pod that uses one stays pending, and an
event says why.

Purser never serves some of them, others only on nodes whose devices are listed so. Where another device plugin serves
the name, there is no hint.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain, islice

from purser.core.device.resources import MIG_PREFIX, is_gpu_resource
from purser.core.dialects import kai
from purser.core.dialects.managed import MANAGED_VALUE, is_managed
from purser.core.dialects.misspelt import likely_word
from purser.core.names import SCHEDULER_NAME
from purser.core.pod.manifest import PodManifest
from purser.core.vendors.catalogue import BY_WORD

_SHARE = "nvidia.com/gpu with nvidia.com/gpumem (MiB) and nvidia.com/gpucores (percentage)"

_REGISTERED_NODES_HINT = (
    "Purser serves this resource only on nodes whose device plugin has registered its devices; see docs/vendors.md"
)
_UNLISTED_HINT = (
    "Purser serves this resource only if an administrator lists {} in its chart value vendors; see docs/vendors.md"
)
_UNSUPPORTED_HINT = "Purser does not support this resource; see docs/vendors.md"

_RESOURCES = (
    ("nvidia.com/gpu.", f"for a share of a GPU, ask for {_SHARE}"),
    ("nvidia.com/gpu-", f"for a share of a GPU, ask for {_SHARE}"),
    (MIG_PREFIX, f"for a share of a GPU, ask for {_SHARE}"),
    ("amd.com/", _UNSUPPORTED_HINT),
    ("aws.amazon.com/neuron", _UNSUPPORTED_HINT),
    ("birentech.com/", _UNSUPPORTED_HINT),
    ("cambricon.com/", _UNSUPPORTED_HINT),
    ("enflame.com/", _UNSUPPORTED_HINT),
    ("gpu.intel.com/", _UNSUPPORTED_HINT),
    ("huawei.com/Ascend", _UNSUPPORTED_HINT),
    ("hygon.com/", _UNSUPPORTED_HINT),
    ("iluvatar.ai/", _UNSUPPORTED_HINT),
    ("kunlunxin.com/", _UNSUPPORTED_HINT),
    ("metax-tech.com/", _UNSUPPORTED_HINT),
    ("mthreads.com/", _UNSUPPORTED_HINT),
    ("vastaitech.com/", _UNSUPPORTED_HINT),
)
"""By prefix of the resource's name. Sources: HAMi's vendor devices, NVIDIA's device plugin."""

_KAI = (
    f"it applies only if schedulerName is {kai.KAI_SCHEDULER}, or if it is {SCHEDULER_NAME} and no container asks for "
    "GPUs. Instead,"
)

_ANNOTATIONS = {
    kai.GPU_FRACTION: f"{_KAI} ask for nvidia.com/gpu: 1 with nvidia.com/gpumem-percentage in the container's limits",
    kai.KAI_GPU_MEMORY: f"{_KAI} ask for nvidia.com/gpu: 1 with nvidia.com/gpumem in the container's limits",
    "nvidia.com/use-gpuindexes": "list the GPUs by UUID in nvidia.com/use-gpuuuid",
    "nvidia.com/nouse-gpuindexes": "list the GPUs by UUID in nvidia.com/nouse-gpuuuid",
}
"""KAI's, in pods that are not KAI's, and those of HAMi's that name a GPU by what changes when its node restarts."""

_PLACEMENT_ANNOTATIONS = {
    "volcano.sh/vgpu-podgroup-policy": "use purser.dev/gpu-policy: mutex for an idle GPU, or "
    "purser.dev/gpu-policy: spread"
}
"""Those that the scheduler which places a pod reads: Volcano's, which keeps the pods of a PodGroup on GPUs of their
own."""

_PRODUCT, _TIME_SLICED_SUFFIX = "nvidia.com/gpu.product", "-SHARED"
"""The label of nodes, and what NVIDIA's GPU feature discovery ends it with where a plugin slices time."""

_MAX_LISTED = 8
"""MIG resources that are named."""

_MAX_HINTS = 8
"""Hints for one pod."""


def unserved_words(
    pod: PodManifest,
    is_offered: Callable[[str], bool],
    has_label: Callable[[str, str], bool],
    mig_resources: Callable[[], Sequence[str]] = lambda: (),
    *,
    is_placed: bool = True,
    managed: Collection[str] = (),
) -> tuple[str, ...]:
    """A sentence for each word of the pod that Purser does not serve and no node has: ``is_offered`` is asked about
    resources, ``has_label`` about labels; ``mig_resources`` are those of MIG profiles that nodes list; ``is_placed``:
    by Purser's scheduler, not by another whose pods Purser serves; ``managed``: names that an administrator added to
    those that kube-scheduler asks Purser about.
    """
    # One by one: an answer may search all nodes for each name, and pods may have thousands of names.
    found = chain(
        _hints(pod, is_offered, mig_resources, managed),
        _ignored_annotations(pod, is_placed),
        _time_slicing_hints(pod, has_label),
    )
    return tuple(islice(found, _MAX_HINTS))


def _time_slicing_hints(pod: PodManifest, has_label: Callable[[str, str], bool]) -> Iterator[str]:
    product = pod.node_selector.get(_PRODUCT, "")
    if product.endswith(_TIME_SLICED_SUFFIX) and not has_label(_PRODUCT, product):
        yield (
            f"no node has label {_PRODUCT}={product[:63]}, so the pod stays pending. {_TIME_SLICED_SUFFIX} stands for "
            f"replicas of a GPU: remove it, and for a share of a GPU, ask for {_SHARE}"
        )


def _hints(
    pod: PodManifest,
    is_offered: Callable[[str], bool],
    mig_resources: Callable[[], Sequence[str]],
    managed: Collection[str],
) -> Iterator[str]:
    asked = dict.fromkeys(
        name for container in pod.containers for name in (*container.limits, *container.requests) if "/" in name
    )
    for name in asked:
        hint = next((hint for prefix, hint in _RESOURCES if name.startswith(prefix)), "")
        family = BY_WORD.get(name)
        if family is not None:
            hint = _REGISTERED_NODES_HINT if family.name in pod.families else _UNLISTED_HINT.format(family.name)
        if not hint and (word := likely_word(name)):
            hint = f"did you mean {word}?"
        if hint and not any(map(is_offered, (name,) if family is None else family.resources)):
            if name.startswith(MIG_PREFIX) and (listed := mig_resources()):
                hint = f"ask for a profile that nodes list: {', '.join(listed[:_MAX_LISTED])}"
            elif is_gpu_resource(name) and not is_managed(name, managed):
                hint = (
                    f"agents list it only if it is in {MANAGED_VALUE}; for a share, ask for nvidia.com/gpu and "
                    "nvidia.com/gpumem"
                )
            yield f"no node offers {name[:80]}, so the pod stays pending: {hint}"


def _ignored_annotations(pod: PodManifest, is_placed: bool) -> Iterator[str]:
    for name, instead in (_ANNOTATIONS | (_PLACEMENT_ANNOTATIONS if is_placed else {})).items():
        if name in pod.annotations and not (name in kai.AMOUNTS and kai.has_effective_annotations(pod)):
            yield f"Purser ignores annotation {name}: {instead}"
