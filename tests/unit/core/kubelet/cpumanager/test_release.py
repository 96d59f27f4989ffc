"""CPUs of containers that are gone return to the shared pool."""

import pytest
from tests.unit.core.kubelet.cpumanager.machines import machine, node

from purser.core.kubelet.cpumanager import free_all_but, remove
from purser.core.kubelet.state import CpuState

HELD = CpuState(
    default=0b1000_0001,
    reserved=1,
    exclusive={("a", "init"): 0b0000_1110, ("a", "app"): 0b0000_0110, ("b", "app"): 0b0111_0000},
)


@pytest.mark.parametrize(("version", "default"), [("v1.23.17", 0b1000_1111), ("v1.24.0", 0b1000_1001)])
def test_what_another_container_of_the_pod_holds_stays_since_1_23(version: str, default: int) -> None:
    after = remove(node(machine(), version=version), HELD, ("a", "init"))
    assert after is not None
    assert after.default == default
    assert set(after.exclusive) == {("a", "app"), ("b", "app")}


def test_removing_what_has_no_cpus_changes_nothing() -> None:
    assert remove(node(machine()), HELD, ("c", "app")) is HELD
    assert remove(node(machine()), None, ("c", "app")) is None


def test_nothing_changes_while_all_pods_are_active() -> None:
    assert free_all_but(HELD, {"a", "b", "c"}) is HELD
    assert free_all_but(None, ()) is None
