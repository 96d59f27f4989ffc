"""Pods in KAI's words count as any other: in quotas, in the decision log, and where `purser why` says what would help.

Each is written as its author does, and goes through the webhook.
"""

import io
from pathlib import Path

import pytest
from tests.unit.scheduler.explained import Raw, cluster, gpu, gpus, node, pod, quota
from tests.unit.scheduler.extender_world import replica, server
from tests.unit.scheduler.reviews import patched
from tests.unit.scheduler.webhook.test_mutation import mutate

from purser.core.decisions import Reader, Replayer
from purser.core.decisions.records import PodPlaced
from purser.core.grant.signing import read
from purser.scheduler.explaining import ChangeKind, Explainer


def admitted(**annotations: str) -> Raw:
    """The pod ``p``."""
    written = {name.replace("_", "-"): value for name, value in annotations.items()}
    body = pod("p", {}, annotations=written, schedulerName="kai-scheduler")
    response = mutate(body, adopted=("kai-scheduler",))
    assert response["allowed"], response
    found: Raw = patched(body, response)
    assert found["spec"]["schedulerName"] == "purser-scheduler"
    return found


@pytest.mark.parametrize(
    ("asked", "annotation", "written", "amount"),
    [
        ({"gpu_memory": "9000"}, "gpu-memory", "9000", "6384"),
        ({"gpu_fraction": "0.5"}, "gpu-fraction", "0.50", "0.38"),
    ],
)
def test_who_waits_hears_of_the_annotation_to_write(
    asked: dict[str, str], annotation: str, written: str, amount: str
) -> None:
    there = (node("n", gpus("n", 1)), pod("held", gpu(10000), on="n", share={"n-0": 10000}))
    found = Explainer(cluster(*there, admitted(**asked))).explain("default", "p")
    (change,) = (each for each in found.suggestions if each.kind is ChangeKind.AMOUNT)
    assert change.text == f"the pod's annotation {annotation} is {amount} instead of {written}"
    assert (change.change.annotation, change.change.amount, change.change.resource) == (annotation, amount, "")
    assert Explainer(cluster(*there, admitted(**dict.fromkeys(asked, amount)))).explain("default", "p").fits


def test_who_wants_several_gpus_hears_of_their_number() -> None:
    asked = admitted(gpu_memory="1000", gpu_fraction_num_devices="3")
    found = Explainer(cluster(node("n", gpus("n", 2)), asked)).explain("default", "p")
    texts = [each.text for each in found.suggestions if each.kind is ChangeKind.AMOUNT]
    assert texts == ["the pod's annotation gpu-fraction-num-devices is 2 instead of 3"]


@pytest.mark.parametrize(("asked", "requested"), [({"gpu_memory": "4000"}, 4000), ({"gpu_fraction": "0.25"}, 4096)])
def test_a_quota_counts_their_memory(asked: dict[str, str], requested: int) -> None:
    there = pod("held", gpu(7000), on="n", share={"n-0": 7000})
    clustered = cluster(node("n", gpus("n", 1)), there, quota(gpumem="10000"), admitted(**asked))
    (found,) = Explainer(clustered).explain("default", "p").reasons
    assert f"exceeded quota: q, requested: limits.nvidia.com/gpumem={requested}" in found.text


async def test_the_decision_log_has_them_and_replays_them(tmp_path: Path) -> None:
    asked = admitted(gpu_fraction="0.25")
    limits = asked["spec"]["containers"][0]["resources"]["limits"]
    async with server() as api, replica(api, log_folder=tmp_path) as world:
        await world.add_node("a")
        made = await world.add_pod("p", None, annotations=asked["metadata"]["annotations"], **limits)
        assert (await world.filter(made, "a")).node_names == ["a"]
        assert await world.bind(made, "a") == ""
        stored = (await world.stored(made)).metadata.annotations
    assert stored["received-resource-type"] == "Fraction"
    grant = read(stored)
    assert grant is not None
    (path,) = tmp_path.iterdir()
    found = list(Reader(io.BytesIO(path.read_bytes()).read))
    (placed,) = (each for each in found if isinstance(each, PodPlaced))
    assert set(placed.containers[0].uuids) == grant.uuids
    replayer, reader = Replayer(), Reader(io.BytesIO(path.read_bytes()).read)
    assert [each for record in reader if (each := replayer.take(reader, record)) is not None] == []
