"""What of a pod counts at kubelet's admission."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from purser.core.model import ContainerKind


class QosClass(StrEnum):
    """status.qosClass."""

    GUARANTEED = "Guaranteed"
    BURSTABLE = "Burstable"
    BEST_EFFORT = "BestEffort"


class KubeletContainer(msgspec.Struct, frozen=True):
    """One container. CPU in millicores, everything else in its base unit (bytes, devices), rounded up."""

    name: str
    kind: ContainerKind = ContainerKind.APP
    limits: Mapping[str, int] = {}
    requests: Mapping[str, int] = {}


class KubeletPod(msgspec.Struct, frozen=True):
    """A pod, its containers in kubelet's order: init containers and sidecars as in the spec, then app containers."""

    uid: str
    containers: tuple[KubeletContainer, ...]
    qos: QosClass = QosClass.BEST_EFFORT
