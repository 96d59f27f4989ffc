"""Sums over a fleet are what the ledger counts, GPU by GPU."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.scheduler.extender_world import a_grant

from purser.core.fleet import Fleet
from purser.core.fleet.totals import OTHERS, GpuUse, Totals, fewer_namespaces, gpu_use
from purser.core.ledger import UNUSED, LedgerError
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory

MODELS = ("T4", "A100")


def fleet_of(nodes: list[tuple[int, int]]) -> Fleet:
    """Of each node how many GPUs of each model; every third one is unhealthy, every fifth cordoned."""
    fleet = Fleet()
    for number, counts in enumerate(nodes):
        name = f"n{number}"
        models = [model for model, count in zip(MODELS, counts, strict=True) for _ in range(count)]
        devices = tuple(
            Device(f"{name}-{place}", place, model, 1000, slots=2, healthy=place % 3 != 2)
            for place, model in enumerate(models)
        )
        cordoned = tuple(device.uuid for device in devices[4::5])
        fleet.set_inventory(NodeInventory(name, devices, cordoned=cordoned))
    return fleet


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.sampled_from([300, 1000]), st.sampled_from("ab"))),
)
def test_each_gpu_is_in_one_state_and_each_amount_in_one_sum(
    nodes: list[tuple[int, int]], wanted: list[tuple[int, int, int, str]]
) -> None:
    fleet = fleet_of(nodes)
    for number, (node, place, memory, namespace) in enumerate(wanted):
        part = ContainerGrant("c", ContainerKind.APP, (DeviceShare(f"n{node}-{place}", memory, memory // 10),))
        try:
            fleet.ledger.reserve(Grant(f"uid-{number}", namespace, "p", f"n{node}", (part,)))
        except LedgerError:
            continue
    totals = Totals()
    for each in fleet:
        totals.add_node(each)
    for grant in fleet.ledger.grants():
        totals.add_pod(grant.namespace, fleet.ledger.held(grant.pod_uid))
    states = [(node, state) for node in fleet for state in node.devices]
    assert sum(totals.gpus.values()) == len(states)
    assert totals.gpus == Counter((state.device.model, gpu_use(state)) for _, state in states)
    assert sum(totals.memory_mib.values()) == 1000 * len(states)
    for model in MODELS:
        used = [state.usage for _, state in states if state.device.model == model]
        of_model = {key: amount for key, amount in totals.granted_memory_mib.items() if key[1] == model}
        assert sum(of_model.values()) == sum(usage.memory_mib for usage in used)
        cores = sum(amount for key, amount in totals.granted_cores_percent.items() if key[1] == model)
        assert cores == sum(usage.cores_percent for usage in used)
    for _, state in states:
        word = gpu_use(state)
        assert (word is GpuUse.IDLE) == (state.closed == 0 and state.usage == UNUSED)


def test_a_grant_on_a_gpu_that_is_gone_is_of_no_model() -> None:
    totals = Totals()
    fleet = fleet_of([(1, 0)])
    fleet.ledger.adopt(a_grant("u", "n0", "gone"))
    for grant in fleet.ledger.grants():
        totals.add_pod(grant.namespace, fleet.ledger.held(grant.pod_uid))
    assert dict(totals.granted_memory_mib) == {("default", ""): 1000}


def test_namespaces_beyond_the_bound_are_one() -> None:
    amounts = Counter({("a", "T4"): 1, ("b", "T4"): 2, ("c", "A100"): 3, ("d", "T4"): 4})
    assert fewer_namespaces(amounts, ["d"]) == {("d", "T4"): 4, (OTHERS, "T4"): 3, (OTHERS, "A100"): 3}
