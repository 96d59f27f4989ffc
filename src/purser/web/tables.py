"""What the pages show of a state document: rows, amounts and groups."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from purser.core.state import ADVICE, ClusterState, StateGpu, StateGrant, StateNode, StateWaiting
from purser.core.wording import natural_sort_key
from purser.top.holding import held_by_gpu
from purser.web.cards import Card, Health, card_uuid, cards_of, health_of
from purser.web.faults import is_not_ready

MIB_PER_GIB = 1024
MAX_PODS_OF_A_REASON = 50
"""Shown of those that wait for one reason; the page says how many there are."""


@dataclass(frozen=True)
class HeldAmount:
    """How much of something pods hold."""

    held: int
    total: int

    @property
    def percent(self) -> int:
        """0 where there is nothing to hold."""
        return round(100 * min(self.held / self.total, 1)) if self.total else 0


@dataclass(frozen=True)
class NodeTableRow:
    """A node."""

    name: str
    not_ready: bool
    cordoned: bool
    maintenance: str
    """What the operator does to it, in words; empty: nothing."""
    gpus: int
    unusable: Sequence[tuple[Health, int]]
    """How many GPUs take no new pods, by health."""
    models: Sequence[str]
    memory: HeldAmount
    cores: HeldAmount
    pods: int


@dataclass(frozen=True)
class HolderRow:
    """What a pod holds of one GPU."""

    grant: StateGrant
    memory_mib: int
    cores_percent: int


@dataclass(frozen=True)
class GpuPlace:
    """A GPU, where it is, and the pods that hold parts of it."""

    node: StateNode
    gpu: StateGpu
    holders: Sequence[HolderRow]


@dataclass
class ReasonGroup:
    """Pods that wait for the same reason."""

    reason: str
    """Empty: not known."""
    pods: list[StateWaiting] = field(default_factory=list)

    @property
    def oldest_since(self) -> str:
        """When the one that has waited longest was created; empty: not known."""
        return min((pod.since for pod in self.pods if pod.since), default="")

    @property
    def median_since(self) -> str:
        """Half of them were created then or before; empty: not known."""
        since = sorted(pod.since for pod in self.pods if pod.since)
        return since[(len(since) - 1) // 2] if since else ""

    @property
    def suggestions(self) -> Sequence[tuple[str, int]]:
        """By which changes pods would fit, and how many by each: those of most pods first."""
        return Counter(pod.suggestion for pod in self.pods if pod.suggestion).most_common()


@dataclass
class UseRow:
    """What the pods of one namespace, or on GPUs of one model, hold."""

    name: str
    pods: int = 0
    gpus: int = 0
    """That they hold any part of."""
    memory: HeldAmount = HeldAmount(0, 0)
    """``total``: of these GPUs, or of all of the model."""
    waiting: int = 0
    waiting_gpus: int = 0


def node_rows(state: ClusterState, find: str = "", health: str = "") -> list[NodeTableRow]:
    """Nodes in natural order of their names: those with a GPU that the fleet's page shows for the same words and
    health."""
    pods: dict[str, int] = defaultdict(int)
    for grant in state.grants:
        pods[grant.node] += 1
    words = find.lower().split()
    holders = _holders(state) if words else {}
    rows = (_node_row(node, pods[node.name]) for node in state.nodes if _is_wanted(node, words, health, holders))
    return sorted(rows, key=lambda row: natural_sort_key(row.name))


def gpu_places(state: ClusterState, wanted: Callable[[StateNode, StateGpu], bool]) -> list[GpuPlace]:
    """The wanted GPUs, by node and index."""
    places = {
        gpu.uuid: (node, gpu, list[HolderRow]()) for node in state.nodes for gpu in node.gpus if wanted(node, gpu)
    }
    nodes = {node.name for node, _, _ in places.values()}
    for grant in state.grants:
        if grant.node not in nodes:
            continue  # what a pod holds takes time to sum up
        for uuid, (memory, cores) in held_by_gpu(grant).items():
            if uuid in places:
                places[uuid][2].append(HolderRow(grant, memory, cores))
    found = [GpuPlace(*place) for place in places.values()]
    return sorted(found, key=lambda place: (natural_sort_key(place.node.name), place.gpu.index, place.gpu.uuid))


def faulty_gpus(state: ClusterState, grant: StateGrant) -> list[StateGpu]:
    """The GPUs that a pod holds and that are unhealthy, disputed or degraded."""
    held = held_by_gpu(grant)
    node = next((each for each in state.nodes if each.name == grant.node), None)
    gpus = () if node is None else node.gpus
    bad = (Health.UNHEALTHY, Health.DISPUTED, Health.DEGRADED)
    return [gpu for gpu in gpus if gpu.uuid in held and health_of(gpu) in bad]


def waiting_groups(state: ClusterState, find: str = "") -> list[ReasonGroup]:
    """Waiting pods by reason, those of most pods first; of a group the pod that has waited longest first. ``find``:
    words that ``namespace/name`` of a pod has to contain, as on the page of the fleet."""
    words = find.lower().split()
    wanted = (pod for pod in state.waiting if all(word in f"{pod.namespace}/{pod.pod}" for word in words))
    groups: dict[str, ReasonGroup] = {}
    for pod in sorted(wanted, key=lambda each: (each.since or "~", natural_sort_key(each.pod))):
        groups.setdefault(pod.reason, ReasonGroup(pod.reason)).pods.append(pod)
    return sorted(groups.values(), key=lambda group: (-len(group.pods), group.reason))


def closed_nodes(state: ClusterState) -> list[StateNode]:
    """Those that take no new pods while the operator works on them, and take some again by themselves afterwards."""
    return sorted((node for node in state.nodes if node.comes_back), key=lambda node: natural_sort_key(node.name))


def group_of_reason(state: ClusterState, pod: StateWaiting) -> ReasonGroup:
    """The other pods that wait for the same reason as a pod; none where it is not known."""
    others = (each for each in state.waiting if pod.reason and each.reason == pod.reason and each is not pod)
    return ReasonGroup(pod.reason, list(others))


def message_without_suggestion(pod: StateWaiting) -> str:
    """Why it waits, without the change by which it would fit, which the scheduler's message ends with."""
    return pod.message.removesuffix(f"{ADVICE}{pod.suggestion}") if pod.suggestion else pod.message


def use_by_namespace(state: ClusterState) -> list[UseRow]:
    """Who holds most memory comes first."""
    rows: dict[str, UseRow] = {}
    total = sum(gpu.memory_mib for node in state.nodes for gpu in node.gpus)
    cards = {gpu.uuid: gpu.parent for node in state.nodes for gpu in node.gpus if gpu.parent}
    gpus: dict[str, set[str]] = defaultdict(set)
    for grant in state.grants:
        row = rows.setdefault(grant.namespace, UseRow(grant.namespace))
        held = held_by_gpu(grant)
        row.pods += 1
        gpus[grant.namespace].update(cards.get(uuid, uuid) for uuid in held)
        row.memory = HeldAmount(row.memory.held + sum(memory for memory, _ in held.values()), total)
    for pod in state.waiting:
        row = rows.setdefault(pod.namespace, UseRow(pod.namespace))
        row.waiting += 1
        row.waiting_gpus += pod.gpus
    for row in rows.values():
        row.gpus = len(gpus[row.name])
    return _by_memory(rows.values())


def use_by_model(state: ClusterState) -> list[UseRow]:
    """Of each model how much is held, and on how many of its GPUs."""
    rows: dict[str, UseRow] = {}
    held: dict[str, set[str]] = defaultdict(set)
    for node in state.nodes:
        for gpu in node.gpus:
            row = rows.setdefault(gpu.model, UseRow(gpu.model))
            if gpu.pods:
                held[gpu.model].add(card_uuid(gpu))
            row.pods += gpu.pods
            row.memory = HeldAmount(row.memory.held + gpu.memory_held_mib, row.memory.total + gpu.memory_mib)
    for row in rows.values():
        row.gpus = len(held[row.name])
    return _by_memory(rows.values())


def _by_memory(rows: Iterable[UseRow]) -> list[UseRow]:
    return sorted(rows, key=lambda row: (-row.memory.held, natural_sort_key(row.name)))


def _holders(state: ClusterState) -> Mapping[str, str]:
    """By uuid of a GPU or MIG device, the names of the pods that hold it."""
    names: dict[str, list[str]] = defaultdict(list)
    for grant in state.grants:
        for uuid in {share.gpu for part in grant.containers for share in part.shares}:
            names[uuid].append(f"{grant.namespace}/{grant.pod}")
    return {uuid: "\n".join(each) for uuid, each in names.items()}


def _is_wanted(node: StateNode, words: Sequence[str], health: str, holders: Mapping[str, str]) -> bool:
    if not words and not health:
        return True
    cards = (card for card in cards_of(node) if not health or card.health == health)
    return any(all(word in text for word in words) for text in (_text_of(node, card, holders) for card in cards))


def _text_of(node: StateNode, card: Card, holders: Mapping[str, str]) -> str:
    devices = ((gpu.uuid, gpu.model, holders.get(gpu.uuid, "")) for gpu in card.devices)
    return "\n".join((node.name, card.uuid, *(text for texts in devices for text in texts))).lower()


def _node_row(node: StateNode, pods: int) -> NodeTableRow:
    gpus = node.gpus
    cards = cards_of(node)
    cores = [card.cores for card in cards]
    counts = [(health, sum(card.own_health is health for card in cards)) for health in Health]
    return NodeTableRow(
        name=node.name,
        not_ready=is_not_ready(node),
        cordoned=node.cordoned,
        maintenance=node.maintenance,
        gpus=len(cards),
        unusable=[(health, count) for health, count in counts if count and health is not Health.HEALTHY],
        models=sorted({gpu.model for gpu in gpus}),
        memory=HeldAmount(sum(gpu.memory_held_mib for gpu in gpus), sum(gpu.memory_mib for gpu in gpus)),
        cores=HeldAmount(sum(held for held, _ in cores), sum(total for _, total in cores)),
        pods=pods,
    )
