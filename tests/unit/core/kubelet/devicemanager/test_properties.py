"""Whatever comes and goes: no device has two holders, and a restart changes nothing about who holds what."""

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples

from purser.core.kubelet.asks import Allocate, Answer, Ask, FailedAnswer
from purser.core.kubelet.devicemanager import (
    Reusable,
    capacity,
    free_all_but,
    hints,
    registered,
    restore,
    stop,
)
from purser.core.kubelet.devicemanager.checkpoint import decode, encode
from purser.core.kubelet.devicemanager.holdings import counted, held_by
from purser.core.kubelet.hints import Hint
from purser.core.kubelet.masks import nodes_of
from purser.core.kubelet.pod import KubeletContainer, releases_resources
from purser.core.kubelet.state import Allocation, DeviceManagerState, KubeletNode, PluginDevice
from purser.core.kubelet.versions import behaviour, parse_version
from purser.core.pod.manifest import ContainerKind

from .parts import GPU, NIC, Given, container, having, node, pod

VERSIONS = ("v1.20.2", "v1.23.0", "v1.27.1", "v1.29.0", "v1.36.2")
NUMA_NODES = 3

places = st.none() | st.lists(st.integers(-1, NUMA_NODES), max_size=2, unique=True).map(tuple)
device_lists = st.lists(
    st.builds(PluginDevice, st.sampled_from("abcdefghij"), st.sampled_from([True, True, True, False]), places),
    max_size=10,
)
kinds = st.sampled_from(ContainerKind)
amounts = st.integers(0, 3)
pods = st.lists(st.tuples(kinds, amounts, amounts), min_size=1, max_size=4)
roomy = st.builds(lambda of: [PluginDevice(id_, True, of) for id_ in "abcdefgh"], places)


class Admit(NamedTuple):
    containers: list[tuple[ContainerKind, int, int]]


class Leave(NamedTuple):
    pod: int


class List(NamedTuple):
    resource: str
    devices: list[PluginDevice]
    prefers: bool


class Stop(NamedTuple):
    resource: str


class Restart(NamedTuple):
    pass


Step = Admit | Leave | List | Stop | Restart
resources = st.sampled_from([GPU, NIC])
listings = st.builds(List, resources, device_lists, st.booleans())
steps = st.lists(
    st.builds(Admit, pods)
    | st.builds(Leave, st.integers(0, 12))
    | listings
    | st.builds(Stop, resources)
    | st.builds(Restart),
    max_size=12,
)


class World:
    """One node's device manager, its pods, and plugins that answer as the test draws."""

    def __init__(self, version: str, data: st.DataObject) -> None:
        self.node: KubeletNode = node(version, NUMA_NODES)
        self.rules = behaviour(parse_version(version))
        self.data = data
        self.state = DeviceManagerState()
        self.pods: dict[str, list[KubeletContainer]] = {}
        self.active: set[str] = set()

    def go(self, number: int, step: Step) -> None:
        match step:
            case Admit(containers):
                self.admit(f"pod{number}", containers)
            case Leave(pod):
                self.active.discard(f"pod{pod}")
            case List(resource, devices, prefers):
                self.state = having(devices, resource, self.state, prefers=prefers)
            case Stop(resource):
                self.state, _ = capacity(stop(self.state, resource, 0.0), self.data.draw(st.sampled_from([1.0, 999.0])))
            case Restart():
                self.restart()

    def admit(self, uid: str, containers: list[tuple[ContainerKind, int, int]]) -> None:
        self.state = free_all_but(self.state, self.active | {uid})
        assert {holder for holder, _ in self.state.held} <= self.active
        self.active.add(uid)
        self.pods[uid] = [container(f"c{n}", kind, gpu=gpu, nic=nic) for n, (kind, gpu, nic) in enumerate(containers)]
        reusable: Reusable = {}
        for each in self.pods[uid]:
            hint = self.data.draw(st.builds(Hint, st.none() | st.integers(1, 2**NUMA_NODES - 1), st.booleans()))
            done = Given(self.state, each, on=self.node, uid=uid, hint=hint, reusable=reusable, plugin=self.answer)
            self.state, reusable = done.state, done.reusable
            check(self)
            if done.error is not None:
                return
            for resource, n in each.limits.items():
                held = held_by(self.state, (uid, each.name)).get(resource)
                assert held is None or len(held.device_ids) == n

    def answer(self, ask: Ask) -> Answer:
        if self.data.draw(st.integers(0, 9)) == 0:
            return FailedAnswer("no", is_empty_response=self.data.draw(st.booleans()))
        if isinstance(ask, Allocate):
            return self.data.draw(st.binary(max_size=3))
        assert ask.must_include <= ask.available
        assert len(ask.must_include) < ask.size
        return tuple(self.data.draw(st.lists(st.sampled_from([*sorted(ask.available), "bogus"]), max_size=5)))

    def restart(self) -> None:
        before = self.state
        saved = decode(encode(before.held, registered(before)))
        self.state = restore(saved.held, saved.registered, now=0.0)
        assert self.state.held == before.held
        assert self.state.allocated == counted(before.held)


def check(world: World) -> None:
    """All holders of a device are of one pod, and all but the last are init containers, which ended."""
    holders_of: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for (uid, name), held in world.state.held.items():
        place = next(n for n, each in enumerate(world.pods[uid]) if each.name == name)
        for resource, allocation in held.items():
            assert allocation.device_ids <= world.state.allocated[resource], "what is held counts as taken"
            for id_ in allocation.device_ids:
                holders_of.setdefault((resource, id_), []).append((uid, place))
    for device, of in holders_of.items():
        assert len({uid for uid, _ in of}) == 1, f"{device} is held by {of}"
        for uid, place in sorted(of)[:-1]:
            assert releases_resources(world.rules, world.pods[uid][place]), f"{device} is held by {of}"


@examples(200)
@given(st.sampled_from(VERSIONS), device_lists | roomy, steps, st.data())
def test_no_device_has_two_holders(
    version: str, devices: list[PluginDevice], steps: list[Step], data: st.DataObject
) -> None:
    world = World(version, data)
    world.go(-1, List(GPU, devices, True))
    for number, step in enumerate(steps):
        world.go(number, step)
        check(world)


@examples(100)
@given(st.sampled_from(VERSIONS), device_lists, pods, st.data())
def test_pods_that_are_admitted_again_after_a_restart_keep_what_they_have(
    version: str, devices: list[PluginDevice], containers: list[tuple[ContainerKind, int, int]], data: st.DataObject
) -> None:
    world = World(version, data)
    world.go(-1, List(GPU, devices, False))
    world.go(0, Admit(containers))
    world.restart()
    again = having([PluginDevice(d.id, True, d.numa_nodes) for d in devices], GPU, world.state)
    for (uid, name), held in world.state.held.items():
        each = next(one for one in world.pods[uid] if one.name == name)
        done = Given(again, each, on=world.node, uid=uid)
        assert (done.error, done.asked) == (None, [])
        assert done.state == again
        assert held == held_by(again, (uid, name))


@examples(100)
@given(st.sampled_from(VERSIONS), device_lists, st.integers(1, 4), st.booleans())
def test_what_a_hint_promises_can_be_had(version: str, devices: list[PluginDevice], n: int, prefers: bool) -> None:
    """Aligned wherever no device has several NUMA nodes: of those kubelets before 1.22 looked at one only."""
    state = having(devices, prefers=prefers)
    each, on = container(gpu=n), node(version, NUMA_NODES)
    for hint in hints(on, state, pod(each), each, {}).get(GPU) or ():
        done = Given(state, each, on=on, hint=hint)
        assert done.error is None and len(done.ids()) == n
        if all(len(device.numa_nodes or ()) <= 1 for device in devices):
            nodes = (state.resources[GPU].devices[id_].numa_nodes or () for id_ in done.ids())
            assert set().union(*nodes) <= set(nodes_of(hint.mask))


names = any_text(max_size=6)
ids = st.lists(names, max_size=3).map(tuple)
allocations = st.builds(Allocation, st.dictionaries(st.integers(-1, 12), ids, max_size=3), st.binary(max_size=5))


@given(
    st.dictionaries(st.tuples(names, names), st.dictionaries(names, allocations, min_size=1, max_size=2), max_size=3),
    st.dictionaries(names, ids, max_size=3),
)
def test_what_is_written_is_what_is_read(
    held: dict[tuple[str, str], dict[str, Allocation]], healthy: dict[str, tuple[str, ...]]
) -> None:
    checkpoint = decode(encode(held, healthy))
    assert checkpoint.held == held
    assert checkpoint.registered == healthy
