"""What pods hold is what the ledger says that they hold."""

import random

import pytest

from purser.core.ledger import pod_usage
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant, GrantState, MigPlacement
from purser.core.state import state_grant
from purser.top.holding import cores_percent, gpu_indices, gpu_uuids, holder_lines, memory_mib
from purser.top.view_names import TopView
from purser.top.views import table_of

from .states import NOW, cluster, grant, node

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def part(name, kind, *shares):
    return ContainerGrant(name, kind, tuple(DeviceShare(*each) for each in shares))


def pod(*parts):
    return Grant("uid", "default", "p", "n", parts)


def of_state(made):
    return state_grant(made, GrantState.RUNNING, None)


def test_an_init_container_and_the_app_after_it_hold_the_same_gpu_once():
    made = of_state(pod(part("init", INIT, ("GPU-0", 10240, 30)), part("main", APP, ("GPU-0", 10240, 30))))
    table = table_of(TopView.PODS, cluster((node("n"),), (made,)), NOW)
    row = dict(zip(table.heads, table.rows[0].cells, strict=True))
    assert (row["MEMORY MiB"], row["CORES %"], row["GPU INDEX"]) == ("10240", "30", "gone")
    assert holder_lines(cluster((), (made,)), "n") == ["default/p  GPU gone: 10240 MiB, 30% of compute"]


def test_what_runs_together_is_added_and_gpus_stay_the_pods_to_its_end():
    together = pod(
        part("beside", SIDECAR, ("GPU-0", 1000, 10)),
        part("init", INIT, ("GPU-0", 500, 0), ("GPU-1", 4000, 0)),
        part("main", APP, ("GPU-0", 2000, 20)),
    )
    assert (memory_mib(of_state(together)), cores_percent(of_state(together))) == (7000, 30)


@pytest.mark.parametrize("seed", range(20))
def test_memory_and_cores_are_those_of_the_ledger(seed):
    dice = random.Random(seed)
    kinds = [*dice.choices((INIT, SIDECAR), k=dice.randrange(4)), *[APP] * dice.randrange(1, 3)]
    made = pod(
        *(
            part(
                f"c{place}",
                kind,
                *((f"GPU-{gpu}", dice.randrange(9), dice.randrange(9)) for gpu in dice.sample(range(3), 2)),
            )
            for place, kind in enumerate(kinds)
        )
    )
    held = pod_usage(made).values()
    told = of_state(made)
    assert memory_mib(told) == sum(each.memory_mib for each in held)
    assert cores_percent(told) == sum(each.cores_percent for each in held)


def test_the_holders_of_a_node_and_of_a_gpu_are_named():
    state = cluster((node("n"),), (grant("a"), grant("b", "other"), grant("c", memory=7)))
    assert holder_lines(state, "n") == ["default/a  GPU 0: 100 MiB", "default/c  GPU 0: 7 MiB"]
    assert holder_lines(state, "n", "GPU-0") == holder_lines(state, "n")
    assert holder_lines(state, "n", "GPU-1") == ["No pod holds any part of the GPU."]


def test_gpu_instances_of_one_gpu_are_named_apart():
    two = [MigPlacement("1g.5gb", place) for place in (3, 4)]
    shares = tuple(DeviceShare("GPU-0", 4864, 0, mig=each) for each in two)
    made = of_state(pod(ContainerGrant("init", INIT, shares[:1]), ContainerGrant("main", APP, shares)))
    assert (gpu_indices(made), gpu_uuids(made)) == ("gone (1g.5gb at 3),gone (1g.5gb at 4)", "GPU-0")
    assert holder_lines(cluster((), (made,)), "n") == [
        "default/p  GPU gone (1g.5gb at 3): 4864 MiB; GPU gone (1g.5gb at 4): 4864 MiB"
    ]
