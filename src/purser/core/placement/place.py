"""One pod on one node: the devices of each of its containers, or why not. Where its kubelet may refuse some, those that
kubelet takes.

Containers are placed one after another in kubelet's order (`half_placed`), out of what they can get (`candidates`).
"""

from collections.abc import Iterator, Sequence

import msgspec

from purser.core.fleet import NodeState
from purser.core.fleet.kubelet_snapshot import Arrival, pools_granted, without_allocations
from purser.core.fleet.live import has_mixed_devices
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.kubelet.pod import KubeletPod
from purser.core.ledger import NO_USAGE
from purser.core.model import ContainerKind, ContainerRequest, GpuNic, PodRequest
from purser.core.placement.granted import DeviceAssignment, Placement, placement_of
from purser.core.placement.half_placed import HalfPlacedPod, Preference
from purser.core.placement.kubelet import AdmittedChoice, find_admitted, restrict_to_cpu_nodes
from purser.core.placement.kubelet_prediction import GrantedDevices
from purser.core.placement.nics import PodPools
from purser.core.placement.reasons import Reason, Refusal
from purser.core.placement.sparing import Sparing
from purser.core.policy.settings import DEFAULT_POLICIES, PolicySettings

MAX_SPARING_CONTAINERS = 32
"""Containers with GPUs that leave one another GPUs and network devices: what this takes grows with their square, and
the pod's creator chooses how many there are."""


def place(
    node: NodeState,
    request: PodRequest,
    policy: PolicySettings = DEFAULT_POLICIES,
    left: QuotaLimits = UNLIMITED,
    preference: Preference | None = None,
) -> Placement | Refusal:
    """Where a pod would go on a node. ``left`` is what its namespace's quota leaves."""
    verdict = decide(node, request, policy, left, preference)
    return verdict if isinstance(verdict, Refusal) else placement_of(node, request, verdict)


def decide(
    node: NodeState,
    request: PodRequest,
    policy: PolicySettings,
    left: QuotaLimits = UNLIMITED,
    preference: Preference | None = None,
) -> DeviceAssignment | Refusal:
    """The verdict on a node's state; a refusal also says whether the pod would fit the node if it were empty."""
    verdict = _decide(node, request, policy, left, preference)
    if isinstance(verdict, Refusal) and _is_used(node):
        resolvable = isinstance(_decide(node.unused, request, policy, left, None), DeviceAssignment)
        return msgspec.structs.replace(verdict, resolvable=resolvable)
    return verdict


def _is_used(node: NodeState) -> bool:
    """Whether anything is taken of the node, or about to be."""
    is_used_by_kubelet = node.kubelet is not None and node.kubelet != without_allocations(node.kubelet)
    return is_used_by_kubelet or any(state.usage != NO_USAGE for state in node.devices)


def _decide(
    node: NodeState, request: PodRequest, policy: PolicySettings, left: QuotaLimits, preference: Preference | None
) -> DeviceAssignment | Refusal:
    verdict = _choose_admitted(node, request, policy, left, preference)
    is_refused = isinstance(verdict, Refusal)
    if is_refused and request.gpu_nic is GpuNic.PREFERRED and node.inventory.pools:
        # No pair is worth a pod that waits.
        return _choose_admitted(node, msgspec.structs.replace(request, gpu_nic=None), policy, left, preference)
    return verdict


def _choose_admitted(
    node: NodeState, request: PodRequest, policy: PolicySettings, left: QuotaLimits, preference: Preference | None
) -> DeviceAssignment | Refusal:
    def choose(narrowed: PodRequest) -> DeviceAssignment | Refusal:
        return _choose(node, narrowed, policy, left, preference)

    if node.kubelet is None:
        return choose(request)

    def granted(fit: DeviceAssignment) -> GrantedDevices:
        return {part.container: part.uuids for part in placement_of(node, request, fit).containers}

    def arrival(pod: KubeletPod, fit: DeviceAssignment) -> Arrival:
        return Arrival(pod, granted(fit), pools_granted(fit.pools, node.inventory.pools))

    settled = find_admitted(node.kubelet, request, choose, arrival)
    if isinstance(settled, Refusal):
        return settled
    closer = restrict_to_cpu_nodes(node, request, granted(settled.choice), settled.after)
    nearest = None if closer is None else find_admitted(node.kubelet, closer, choose, arrival)
    if isinstance(nearest, AdmittedChoice) and nearest.choice.pairs >= settled.choice.pairs:
        return nearest.choice
    return settled.choice


def _choose(
    node: NodeState, request: PodRequest, policy: PolicySettings, left: QuotaLimits, preference: Preference | None
) -> DeviceAssignment | Refusal:
    if not node.devices:
        return Refusal(((Reason.NO_DEVICES, 1),), container=request.containers[0].name if request.containers else "")
    found = _choose_in_order(node, request, policy, left, preference, None)
    if isinstance(found, Refusal) and len(request.containers) > 1 and has_mixed_devices(node):
        # What is left for a container that wants several depends on what those that want one have.
        tries = (_choose_in_order(node, request, policy, left, preference, mig_first) for mig_first in (True, False))
        return next((each for each in tries if not isinstance(each, Refusal)), found)
    return found


def _choose_in_order(
    node: NodeState,
    request: PodRequest,
    policy: PolicySettings,
    left: QuotaLimits,
    preference: Preference | None,
    mig_first: bool | None,
) -> DeviceAssignment | Refusal:
    rows, words = tuple(_rows(request.containers)), policy.gpu_policy(request)

    def start(sparing: Sparing | None = None) -> tuple[HalfPlacedPod, PodPools]:
        pools = PodPools(node, request, sparing)
        return HalfPlacedPod(node.devices, request, words, left, preference, pools, mig_first), pools

    pod, pools = start()
    found = _place_rows(pod, pools, rows)
    if not pools.missed or not 1 < len(rows) <= MAX_SPARING_CONTAINERS:
        return found
    sparing, most = start()[0].sparing(rows)
    has_handovers = len(rows) < len(
        request.containers
    )  # the pairs of init containers count as well, and are not foreseen
    if most <= _pairs(found) and not has_handovers:
        return found
    again = _place_rows(*start(sparing), rows)
    return again if _pairs(again) > _pairs(found) else found


def _place_rows(
    pod: HalfPlacedPod, pools: PodPools, rows: Sequence[tuple[ContainerRequest, ...]]
) -> DeviceAssignment | Refusal:
    for row in rows:
        refusal = pod.add(row)
        if refusal is not None:
            return refusal
    pair_refusal = pools.refusal(rows[0][0].name if rows else "")
    return pair_refusal or DeviceAssignment(tuple(pod.choice), tuple(pod.instances), tuple(pools.shares), pools.pairs)


def _pairs(found: DeviceAssignment | Refusal) -> int:
    return found.pairs if isinstance(found, DeviceAssignment) else 0


def _rows(containers: Sequence[ContainerRequest]) -> Iterator[tuple[ContainerRequest, ...]]:
    """Each run of init containers with the app or sidecar after it that asks for the same resource."""
    row: tuple[ContainerRequest, ...] = ()
    for container in containers:
        if row and row[0].devices.resource != container.devices.resource:
            yield row
            row = ()
        row = (*row, container)
        if container.kind is not ContainerKind.INIT:
            yield row
            row = ()
    if row:
        yield row
