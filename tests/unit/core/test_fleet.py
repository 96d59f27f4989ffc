"""The fleet: states follow inventories and the book, and equal states are known to be equal."""

import msgspec
from tests.unit.core.fleet.reader import Reader

from purser.core.fleet import Fleet, FreeResources
from purser.core.kubelet.pod import KubeletPod
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, Link, NodeInventory, PcieLevel


def inventory(node: str, cards: int = 2, **facts: object) -> NodeInventory:
    devices = tuple(
        msgspec.structs.replace(Device(f"{node}-{i}", i, "NVIDIA", 1000, slots=4), **facts) for i in range(cards)
    )
    return NodeInventory(node, devices)


def grant(uid: str, node: str, card: int = 0, memory: int = 100) -> Grant:
    share = DeviceShare(f"{node}-{card}", memory, 0)
    return Grant(uid, "ns", uid, node, (ContainerGrant("c", ContainerKind.APP, (share,)),))


def test_devices_are_ordered_by_index_whatever_the_agent_wrote() -> None:
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", tuple(reversed(inventory("n", 3).devices))))
    assert [state.device.index for state in fleet.node("n").devices] == [0, 1, 2]


def test_a_class_number_is_never_used_again_for_another_state() -> None:
    fleet = Fleet()
    seen = set()
    for memory in range(100, 600, 100):
        fleet.set_inventory(inventory("n", memory_mib=memory))
        seen.add(fleet.classes().get("n"))
    assert len(seen) == 5


def test_states_that_nobody_is_in_any_more_are_forgotten() -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory("n"))
    for memory in range(1, 100):
        fleet.ledger.release("p")
        fleet.ledger.reserve(grant("p", "n", memory=memory))
        fleet.classes()
    assert len(fleet._classes._numbers) == 1


def test_hardware_that_no_node_has_any_more_is_forgotten() -> None:
    fleet = Fleet()
    for memory in range(100, 600, 100):
        fleet.set_inventory(inventory("n", memory_mib=memory))
    assert len(fleet._hardware._numbers) == 1
    fleet.remove_node("n")
    assert not fleet._hardware._numbers


def test_a_gpu_that_is_held_alone_is_another_state_than_one_as_full() -> None:
    fleet = Fleet()
    for node, cores in (("a", (100, 0)), ("b", (50, 50))):
        fleet.set_inventory(inventory(node, cores_percent=200))
        parts = tuple(
            ContainerGrant(f"c{percent}-{i}", ContainerKind.APP, (DeviceShare(f"{node}-0", 100, percent),))
            for i, percent in enumerate(cores)
        )
        fleet.ledger.adopt(Grant(node, "ns", node, node, parts))
    assert fleet.classes().get("a") != fleet.classes().get("b")


def test_health_and_cordons_and_links_are_part_of_the_state() -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory("a"))
    fleet.set_inventory(inventory("b", healthy=False))
    fleet.set_inventory(msgspec.structs.replace(inventory("c"), cordoned=("c-0",)))
    fleet.set_inventory(inventory("d", links=(Link("d-1", PcieLevel.SAME_CPU),)))
    assert len({fleet.classes().get(name) for name in "abcd"}) == 4


def test_links_are_equal_when_they_connect_the_same_positions() -> None:
    fleet = Fleet()
    for name in ("a", "b"):
        fleet.set_inventory(inventory(name, links=(Link(f"{name}-1", PcieLevel.SAME_CPU, 2),)))
    assert fleet.classes().get("a") == fleet.classes().get("b")


def test_a_removed_node_is_unknown_and_its_pods_stay_on_the_book() -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory("n"))
    fleet.ledger.reserve(grant("a", "n"))
    fleet.remove_node("n")
    assert (fleet.node("n"), fleet.classes().get("n"), len(fleet)) == (None, None, 0)
    assert fleet.ledger.grant("a") is not None


def test_a_node_without_some_pods_is_what_it_would_be_after_preemption() -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory("n"))
    for uid in ("a", "b"):
        fleet.ledger.reserve(grant(uid, "n"))
    assert fleet.without("n", {"a"}).devices[0].usage.memory_mib == 100
    assert fleet.node("n").devices[0].usage.memory_mib == 200
    assert fleet.without("nobody", ()) is None


def test_what_is_free_beside_gpus_is_remembered_with_and_without_inventory() -> None:
    fleet, room = Fleet(), FreeResources(1000, 2000, 3)
    fleet.set_free_resources("n", room)
    fleet.set_inventory(inventory("n"))
    assert (fleet.free_resources("n"), fleet.free_resources("unheard of")) == (room, FreeResources())
    fleet.remove_node("n")
    assert fleet.free_resources("n") == room
    fleet.forget_free_resources("n")
    assert fleet.free_resources("n") == FreeResources()


def test_every_reader_gets_each_change_once() -> None:
    fleet = Fleet()
    changes = [
        (lambda: fleet.set_inventory(inventory("a")), {"a"}),
        (lambda: fleet.ledger.reserve(grant("p", "a")), {"a"}),
        (lambda: fleet.ledger.adopt(grant("q", "without inventory")), set()),
        (lambda: fleet.ledger.release("p"), {"a"}),
        (lambda: fleet.set_free_resources("without inventory", FreeResources(1000)), set()),
        (lambda: fleet.set_free_resources("a", FreeResources(1000)), {"a"}),
        (lambda: fleet.set_free_resources("a", FreeResources(1000)), set()),
        (lambda: fleet.put_pod("a", KubeletPod("r", ())), {"a"}),
        (lambda: fleet.forget_free_resources("a"), {"a"}),
        (lambda: fleet.forget_free_resources("a"), set()),
    ]
    one, other, late = Reader(fleet), Reader(fleet), Reader(fleet)
    for change, told in changes:
        change()
        for reader in (one, other):
            assert reader.changed() == told
            assert reader.changed() == set()
    assert late.changed() == {"a"}
    for is_news in (True, False):
        fleet.remove_node("a")
        changes = one.changes()
        assert (changes.names, changes.has_removed_nodes) == ([], is_news)


def test_a_change_that_was_read_once_is_still_reported() -> None:
    fleet = Fleet()
    fleet.set_inventory(inventory("a"))
    reader = Reader(fleet)
    fleet.ledger.reserve(grant("p", "a"))
    assert fleet.node("a").devices[0].usage.memory_mib == 100
    assert reader.changed() == {"a"}


def test_of_nodes_that_are_gone_nothing_is_kept() -> None:
    fleet = Fleet()
    for number in range(3):
        fleet.set_inventory(inventory(f"n{number}"))
        fleet.ledger.reserve(grant(f"p{number}", f"n{number}"))
        fleet.ledger.release(f"p{number}")
        fleet.remove_node(f"n{number}")
        fleet.ledger.adopt(grant(f"q{number}", f"n{number}"))
    assert fleet.changes_since(0).names == []
