"""GPUs that are cut on demand: the simulator places what the scheduler places, and takes it back."""

import re
from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.unit.core.placement.test_instances import ASKS, node, pod

from purser.core.fleet import Fleet
from purser.core.fleet.live import node_facts
from purser.core.model import Device, NodeInventory
from purser.core.placement import Evaluator, Placement, PolicySettings
from purser.core.placement.granted import to_grant
from purser.core.placement.ranking import best
from purser.core.placement.shape import shape_of
from purser.simulator import departures
from purser.simulator.deciding import Decider
from purser.simulator.orders import timed_order
from purser.simulator.problems import InputError
from purser.simulator.workload import Order, SimPod, SimWorkload
from purser.simulator.yamlfile import read_workload


@pytest.mark.parametrize("policy", ["purser", "best-fit"])
def test_a_list_of_pods_is_placed_as_by_the_scheduler(policy: str) -> None:
    """Also of several instances, beside GPUs that are not cut, while others end."""
    plain = Device("whole", 9, "A100-40GB", 40960, slots=10)
    mixed = node("b", "A100-40GB", "A30")
    inventories = {each.node: each for each in (node("a", "A100-40GB", "A100-40GB"), mixed, node("c", "A30"))}
    inventories["b"] = NodeInventory("b", (*mixed.devices, plain))
    fleet, names = Fleet(), sorted(inventories)
    for inventory in inventories.values():
        fleet.set_inventory(inventory)
    facts = tuple(node_facts(each) for each in sorted(fleet, key=lambda each: each.name))
    requests = [pod(f"p{which}", asked) for which, asked in enumerate(ASKS)]
    shapes = [shape for request in requests if (shape := shape_of(request))]
    assert len(shapes) == len(ASKS)
    workload = SimWorkload("", facts, tuple(SimPod(f"p{at}", shape) for at, shape in enumerate(shapes)))
    decider = Decider(workload, Order("", 1, np.arange(1), (0,) * len(facts)), policy, learns=False)
    evaluator = Evaluator(fleet, PolicySettings(policy), decider.mix)
    chance, held, refused = Random(7), {}, 0
    for number in range(150):
        if held and chance.random() < 0.4:
            uid = chance.choice(sorted(held))
            decider.release(held.pop(uid))
            fleet.ledger.release(uid)
        which = chance.randrange(len(ASKS))
        found = evaluator.evaluate(request := pod(f"p{number}", ASKS[which]), names)
        simulated = decider.place(shapes[which])
        assert (simulated is None) == (not found.fits), number
        refused += simulated is None
        if simulated is None:
            continue
        live = evaluator.place(best(found), request)
        assert isinstance(live, Placement) and live.node == decider.fleet.names[simulated.row]
        fleet.ledger.reserve(to_grant(live, request, inventories[live.node]))
        held[request.uid] = simulated
        state = fleet.node(live.node)
        assert state is not None
        masks = decider.fleet.mig_mask[: len(state.devices), simulated.row].tolist()
        assert masks == [each.mig_mask if each.device.mig_kind else -1 for each in state.devices]
    assert refused > 10
    for placed in held.values():
        decider.release(placed)
    assert (decider.fleet.mig_mask <= 0).all()


FILE = """
nodes:
  - {name: cut, gpus: 1, model: A100, mig: A100-40GB}
pods:
  - {name: a, count: 3, gpus: 2, mig: 2g.10gb, arrives: 0, every: 1, lasts: 10}
  - {name: b, gpus: 1, gpu_milli: 201, arrives: 3, lasts: 10}
"""


def test_pods_by_profile_wait_until_instances_end(tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "w.yaml").write_text(FILE)
    workload = read_workload(tmp_path / "w.yaml")
    assert [each.shape.gpu_memory_percent for each in workload.pods] == [100, 100, 100, 21]
    found = departures.run(workload, timed_order(workload, 1), "purser", False, lambda events: None)
    assert found.placed.tolist() == [True, True, False, True]
    assert found.waited_s.tolist() == [0, 9, 11, 0]  # time ends as if no pod waited
    assert found.unplaced == {"mig-2g.10gb": 1}
    assert found.moments.allocated.max() == 710  # of which the GPU instance of b is more


@pytest.mark.parametrize(
    ("nodes", "pods", "said"),
    [
        (
            "{name: n, gpus: 1, model: A, mig: A100}",
            "{name: p}",
            "invalid value 'A100' for mig: must be one of A30, A100-40GB",
        ),
        (
            "{name: n, gpus: 1, model: A}",
            "{name: p, mig: 1g.5gb}",
            "the nodes offer no profiles, because no node has GPUs",
        ),
        ("{name: n, gpus: 1, model: A, mig: A30}", "{name: p, mig: 1g.5gb}", "the nodes offer 1g.6gb, 1g.6gb+me, 2g"),
        ("{name: n, gpus: 1, model: A, mig: A30}", "{name: p, gpus: 1, mig: 1g.6gb, gpu_milli: 5}", "a fixed size"),
    ],
)
def test_a_malformed_entry_is_reported_at_its_place(tmp_path, nodes: str, pods: str, said: str) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "w.yaml").write_text(f"nodes:\n  - {nodes}\npods:\n  - {pods}\n")
    with pytest.raises(InputError, match=re.escape(said)):
        read_workload(tmp_path / "w.yaml")


def test_the_example_says_what_it_shows() -> None:
    example = read_workload(Path(__file__).parents[3] / "examples" / "traces" / "mig.yaml")
    assert example.has_times and example.notes
