"""What is free of nodes beside their GPUs follows nodes, pods and reservations, and whatever happens it is what a
recount would find.
"""

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from structlog.testing import capture_logs
from tests.tiers import examples
from tests.unit.core.fleet.reader import Reader

from purser.core.fleet import Fleet, FreeResources
from purser.core.fleet.free_resources import MANY
from purser.core.model import Grant, NodeInventory, PodRequest
from purser.kube.objects import Node, Pod
from purser.scheduler.cache.node_free_resources import NodeFreeResources


def a_node(name: str = "n", cpu: str = "8", memory: str = "64Gi", pods: str = "110") -> Node:
    amounts = {"cpu": cpu, "memory": memory, "pods": pods}
    return msgspec.convert({"metadata": {"name": name}, "status": {"allocatable": amounts}}, Node)


def a_pod(uid: str, node: str = "n", cpu: str = "1", memory: str = "1Gi", **metadata: object) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    return msgspec.convert(
        {"metadata": {"name": uid, "uid": uid, **metadata}, "spec": {"nodeName": node, "containers": [container]}}, Pod
    )


def a_request(uid: str, cpu_milli: int = 1000, memory_mib: int = 1024) -> PodRequest:
    return PodRequest(uid, "ns", uid, (), cpu_milli=cpu_milli, memory_mib=memory_mib)


def a_grant(uid: str, node: str = "n") -> Grant:
    return Grant(uid, "ns", uid, node, ())


def known(*nodes: Node) -> tuple[Fleet, NodeFreeResources]:
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n"))
    rooms = NodeFreeResources(fleet)
    for node in nodes:
        rooms.put_node(node)
    return fleet, rooms


def test_a_reservation_takes_until_the_pod_does_and_counts_once() -> None:
    fleet, rooms = known(a_node())
    rooms.assume("n", a_request("a"))
    assert fleet.free_resources("n") == FreeResources(7000, 63 * 1024, 109)
    reader = Reader(fleet)
    rooms.put_pod(a_pod("a"))
    assert reader.changed() == set()
    rooms.forget_assumed(a_grant("a"))
    assert fleet.free_resources("n") == FreeResources(7000, 63 * 1024, 109)


def test_a_pod_with_malformed_amounts_is_reported_once_and_counts_as_a_pod() -> None:
    fleet, rooms = known(a_node())
    with capture_logs() as logs:
        rooms.put_pod(a_pod("a", cpu="plenty"))
        rooms.put_pod(a_pod("a", cpu="plenty", labels={"app": "x"}))
    assert [log["event"] for log in logs] == ["A pod's resource requests are invalid, so they are ignored"]
    assert fleet.free_resources("n") == FreeResources(8000, 64 * 1024, 109)


def test_a_node_with_malformed_amounts_is_reported_once_and_not_limited() -> None:
    fleet, rooms = known(a_node())
    with capture_logs() as logs:
        rooms.put_node(a_node(cpu="plenty"))
        rooms.put_node(a_node(cpu="plenty"))
    assert [log["event"] for log in logs] == ["A node's allocatable resources are invalid, so they are ignored"]
    assert fleet.free_resources("n") == FreeResources()
    rooms.put_node(a_node())
    assert fleet.free_resources("n").cpu_free_milli == 8000


def test_what_a_node_does_not_name_is_not_limited() -> None:
    fleet, rooms = known(msgspec.convert({"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4"}}}, Node))
    rooms.put_pod(a_pod("a"))
    assert fleet.free_resources("n") == FreeResources(3000, MANY, MANY)


UIDS = st.sampled_from(["a", "b", "c", "d"])
NODES = st.sampled_from(["n", "m"])
AMOUNTS = st.integers(0, 5)


class Events(RuleBasedStateMachine):
    """Nodes and pods come, change and go in any order; Bindings are tried, and fail."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet()
        for name in ("n", "m"):
            self.fleet.set_inventory(NodeInventory(name))
        self.reader = Reader(self.fleet)
        self.rooms = NodeFreeResources(self.fleet)
        self.nodes: dict[str, tuple[int, int, int]] = {}
        self.bound: dict[str, tuple[str, int, int]] = {}
        self.expected: dict[str, tuple[str, int, int]] = {}
        self.told: dict[str, FreeResources] = {}

    @rule(name=NODES, cpu=AMOUNTS, memory=AMOUNTS, pods=AMOUNTS)
    def put_node(self, name: str, cpu: int, memory: int, pods: int) -> None:
        self.nodes[name] = (cpu, memory, pods)
        self.rooms.put_node(a_node(name, f"{cpu}m", f"{memory}Mi", str(pods)))

    @rule(name=NODES)
    def remove_node(self, name: str) -> None:
        self.nodes.pop(name, None)
        self.rooms.remove_node(a_node(name))

    @rule(uid=UIDS, name=NODES, cpu=AMOUNTS, memory=AMOUNTS)
    def put_pod(self, uid: str, name: str, cpu: int, memory: int) -> None:
        self.expected.pop(uid, None)
        self.bound[uid] = (name, cpu, memory)
        self.rooms.put_pod(a_pod(uid, name, f"{cpu}m", f"{memory}Mi"))

    @rule(uid=UIDS)
    def remove_pod(self, uid: str) -> None:
        self.expected.pop(uid, None)
        self.bound.pop(uid, None)
        self.rooms.remove_pod(a_pod(uid))

    @rule(uid=UIDS, name=NODES, cpu=AMOUNTS, memory=AMOUNTS)
    def expect(self, uid: str, name: str, cpu: int, memory: int) -> None:
        if uid not in self.bound:
            self.expected[uid] = (name, cpu, memory)
        self.rooms.assume(name, a_request(uid, cpu, memory))

    @rule(uid=UIDS)
    def forget_assumed(self, uid: str) -> None:
        self.expected.pop(uid, None)
        self.rooms.forget_assumed(a_grant(uid))

    @invariant()
    def rooms_are_what_a_recount_finds(self) -> None:
        for name in ("n", "m"):
            assert self.fleet.free_resources(name) == self.recount(name)

    @invariant()
    def exactly_the_nodes_that_changed_are_told_of(self) -> None:
        now = {name: self.recount(name) for name in self.nodes}
        changed = {name for name in now.keys() | self.told.keys() if now.get(name) != self.told.get(name)}
        assert self.reader.changed() == changed
        self.told = now

    def recount(self, name: str) -> FreeResources:
        if name not in self.nodes:
            return FreeResources()
        on_it = [pod for pod in (*self.bound.values(), *self.expected.values()) if pod[0] == name]
        cpu, memory, pods = self.nodes[name]
        taken = sum(pod[1] for pod in on_it), sum(pod[2] for pod in on_it)
        return FreeResources(max(cpu - taken[0], 0), max(memory - taken[1], 0), max(pods - len(on_it), 0))


TestEvents = Events.TestCase
TestEvents.settings = examples(100, stateful_step_count=40)
