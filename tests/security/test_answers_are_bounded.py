"""What kube-scheduler is answered grows with the nodes, not with what the author of a pod or the agent of a node wrote:
each node's refusal says it once or twice."""

import msgspec

from purser.core.dialects import selectors
from purser.core.grant.disputes import NodeDisputes, RefusedPod, text_of
from purser.core.model import Device
from purser.core.names import DISPUTES_ANNOTATION
from purser.kube.resources import NODES
from tests.unit.scheduler.extender_world import eventually, replica, server

NODES_ASKED = [f"n{number}" for number in range(8)]
MOST_BYTES_PER_NODE = 3000
TEXT = "x" * 200_000


async def answer_bytes(world, pod):
    answer = await world.filter(pod, *NODES_ASKED)
    assert not answer.node_names
    assert set(answer.failed_nodes) == set(NODES_ASKED)
    return len(msgspec.json.encode(answer))


async def test_a_pod_that_names_a_thousand_models_is_refused_in_few_words():
    names = ",".join(f"{number:04}{'x' * 100}" for number in range(1000))
    async with server() as api, replica(api) as world:
        for node in NODES_ASKED:
            await world.add_node(node)
        for number, annotation in enumerate((selectors.USE_GPUTYPE, selectors.NOUSE_GPUTYPE)):
            wanted = names + ",A100" if annotation == selectors.NOUSE_GPUTYPE else names
            pod = await world.add_pod(f"p{number}", annotations={annotation: wanted})
            answer = await world.filter(pod, *NODES_ASKED)
            assert "and 996 more" in answer.failed_nodes["n0"] or "and 997 more" in answer.failed_nodes["n0"]
            assert "A100" in answer.failed_nodes["n0"]  # what is there
            assert await answer_bytes(world, pod) < MOST_BYTES_PER_NODE * len(NODES_ASKED)


async def test_a_pod_of_which_hundreds_of_containers_make_no_sense_is_refused_in_few_words():
    async with server() as api, replica(api) as world:
        for node in NODES_ASKED:
            await world.add_node(node)
        pod = await world.add_pod("p")
        container = pod.spec.containers[0]
        odd = msgspec.structs.replace(
            container, resources=msgspec.structs.replace(container.resources, limits={"nvidia.com/gpumem": "16Gi"})
        )
        containers = tuple(msgspec.structs.replace(odd, name=f"{'c' * 50}-{number}") for number in range(512))
        pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))
        assert await answer_bytes(world, pod) < MOST_BYTES_PER_NODE * len(NODES_ASKED)


async def test_what_one_nodes_agent_writes_is_repeated_to_all_nodes_in_few_words():
    ill = Device("n0-0", 0, "a" + TEXT[:100_000], 8000, healthy=False, unhealthy_reason=TEXT[:100_000])
    async with server() as api, replica(api) as world:
        for node in NODES_ASKED:
            await world.add_node(node, **({"devices": (ill,)} if node == "n0" else {}))
        pods = await world.add_pod("large", 9000), await world.add_pod("h", annotations={selectors.USE_GPUTYPE: "H100"})
        for pod in pods:
            assert await answer_bytes(world, pod) < MOST_BYTES_PER_NODE * len(NODES_ASKED)
        refused = RefusedPod("default", "x" * 10_000, "uid", "DeviceOvercommitted", ("n1-0",))
        told = text_of(NodeDisputes("n1", refused=(refused,)))
        await world.client.patch_merge(NODES, "n1", {"metadata": {"annotations": {DISPUTES_ANNOTATION: told}}})
        await eventually(lambda: world.cache.disputes.closed("n1"))
        assert await answer_bytes(world, pods[0]) < MOST_BYTES_PER_NODE * len(NODES_ASKED)
