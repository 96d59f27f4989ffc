"""What is known of a node's kubelet: what it last reported, and which pods it will meet before it meets the next one.

A pod is on its way until the report says what it holds: bound by us or by others, or only reserved. `KubeletSnapshot`
is the value that decisions read; `KubeletSnapshots` keeps what it is made of.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from purser.core.device.ids import device_ids, reported_numa_nodes, uuid_of
from purser.core.device.resources import is_gpu_resource
from purser.core.kubelet import managers
from purser.core.kubelet.cpumanager.requests import guaranteed_cpus
from purser.core.kubelet.devicemanager import is_device_resource
from purser.core.kubelet.pod import KubeletContainer, KubeletPod, QosClass
from purser.core.kubelet.state import (
    Allocation,
    ContainerKey,
    DeviceManagerState,
    KubeletNode,
    KubeletState,
    MemoryState,
    MemoryTable,
    PluginDevice,
    PluginOptions,
    PluginResource,
)
from purser.core.model import Device, Grant, NodePool, PoolShare
from purser.core.names import GPU_RESOURCE
from purser.core.pod.manifest import ContainerKind

Positions = Mapping[str, int]
"""Where each device stands among its node's, by uuid."""


PoolsGranted = Mapping[tuple[str, str], Mapping[int | None, int]]
"""By container and SR-IOV pool, of which NUMA nodes it gets how many devices by its grant. None: one that kubelet does
not know."""


class Arrival(msgspec.Struct, frozen=True):
    """A pod that kubelet has yet to admit."""

    pod: KubeletPod
    granted: Mapping[str, tuple[str, ...]] = {}
    """By container, the uuids of the devices that Purser granted it."""
    pools: PoolsGranted = {}


class KubeletSnapshot(msgspec.Struct, frozen=True):
    """What a node's kubelet will decide from."""

    node: KubeletNode
    state: KubeletState
    """As reported, without what pods held that have ended."""
    arrivals: tuple[Arrival, ...] = ()
    """As they were bound; kubelet may take them in any order."""
    hardware: Hashable = None
    """Equal for equal ``node``; cheaper to compare."""

    def key(self, positions: Positions) -> Hashable:
        """Equal for nodes whose kubelets will decide alike, devices taken by position in place of uuid.

        Where kubelet picks by chance among other plugins' devices, and the twin by their ids, the pick is taken to be
        the same.
        """
        cpus = self.state.cpus
        return (
            self.hardware,
            _devices_key(self.state.devices, positions),
            None if cpus is None else (cpus.default, cpus.reserved),
            _memory_key(self.state.memory),
            tuple(_arrival_key(arrival, positions) for arrival in self.arrivals),
        )


def _devices_key(devices: DeviceManagerState, positions: Positions) -> Hashable:
    """Which of the node's GPUs have how many slots left; of other plugins' devices only their number counts."""
    counts: Counter[Hashable] = Counter()
    for name, resource in devices.resources.items():
        taken = devices.allocated.get(name, frozenset())
        for device in resource.devices.values():
            place = positions.get(uuid_of(device.id)) if is_gpu_resource(name) else None
            counts[name, place, device.numa_nodes, device.id in resource.healthy, device.id in taken] += 1
    plugins = (
        (name, resource.is_listed, resource.options.preferred_allocation, resource.stopped_at is None)
        for name, resource in devices.resources.items()
    )
    # kubelet knows a held resource even after its plugin is gone.
    return frozenset(counts.items()), frozenset(plugins), frozenset(devices.allocated)


def _memory_key(memory: MemoryState | None) -> Hashable:
    if memory is None:
        return None
    return tuple(
        (number, node.group, node.assignments > 0, tuple(sorted(map(_table_key, node.tables.items()))))
        for number, node in sorted(memory.nodes.items())
    )


def _table_key(entry: tuple[str, MemoryTable]) -> tuple[str, int, int]:
    name, table = entry
    return name, table.allocatable, table.free


def _arrival_key(arrival: Arrival, positions: Positions) -> Hashable:
    containers = tuple(
        (
            container.kind,
            frozenset(container.limits.items()),
            frozenset(container.requests.items()),
            tuple(positions.get(uuid, -1) for uuid in arrival.granted.get(container.name, ())),
        )
        for container in arrival.pod.containers
    )
    pools = frozenset((key, frozenset(numbers.items())) for key, numbers in arrival.pools.items())
    return arrival.pod.qos, containers, pools


class ReportedKubelet(msgspec.Struct, frozen=True):
    """What is known of one kubelet."""

    node: KubeletNode
    state: KubeletState
    hardware: Hashable
    counted: frozenset[str] | None
    """Of a report that says how much is taken, and not by whom: the uids of the pods that are in it. None: it says by
    whom."""


def kubelet_report(node: KubeletNode, state: KubeletState, counted: frozenset[str] | None = None) -> ReportedKubelet:
    """A kubelet as it was last seen."""
    return ReportedKubelet(node, state, msgspec.json.encode(node), counted)


class KubeletPods(msgspec.Struct, frozen=True):
    """The pods on one node, as far as they concern its kubelet."""

    pods: tuple[KubeletPod, ...] = ()
    """In the order in which they came."""
    started: frozenset[str] = frozenset()
    """Uids of those that run."""
    taken: frozenset[str] = frozenset()
    """Uids of those that a report had in full: kubelet takes them no second time."""


class KubeletSnapshots:
    """Reports by node, and the pods that are on each."""

    def __init__(self) -> None:
        self._reports: dict[str, ReportedKubelet] = {}
        self._started: set[str] = set()
        self._taken: set[str] = set()
        """Pods that a report had in full: kubelet takes them no second time."""
        self._pods: dict[str, dict[str, KubeletPod]] = {}
        self._node_of: dict[str, str] = {}

    def __bool__(self) -> bool:
        """Whether there is any report."""
        return bool(self._reports)

    def set_report(self, name: str, node: KubeletNode, state: KubeletState, *, is_anonymous: bool = False) -> None:
        """Take what a node's kubelet was last seen to have and to hold.

        An anonymous report (see `purser.core.kubelet.noderesourcetopology`) says how much is taken, and not by whom:
        what pods have that run by now is taken to be in it.
        """
        uids = self._pods.get(name, {}).keys()
        counted = frozenset(uids & self._started) if is_anonymous else None
        self._reports[name] = kubelet_report(node, state, counted)
        if not is_anonymous:
            self._taken.update(uid for uid, pod in self._pods.get(name, {}).items() if _is_allocated(state, pod))

    def forget_report(self, name: str) -> None:
        """Nothing is known of a node's kubelet any more."""
        self._reports.pop(name, None)

    def report(self, name: str) -> ReportedKubelet | None:
        """What is known of a node's kubelet."""
        return self._reports.get(name)

    def pods(self, name: str) -> KubeletPods:
        """The pods on a node."""
        pods = self._pods.get(name, {})
        return KubeletPods(
            tuple(pods.values()), frozenset(pods.keys() & self._started), frozenset(pods.keys() & self._taken)
        )

    def restore(self, name: str, report: ReportedKubelet | None, pods: KubeletPods) -> None:
        """A node as `report` and `pods` had it."""
        for uid in tuple(self._pods.get(name, ())):
            self.forget_pod(uid)
        self._reports.pop(name, None)
        for pod in pods.pods:
            self.put_pod(name, pod)
        self._started |= pods.started
        self._taken |= pods.taken
        if report is not None:
            self._reports[name] = report

    def node_of(self, uid: str) -> str | None:
        """The node that a pod was put on, None for one that was not."""
        return self._node_of.get(uid)

    def put_pod(self, name: str, pod: KubeletPod) -> str | None:
        """A pod is on a node, or about to be. Returns the node that it was on before."""
        before = self.forget_pod(pod.uid)
        self._pods.setdefault(name, {})[pod.uid] = pod
        self._node_of[pod.uid] = name
        report = self._reports.get(name)
        if report is not None and report.counted is None and _is_allocated(report.state, pod):
            self._taken.add(pod.uid)
        return before

    def mark_pod_admitted(self, uid: str) -> None:
        """The pod runs: what it holds is in the next anonymous report."""
        if uid in self._node_of:
            self._started.add(uid)

    def forget_pod(self, uid: str) -> str | None:
        """The pod has ended. Returns the node that it was on."""
        name = self._node_of.pop(uid, None)
        if name is not None:
            del self._pods[name][uid]
            self._started.discard(uid)
            self._taken.discard(uid)
            if not self._pods[name]:
                del self._pods[name]
        return name

    def of(
        self,
        name: str,
        grants: Iterable[Grant],
        gone: Collection[str] = (),
        gpus: Sequence[Device] = (),
        pools: Sequence[NodePool] = (),
    ) -> KubeletSnapshot | None:
        """The kubelet of a node with these GPUs and pools whose pods hold these grants, as if the pods ``gone`` were;
        None without a report."""
        report = self._reports.get(name)
        if report is None:
            return None
        gpus = [gpu for gpu in gpus if is_gpu_resource(gpu.resource)]  # what others' plugins list stays as reported
        granted = {grant.pod_uid: grant for grant in grants}
        pods = {uid: pod for uid, pod in self._pods.get(name, {}).items() if uid not in gone}
        if report.counted is not None:
            past: Collection[str] = report.counted
            counted = (grant for uid, grant in granted.items() if uid in pods and uid in past)
            state = replace(report.state, devices=_with_own_gpus(report.state.devices, gpus, counted))
        else:
            # kubelet frees lazily, but always before it decides.
            past, state = self._taken, managers.free_all_but(report.state, pods)
        arrivals = (_arrival(pod, granted.get(uid), pools) for uid, pod in pods.items() if uid not in past)
        return KubeletSnapshot(
            report.node, state, tuple(a for a in arrivals if _needs_admission(a, state)), report.hardware
        )


def _with_own_gpus(devices: DeviceManagerState, gpus: Sequence[Device], started: Iterable[Grant]) -> DeviceManagerState:
    """Devices as counts, with the node's GPUs by their ids, and what pods hold of them: the slot of a GPU makes no
    difference."""
    free = {gpu.uuid: list(device_ids(gpu)) for gpu in gpus}
    resource_of = {gpu.uuid: gpu.resource for gpu in gpus}
    held: dict[ContainerKey, dict[str, Allocation]] = {}
    taken: dict[str, set[str]] = {gpu.resource: set() for gpu in gpus}
    for grant in started:
        for part in grant.containers:
            resource = next((resource_of[uuid] for uuid in part.uuids if uuid in resource_of), GPU_RESOURCE)
            ids = tuple(free[uuid].pop(0) for uuid in part.uuids if free.get(uuid))
            held[grant.pod_uid, part.container] = {resource: Allocation({-1: ids})}
            taken.setdefault(resource, set()).update(ids)
    own = {resource: _own_resource([gpu for gpu in gpus if gpu.resource == resource]) for resource in taken}
    return DeviceManagerState(
        {**devices.resources, **own},
        held,
        {**devices.allocated, **{resource: frozenset(ids) for resource, ids in taken.items()}},
        devices.removed,
    )


def _own_resource(gpus: Sequence[Device]) -> PluginResource:
    gpu_of = {id_: gpu for gpu in gpus for id_ in device_ids(gpu)}
    plugin_devices = {id_: PluginDevice(id_, gpu.healthy, reported_numa_nodes(gpu)) for id_, gpu in gpu_of.items()}
    healthy = frozenset(id_ for id_, gpu in gpu_of.items() if gpu.healthy)
    return PluginResource(
        plugin_devices, healthy, frozenset(plugin_devices) - healthy, True, PluginOptions(False, True)
    )


def without_allocations(kubelet: KubeletSnapshot) -> KubeletSnapshot:
    """The same kubelet with nothing given away."""
    return KubeletSnapshot(kubelet.node, managers.free_all_but(kubelet.state, ()), (), kubelet.hardware)


def _arrival(pod: KubeletPod, grant: Grant | None, pools: Sequence[NodePool]) -> Arrival:
    if grant is None:
        return Arrival(pod)
    granted = {part.container: part.uuids for part in grant.containers}
    return Arrival(pod, granted, pools_granted(grant.pools, pools))


def pools_granted(shares: Iterable[PoolShare], pools: Sequence[NodePool]) -> PoolsGranted:
    """What these shares are to kubelet, by the node's pools."""
    numa_nodes = {(pool.resource, place.id): place.numa_node for pool in pools for place in pool.places}
    found: dict[tuple[str, str], Counter[int | None]] = {}
    for share in shares:
        of_pool = found.setdefault((share.container, share.resource), Counter())
        of_pool[numa_nodes.get((share.resource, share.place))] += share.count
    return found


def _needs_admission(arrival: Arrival, state: KubeletState) -> bool:
    """Whether kubelet will have to find anything for the pod. One that asks for GPUs without a grant gets none: the
    agent refuses it."""
    containers = arrival.pod.containers
    asks = any(n and is_gpu_resource(name) for container in containers for name, n in container.limits.items())
    if asks and not arrival.granted:
        return False
    return any(_holds_resources(state, arrival.pod, container) for container in containers)


def _holds_resources(state: KubeletState, pod: KubeletPod, container: KubeletContainer) -> bool:
    """Whether a container will be in the report once kubelet took it; else its pod would be on its way forever."""
    return next(_asked(state, pod, container), None) is not None


def _is_allocated(state: KubeletState, pod: KubeletPod) -> bool:
    """Whether kubelet has allocated all that every container of a pod requests: an admission is reported container by
    container. Devices of finished init containers may be missing from the report."""
    lasting = [container for container in pod.containers if container.kind is not ContainerKind.INIT]
    return bool(lasting) and all(
        key in holders
        for container in lasting
        for holders in _asked(state, pod, container)
        for key in [(pod.uid, container.name)]
    )


def _asked(state: KubeletState, pod: KubeletPod, container: KubeletContainer) -> Iterator[Collection[ContainerKey]]:
    """For each thing that a container asks a manager for, the containers that the manager gave it to."""
    devices = state.devices
    for name, n in container.limits.items():
        if n and is_device_resource(devices, name):
            yield {key for key, held in devices.held.items() if name in held}
    if state.cpus is not None and guaranteed_cpus(pod, container):
        yield state.cpus.exclusive.keys()
    if state.memory is not None and pod.qos is QosClass.GUARANTEED:
        yield state.memory.blocks.keys()
