"""kubelet's device manager as plain state: which devices there are, and which container holds which.

No I/O, no clock and no gRPC: messages of plugins come in as calls, and what must be asked of a plugin comes out as a
`Question`. Kubelets differ by version; the rules here are those of 1.25 and newer, those of older ones where
``version`` says so.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

Version = tuple[int, int]
"""Major and minor of a kubelet."""

GRACE_S = 300.0
"""How long a resource without a plugin keeps its devices (as unhealthy ones) before kubelet forgets it."""

ContainerKey = tuple[str, str]
"""(pod uid, container name)."""


class AllocationError(Exception):
    """A container cannot have its devices; the message is kubelet's."""


@dataclass(frozen=True, slots=True)
class PluginDevice:
    """One device as ListAndWatch tells it."""

    id: str
    healthy: bool = True
    numa_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """What a plugin wants to be asked."""

    pre_start_required: bool = False
    preferred_allocation: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one container holds of one resource."""

    devices_per_numa: Mapping[int, tuple[str, ...]]
    """A device on two NUMA nodes stands under both; one without a node under -1 (0 before 1.23)."""
    response: bytes
    """The plugin's serialized ContainerAllocateResponse."""

    @property
    def device_ids(self) -> frozenset[str]:
        """Every device, once."""
        return frozenset(id_ for ids in self.devices_per_numa.values() for id_ in ids)


@dataclass(frozen=True, slots=True)
class Question:
    """The arguments of a GetPreferredAllocation call."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A choice of devices that is complete but for the plugin's preference."""

    taken: frozenset[str]
    required: int
    groups: tuple[frozenset[str], ...] = ()
    """What to fill up from, best first."""
    question: Question | None = None


@dataclass(slots=True)
class _Endpoint:
    options: PluginOptions
    stopped_at: float | None = None


@dataclass(slots=True)
class _Resource:
    devices: dict[str, PluginDevice] = field(default_factory=dict)
    healthy: set[str] = field(default_factory=set)
    unhealthy: set[str] = field(default_factory=set)
    is_listed: bool = False
    """Whether the first list came, or the checkpoint named the resource: only then has the node a capacity of it."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the node's status says; a removed resource is set to 0, not left out."""

    capacity: Mapping[str, int]
    allocatable: Mapping[str, int]
    removed: tuple[str, ...]


class DeviceManager:
    """The devices of one node. Calls change the state at once; nothing is undone when a pod fails half-way."""

    def __init__(self, version: Version, random: Random) -> None:
        self.version = version
        self._random = random
        self._resources: dict[str, _Resource] = {}
        self._endpoints: dict[str, _Endpoint] = {}
        self._pods: dict[ContainerKey, dict[str, Allocation]] = {}
        self._allocated: dict[str, set[str]] = {}
        self.removed: set[str] = set()

    # --- what plugins tell

    def register(self, resource: str, options: PluginOptions) -> None:
        """A plugin registered; the newest registration of a resource replaces the one before."""
        self._endpoints[resource] = _Endpoint(options)
        self._resources.setdefault(resource, _Resource())
        self.removed.discard(resource)

    def update(self, resource: str, devices: Iterable[PluginDevice]) -> None:
        """A ListAndWatch message: the complete list replaces the one before."""
        known = self._resources.setdefault(resource, _Resource())
        known.devices, known.healthy, known.unhealthy, known.is_listed = {}, set(), set(), True
        for device in devices:
            known.devices[device.id] = device
            (known.healthy if device.healthy else known.unhealthy).add(device.id)

    def stop(self, resource: str, now: float) -> None:
        """The plugin's stream ended: every device is unhealthy and the time of grace begins."""
        if (endpoint := self._endpoints.get(resource)) is not None:
            endpoint.stopped_at = now
        if (known := self._resources.get(resource)) is not None:
            known.unhealthy |= known.healthy
            known.healthy = set()

    def options(self, resource: str) -> PluginOptions:
        """What the plugin of a resource wants to be asked."""
        endpoint = self._endpoints.get(resource)
        return endpoint.options if endpoint else PluginOptions()

    def is_stopped(self, resource: str) -> bool:
        """Whether the resource has no plugin that answers."""
        endpoint = self._endpoints.get(resource)
        return endpoint is None or endpoint.stopped_at is not None

    # --- what the node reports

    def capacity(self, now: float) -> Capacity:
        """The extended resources of the node; forgets those whose plugin stayed away for longer than the grace."""
        for resource, endpoint in list(self._endpoints.items()):
            if endpoint.stopped_at is not None and now - endpoint.stopped_at > GRACE_S:
                del self._endpoints[resource]
                del self._resources[resource]
                self.removed.add(resource)
        listed = {name: known for name, known in self._resources.items() if known.is_listed}
        gone = dict.fromkeys(sorted(self.removed), 0)
        return Capacity(
            {**gone, **{name: len(known.healthy) + len(known.unhealthy) for name, known in listed.items()}},
            {**gone, **{name: len(known.healthy) for name, known in listed.items()}},
            tuple(gone),
        )

    def devices(self) -> dict[str, tuple[PluginDevice, ...]]:
        """Every device of every resource, healthy or not."""
        return {name: tuple(known.devices.values()) for name, known in self._resources.items() if known.is_listed}

    def is_device_resource(self, resource: str) -> bool:
        """Whether kubelet allocates this resource: it was listed, or somebody holds some of it."""
        known = self._resources.get(resource)
        return (known is not None and known.is_listed) or bool(self._allocated.get(resource))

    # --- what containers hold

    def held(self, pod_uid: str, container: str) -> Mapping[str, Allocation]:
        """The allocations of one container, by resource."""
        return self._pods.get((pod_uid, container), {})

    def holders(self) -> frozenset[str]:
        """The uids of all pods that hold devices."""
        return frozenset(uid for uid, _ in self._pods)

    def free_all_but(self, active_uids: Collection[str]) -> None:
        """Take the devices of pods that are gone. kubelet does this lazily, whenever it needs to know."""
        gone = [key for key in self._pods if key[0] not in active_uids]
        for key in gone:
            del self._pods[key]
        if gone:
            self._count_allocated()

    def plan(
        self,
        key: ContainerKey,
        resource: str,
        required: int,
        *,
        reusable: Collection[str] = (),
        mask: Collection[int] | None = None,
        is_running: bool = False,
    ) -> Plan | None:
        """Choose devices for a container as far as that goes without the plugin; None when it has what it needs.

        ``reusable`` are the devices of init containers that ended; ``mask`` is the topology manager's wish. Raises
        `AllocationError`.
        """
        held = self._held_before(key, resource, required)
        if held is not None and is_running:
            return None
        self._check_plugin(resource, held or frozenset())
        if required == 0 or held is not None:
            return None
        reused = frozenset(sorted(reusable)[:required])
        available = self._available(resource, reused)
        needed = required - len(reused)
        if len(available) < needed:
            raise AllocationError(
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {needed}, Available: {len(available)}"
            )
        if needed == 0:
            return Plan(reused, required)
        return self._plan_with_affinity(resource, required, reused, available, mask)

    def choose(self, plan: Plan, preferred: Collection[str] = ()) -> frozenset[str]:
        """Complete a plan with what the plugin prefers: only ids that were free count, kubelet fills up the rest."""
        chosen = set(plan.taken)
        free = frozenset().union(*plan.groups)
        for group in (free & frozenset(preferred), *plan.groups):
            rest = self._shuffled(group - chosen)
            chosen.update(rest[: plan.required - len(chosen)])
        return frozenset(chosen)

    def hold(self, key: ContainerKey, resource: str, ids: Collection[str], response: bytes) -> None:
        """Record what a container holds after its Allocate succeeded."""
        self._pods.setdefault(key, {})[resource] = Allocation(self._per_numa(resource, ids), response)
        self._count_allocated()

    # --- what survives a restart

    def allocations(self) -> dict[ContainerKey, Mapping[str, Allocation]]:
        """Everything that is held, for the checkpoint."""
        return {key: dict(held) for key, held in self._pods.items()}

    def registered(self) -> dict[str, tuple[str, ...]]:
        """The healthy devices of every resource, for the checkpoint."""
        return {name: tuple(sorted(known.healthy)) for name, known in self._resources.items() if known.is_listed}

    def restore(
        self, allocations: Mapping[ContainerKey, Mapping[str, Allocation]], resources: Iterable[str], now: float
    ) -> None:
        """Start from a checkpoint: allocations as they were, no devices of any resource until its plugin is back."""
        self._pods = {key: dict(held) for key, held in allocations.items()}
        self._count_allocated()
        for resource in resources:
            self._endpoints[resource] = _Endpoint(PluginOptions(), stopped_at=now)
            self._resources[resource] = _Resource(is_listed=True)

    # --- steps

    def _held_before(self, key: ContainerKey, resource: str, required: int) -> frozenset[str] | None:
        allocation = self._pods.get(key, {}).get(resource)
        if allocation is None:
            return None
        held = allocation.device_ids
        if len(held) != required:
            raise AllocationError(
                f'pod "{key[0]}" container "{key[1]}" changed request for resource "{resource}" '
                f"from {len(held)} to {required}"
            )
        return held

    def _check_plugin(self, resource: str, held: frozenset[str]) -> None:
        known = self._resources.get(resource)
        if self.version < (1, 25):
            if known is None and not held:
                raise AllocationError(f"can't allocate unregistered device {resource}")
            return
        if known is None:
            raise AllocationError(f"cannot allocate unregistered device {resource}")
        if not known.healthy:
            raise AllocationError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not held <= known.healthy:
            raise AllocationError(
                f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
            )

    def _available(self, resource: str, reused: frozenset[str]) -> frozenset[str]:
        healthy = self._resources[resource].healthy
        return frozenset(healthy - self._allocated.get(resource, set()) - reused)

    def _plan_with_affinity(
        self,
        resource: str,
        required: int,
        reused: frozenset[str],
        available: frozenset[str],
        mask: Collection[int] | None,
    ) -> Plan:
        aligned, unaligned, without = self._by_affinity(resource, available, mask)
        if required - len(reused) < len(aligned):
            return self._plan_asking(resource, required, reused, (aligned,))
        taken = reused | aligned
        if len(taken) >= required:
            return Plan(taken, required)
        return self._plan_asking(resource, required, taken, (unaligned, without))

    def _plan_asking(
        self, resource: str, required: int, taken: frozenset[str], groups: tuple[frozenset[str], ...]
    ) -> Plan:
        if not self.options(resource).preferred_allocation:
            return Plan(taken, required, groups)
        available = taken.union(*groups)
        question = Question(tuple(self._shuffled(available)), tuple(self._shuffled(taken)), required)
        return Plan(taken, required, groups, question)

    def _by_affinity(
        self, resource: str, available: frozenset[str], mask: Collection[int] | None
    ) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
        nodes = {id_: self._resources[resource].devices[id_].numa_nodes for id_ in available}
        if mask is None:
            return frozenset(), frozenset(), available
        without = frozenset(id_ for id_, of in nodes.items() if not of)
        aligned = frozenset(id_ for id_, of in nodes.items() if not set(of).isdisjoint(mask))
        return aligned, available - aligned - without, without

    def _per_numa(self, resource: str, ids: Collection[str]) -> dict[int, tuple[str, ...]]:
        known = self._resources.get(resource, _Resource()).devices
        nowhere = (0,) if self.version < (1, 23) else (-1,)
        found: dict[int, list[str]] = {}
        for id_ in sorted(ids):
            device = known.get(id_)
            for node in (device.numa_nodes if device else ()) or nowhere:
                found.setdefault(node, []).append(id_)
        return {node: tuple(of_node) for node, of_node in sorted(found.items())}

    def _count_allocated(self) -> None:
        self._allocated = {}
        for held in self._pods.values():
            for resource, allocation in held.items():
                self._allocated.setdefault(resource, set()).update(allocation.device_ids)

    def _shuffled(self, ids: Iterable[str]) -> list[str]:
        """Go's map order: nobody may lean on it."""
        ordered = sorted(ids)
        self._random.shuffle(ordered)
        return ordered
