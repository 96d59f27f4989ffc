"""A node that is not ready, and a GPU that its node does not list, are seen where people look for sick GPUs."""

import msgspec
from tests.unit.top.states import cluster, gpu, grant, node

from purser.core.names import AGENT_AWAY, NO_MIG_DEVICES
from purser.core.state import StateCutGpu, StateGpuHealth
from purser.web.cards import Health
from purser.web.faults import with_faults
from purser.web.fleet import summary_of
from purser.web.tables import faulty_gpus, node_rows

from .pages import Source, served
from .test_pages import text_of

AWAY = msgspec.structs.replace(gpu(1, health=StateGpuHealth.UNHEALTHY), reason=AGENT_AWAY)
XID = msgspec.structs.replace(gpu(2, health=StateGpuHealth.UNHEALTHY), reason="Xid 79")
EMPTY = StateCutGpu("GPU-7", 7, "NVIDIA H100", 81559)


def lost(name, ready, *gpus, **more):
    return msgspec.structs.replace(node(name, *gpus), ready=ready, **more)


def test_gpus_of_a_node_that_is_not_ready_are_unhealthy_and_say_so():
    (found,) = with_faults(cluster((lost("n", "Unknown", gpu(0), AWAY, XID),))).nodes
    assert {each.health for each in found.gpus} == {StateGpuHealth.UNHEALTHY}
    silent = "the node is not ready: its kubelet does not respond"
    assert [each.reason for each in found.gpus] == [silent, silent, "Xid 79"]
    (found,) = with_faults(cluster((lost("n", "NotReady", gpu(0)),))).nodes
    assert found.gpus[0].reason == "the node is not ready: its kubelet reports a problem"


def test_a_gpu_without_mig_devices_is_there_and_one_with_them_is_not_there_twice():
    part = msgspec.structs.replace(gpu(6, uuid="MIG-a"), parent="GPU-6")
    cut = (EMPTY, msgspec.structs.replace(EMPTY, uuid="GPU-6", index=6))
    state = with_faults(cluster((lost("n", "Ready", part, cut_gpus=cut),)))
    assert [(each.uuid, each.health, each.reason) for each in state.nodes[0].gpus[1:]] == [
        ("GPU-7", StateGpuHealth.UNHEALTHY, NO_MIG_DEVICES)
    ]
    found = summary_of(state)
    assert (found.gpus, found.unhealthy) == (2, 1)


def test_where_all_is_well_the_document_is_the_same_object():
    state = cluster((lost("n", "Ready", gpu(0)), node("m", gpu(0)), lost("o", "Unknown", XID)))
    assert with_faults(state) is state


async def test_every_page_shows_it():
    state = cluster((lost("n", "Unknown", gpu(0)), lost("m", "Ready", gpu(1), cut_gpus=(EMPTY,))), (grant("holder"),))
    async with served(Source(state)) as (client, _):
        nodes = await text_of(client, "/nodes")
        assert "Node not ready" in nodes and nodes.count("1 GPU unhealthy") == 2
        assert "Not ready: takes no new pods" in await text_of(client, "/nodes/n")
        assert "its kubelet does not respond" in await text_of(client, f"/gpus/{gpu(0).uuid}")
        assert "create MIG devices" in await text_of(client, "/gpus/GPU-7")
    shown = with_faults(state)
    assert [each.health for each in faulty_gpus(shown, grant("holder"))] == [StateGpuHealth.UNHEALTHY]
    assert {row.name: row.unusable for row in node_rows(shown)} == {name: [(Health.UNHEALTHY, 1)] for name in "nm"}
