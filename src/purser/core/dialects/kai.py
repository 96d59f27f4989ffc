"""KAI Scheduler's shares: annotations of a pod, for one of its containers, which names no resource.

Meanings are those of KAI 0.17 (``pkg/binder/plugins/gpusharing``, ``pkg/scheduler/api``), which other systems of the
same descent use, too. kubelet asks no device plugin for a container that names no resource: the webhook writes into the
container's limits what the annotations say, in HAMi's words. From then on that counts, whatever becomes of the
annotations, which users can change; they still say that the container expects KAI's variables.

The annotations have no prefix of their own, and other tools may write such names. They count in pods that name KAI's
scheduler, or, where no container asks for GPUs, Purser's.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import msgspec

from purser.core.device.resources import is_gpu_resource
from purser.core.dialects import gpushare, hami, nvidia, volcano, volcano_vgpu
from purser.core.dialects.dialect import MAX_DEVICES_ASKED, Word, asks_for
from purser.core.dialects.errors import Problems
from purser.core.dialects.quantities import MAX_DEVICE_MEMORY_MIB, NotWholeError, whole_number
from purser.core.dialects.selectors import Selectors
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceRequest, Grant, NodeInventory
from purser.core.names import GPU_RESOURCE, SCHEDULER_NAME
from purser.core.pod.manifest import ContainerSpec, PodManifest

KAI_SCHEDULER = "kai-scheduler"
"""The schedulerName of KAI's pods, unless its administrator has chosen another."""

GPU_FRACTION = "gpu-fraction"
KAI_GPU_MEMORY = "gpu-memory"
GPU_FRACTION_NUM_DEVICES = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER_NAME = "gpu-fraction-container-name"
KAI_MPS = "mps"

RECEIVED_RESOURCE_TYPE = "received-resource-type"
SHARED_GPU_CONFIGMAP = "runai/shared-gpu-configmap"
"""Of a pod that KAI's webhook has changed: its container reads variables from a ConfigMap that KAI's binder makes."""

GPU_PORTION, RUNAI_NUM_OF_GPUS = "GPU_PORTION", "RUNAI_NUM_OF_GPUS"
"""Variables of the container: its part of each GPU, as ``0.50``. The second is the older name."""

WORDS: Mapping[str, Word] = {}
"""Annotations are not resources: what the webhook makes of them is listed in HAMi's words."""
RECORDS: Mapping[str, str] = {RECEIVED_RESOURCE_TYPE: "`Fraction`: a share."}
MARKS: frozenset[str] = frozenset()

AMOUNTS = (GPU_FRACTION, KAI_GPU_MEMORY)
"""The annotations that say how much."""

_REQUEST_ANNOTATIONS = (*AMOUNTS, GPU_FRACTION_NUM_DEVICES)
_LIMIT_WORDS = frozenset(
    word for each in (hami, volcano, volcano_vgpu, gpushare) for word in each.WORDS if word != hami.PRIORITY
)
"""In which a container may ask for GPUs; a rank of its kernels is not an amount."""

_WHOLE = re.compile(r"[0-9]{1,19}", re.ASCII)
_FRACTION = re.compile(r"[+-]?(?:[0-9]{1,32}\.?[0-9]{0,32}|\.[0-9]{1,32})(?:[eE][+-]?[0-9]{1,3})?", re.ASCII)
"""What both Go's ``ParseFloat`` and Kubernetes' quantities read, as KAI asks of it: neither ``NaN`` nor ``0x1p-1``."""

_LABEL_STEP_MIB = 100
"""KAI counts a GPU's memory in these, rounded down."""


class _Share(msgspec.Struct, frozen=True):
    """Of each of some GPUs: MiB, or percent of its memory."""

    count: int
    mib: int | None
    percent: int | None

    def as_hami_resources(self) -> dict[str, int]:
        """As the webhook writes it."""
        amount = {hami.GPUMEM: self.mib} if self.mib is not None else {hami.GPUMEM_PERCENTAGE: self.percent or 0}
        return {GPU_RESOURCE: self.count, **amount}


def has_request_annotations(pod: PodManifest) -> bool:
    """Whether the pod asks for a share by annotation, in sense or nonsense, and the webhook has not seen it yet."""
    if not any(name in pod.annotations for name in _REQUEST_ANNOTATIONS):
        return False
    if pod.scheduler_name == KAI_SCHEDULER:
        return True
    return pod.scheduler_name == SCHEDULER_NAME and not any(map(_asked, pod.containers))


def claims(pod: PodManifest, container: ContainerSpec) -> bool:
    """Whether the pod's annotations are for this container, and it asks for nothing else than they do. In a pod of
    KAI's scheduler it may ask for something else, which is refused later."""
    if not (any(name in pod.annotations for name in _REQUEST_ANNOTATIONS) and _gets_share(pod, container)):
        return False
    if pod.scheduler_name == KAI_SCHEDULER:
        return True
    asked = _asked(container)
    return asked == _as_hami_resources(pod) if asked else has_request_annotations(pod)


def has_effective_annotations(pod: PodManifest) -> bool:
    """Whether the annotations count: before the webhook has seen the pod, and after."""
    return has_request_annotations(pod) or any(claims(pod, container) for container in pod.containers)


def _gets_share(pod: PodManifest, container: ContainerSpec) -> bool:
    """By its name; otherwise it is the first that is not an init container, which come first in kubelet's order."""
    if (name := pod.annotations.get(GPU_FRACTION_CONTAINER_NAME)) is not None:
        return container.name == name
    if container.kind is not ContainerKind.APP:
        return False
    first = bisect_left(pod.containers, True, key=lambda each: each.kind is ContainerKind.APP)
    return first < len(pod.containers) and pod.containers[first].name == container.name


def _asked(container: ContainerSpec) -> dict[str, int | None]:
    """The devices and amounts that a container names, without zeros, which a LimitRange gives to all; None: no whole
    number, or one of more names than anybody writes."""
    named = [
        word for word in {**container.limits, **container.requests} if word in _LIMIT_WORDS or is_gpu_resource(word)
    ]
    if len(named) > nvidia.MAX_NAMED_RESOURCES:
        return dict.fromkeys(named)
    return {word: _parse_whole_number(container.quantity(word) or "") for word in named if asks_for(container, word)}


def _parse_whole_number(text: str) -> int | None:
    try:
        return whole_number(text)
    except NotWholeError:
        return None


def _as_hami_resources(pod: PodManifest) -> dict[str, int]:
    """Nothing where the annotations make no sense."""
    share = _share(pod, Problems())
    return share.as_hami_resources() if share is not None else {}


def check_pod(pod: PodManifest, problems: Problems) -> None:
    """Notes what KAI's admission refuses of the pod as a whole, and a container that is not there."""
    if pod.scheduler_name == KAI_SCHEDULER and _sets_mps_for_whole_gpus(pod):
        problems.add(f"annotation {KAI_MPS} applies only with {GPU_FRACTION} or {KAI_GPU_MEMORY}: remove it")
    if not has_request_annotations(pod):
        return
    others = [container for container in pod.containers if not _gets_share(pod, container)]
    if len(others) == len(pod.containers):
        name = pod.annotations.get(GPU_FRACTION_CONTAINER_NAME, "")
        problems.add(
            f'annotation {GPU_FRACTION_CONTAINER_NAME} "{name[:64]}" does not name any of the pod\'s containers: set '
            "it to the name of the container that gets the share, or remove it to give the share to the first container"
        )
    for container in others:
        if asked := _asked(container):
            problems.add(
                f'container "{container.name}" asks for {min(asked)} in addition to the share in the pod\'s '
                "annotations: KAI supports only one of these, so remove the annotations and set the limits of all "
                "containers instead"
            )
            return


def _sets_mps_for_whole_gpus(pod: PodManifest) -> bool:
    return pod.annotations.get(KAI_MPS) == "true" and not any(name in pod.annotations for name in AMOUNTS)


def parse_container(
    pod: PodManifest, container: ContainerSpec, selectors: Selectors, problems: Problems
) -> DeviceRequest | None:
    """A share of the memory of one GPU, or of each of several; compute is not limited, as with KAI."""
    share = _share(pod, problems)
    if share is None:
        return None
    asked = _asked(container)
    if asked and asked != share.as_hami_resources():
        problems.add(
            f'container "{container.name}" asks for {min(asked)}, but the pod\'s annotations '
            "ask for a share of a GPU: use only one of these"
        )
        return None
    return msgspec.structs.replace(
        nvidia.whole_gpus(share.count, selectors), memory_mib=share.mib, memory_percent=share.percent, cores_percent=0
    )


def limits(pod: PodManifest, container: ContainerSpec) -> dict[str, str]:
    """The share in HAMi's words."""
    return {word: str(amount) for word, amount in _as_hami_resources(pod).items()}


def _share(pod: PodManifest, problems: Problems) -> _Share | None:
    fraction, memory = pod.annotations.get(GPU_FRACTION), pod.annotations.get(KAI_GPU_MEMORY)
    noted = Problems()
    if fraction is not None and memory is not None:
        noted.add(
            f"annotations {GPU_FRACTION} and {KAI_GPU_MEMORY} both set the size of the share: keep only one of them"
        )
    elif fraction is None and memory is None:
        noted.add(
            f"annotation {GPU_FRACTION_NUM_DEVICES} sets the number of shares but not their size: add {GPU_FRACTION} "
            f"or {KAI_GPU_MEMORY}"
        )
    count = _count(pod.annotations.get(GPU_FRACTION_NUM_DEVICES, "1"), noted)
    percent = _percent(fraction, noted) if fraction is not None else None
    mib = _mib(memory, noted) if memory is not None else None
    problems.extend(noted)
    return None if noted else _Share(count, mib, percent)


def _count(text: str, problems: Problems) -> int:
    count = int(text) if _WHOLE.fullmatch(text) else 0
    if not 1 <= count <= MAX_DEVICES_ASKED:
        subject = f'annotation {GPU_FRACTION_NUM_DEVICES} "{text[:64]}"'
        problems.add(f"{subject} is not a number of GPUs: must be an integer from 1 to {MAX_DEVICES_ASKED}")
    return count


def _percent(text: str, problems: Problems) -> int:
    value = _fraction(text)
    subject = f'annotation {GPU_FRACTION} "{text[:64]}"'
    if value is None or not 0 < value < 1:
        problems.add(f"{subject} is not a fraction of a GPU: must be a number between 0 and 1, such as 0.5")
        return 0
    if (percent := math.floor(100 * value)) < 1:
        problems.add(f"{subject} is less than 1% of a GPU: use 0.01 or more, or {KAI_GPU_MEMORY} in MiB")
    return percent


def _fraction(text: str) -> Fraction | None:
    return Fraction(Decimal(text)) if _FRACTION.fullmatch(text) else None


def _mib(text: str, problems: Problems) -> int:
    subject = f'annotation {KAI_GPU_MEMORY} "{text[:64]}"'
    mib = int(text) if _WHOLE.fullmatch(text) else 0
    if mib < 1:
        problems.add(f"{subject} is not a number of MiB: must be an integer of 1 or more without a unit, such as 16384")
    elif mib > MAX_DEVICE_MEMORY_MIB:
        problems.add(f"{subject} exceeds the memory of any GPU: must be a number of MiB, such as 16384")
    return mib


def warnings(pod: PodManifest) -> tuple[str, ...]:
    """What becomes of a fraction that is not a whole percent, for the pod's author; nothing where it is one, or nobody
    asks for it."""
    text = pod.annotations.get(GPU_FRACTION, "")
    value = _fraction(text)
    if value is None or not has_effective_annotations(pod):
        return ()
    percent = math.floor(100 * value)
    if 100 * value == percent:
        return ()
    return (
        f"annotation {GPU_FRACTION} {text[:64]} is rounded down to {percent}% of a GPU's memory: for an exact "
        f"amount, use {KAI_GPU_MEMORY} in MiB",
    )


def grant_annotations(pod: PodManifest, grant: Grant, inventory: NodeInventory, at_ns: int) -> dict[str, str]:
    """What its binder says of a share."""
    return {RECEIVED_RESOURCE_TYPE: "Fraction"}


def environment(pod: PodManifest, grant: Grant, part: ContainerGrant, devices: Mapping[str, Device]) -> dict[str, str]:
    """The container's part of each GPU, in hundredths, as KAI's binder writes it into the container's ConfigMap.

    Of an amount in MiB KAI rounds the part up, by the GPU's memory in whole hundreds of MiB.
    """
    share = _share(pod, Problems())
    device = next((devices[uuid] for uuid in part.uuids if uuid in devices), None)
    if share is None or device is None:
        return {}
    percent = share.percent if share.mib is None else _percent_of(share.mib, device.memory_mib)
    portion = f"{(percent or 0) / 100:.2f}"
    return {GPU_PORTION: portion, RUNAI_NUM_OF_GPUS: portion}


def _percent_of(mib: int, device_mib: int) -> int:
    counted = max(device_mib // _LABEL_STEP_MIB * _LABEL_STEP_MIB, 1)
    return min(-(-100 * mib // counted), 100)
