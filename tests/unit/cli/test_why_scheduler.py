"""`purser why --scheduler`, asked of the read API of a scheduler, with the lab's API server behind it."""

import json
from contextlib import asynccontextmanager

import pytest
import yaml
from tests.unit.cli.asked_scheduler import asked_scheduler
from tests.unit.cli.typed import beside
from tests.unit.scheduler.extender_world import eventually

from purser.core.names import CORDONED_GPUS_ANNOTATION
from purser.core.state import WhySuggestion
from purser.kube.resources import NODES, PODS
from purser.scheduler.read_api import why as why_documents


@asynccontextmanager
async def asked(folder, *, places_pods=True):
    """A replica, and what the command prints of a pod."""
    async with asked_scheduler(folder, places_pods=places_pods) as scheduler:

        async def why(name, *words):
            scheduler.world.clock.ahead_s += 60  # nothing from before is new
            return await beside("why", name, *scheduler.options, *words)

        yield scheduler.world, why


async def test_a_pod_that_waits_has_its_reasons_and_the_changes_that_were_tried(tmp_path):
    async with asked(tmp_path) as (world, why):
        for name in ("n1", "n2"):
            await world.add_node(name)
        await world.add_pod("waits", 9000)
        code, out, err = await why("waits")
        assert (code, err) == (0, "")
        lines = [" ".join(line.split()) for line in out.splitlines()]
        assert lines == [
            "default/waits waits: it fits on none of 2 nodes",
            "",
            "NODES GPUS REASON OF WHAT",
            "2 2 CardInsufficientMemory Purser 2 GPUs on 2 nodes are too small for 9000 MiB (largest: 8000 MiB)",
            "",
            "This change makes the pod fit now, and is the smallest of its kind. It was tried with the scheduler's own "
            "code:",
            "- container c requests nvidia.com/gpumem: 8000 instead of 9000: the pod then fits on n1, n2",
            "",
            "To try other changes, such as labels, tolerations, quotas and pods that end, run purser why with a "
            "kubeconfig.",
        ]
        code, out, err = await why("waits", "-o", "json")
        found = json.loads(out)
        assert (found["state"], found["nodes"], len(found["suggestions"])) == ("waiting", 2, 1)
        for name in ("n1", "n2"):
            closed = {"metadata": {"annotations": {CORDONED_GPUS_ANNOTATION: f"{name}-0"}}}
            await world.client.patch_merge(NODES, name, closed)
            await eventually(lambda name=name: world.cache.fleet.node(name).devices[0].cordoned)
        code, out, err = await why("waits")
        assert "None of the changes that the scheduler tries makes the pod fit now.\n" in out


async def test_pods_that_are_elsewhere_or_not_refused(tmp_path):
    async with asked(tmp_path) as (world, why):
        await world.add_node("n1")
        await world.add_pod("new", 100)
        assert await why("new") == (
            0,
            "default/new waits, but Purser does not reject it: 1 of 1 node could take it now\n",
            "",
        )
        said = {"type": "PodScheduled", "status": "False", "message": "the group is not ready"}
        for name, scheduler in (("theirs", "volcano"), ("ours", "purser-scheduler")):
            await world.add_pod(name, 100, spec={"schedulerName": scheduler})
            await world.client.patch_merge(
                PODS, name, {"status": {"conditions": [said]}}, "default", subresource="status"
            )
        code, out, _ = await why("theirs")
        assert out.splitlines()[0].startswith('default/theirs waits: the pod is for scheduler "volcano"')
        assert out.splitlines()[1:] == ["Last message from scheduler volcano: the group is not ready"]
        code, out, _ = await why("ours")
        assert out.splitlines()[1:] == ["Last message from scheduler purser-scheduler: the group is not ready"]
        held = await world.add_pod("held", 100)
        assert await world.bind(held, "n1") == ""
        code, out, _ = await why("held")
        assert out.splitlines()[0].startswith("default/held is on node n1 (")
        assert out.splitlines()[1:] == ["Container c holds 100 MiB of GPU 0."]
        for output, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            found = read((await why("held", "-o", output))[1])
            assert (found["state"], found["node"]) == ("placed", "n1")
            [container] = found["grant"]["containers"]
            assert [share["memory_mib"] for share in container["shares"]] == [100]
        await world.add_pod("odd", spec={"nodeName": "n1"})
        found = json.loads((await why("odd", "-o", "json"))[1])
        assert (found["state"], found["grant"]) == ("placed", None), "it holds nothing by Purser"
        ended = {"status": {"phase": "Failed", "reason": "Evicted", "message": "too much memory"}}
        await world.client.patch_merge(PODS, "held", ended, "default", subresource="status")
        assert await why("held") == (0, "default/held has ended: Evicted: too much memory\n", "")
        code, _, err = await why("unknown")
        assert (code, "the scheduler does not know pod default/unknown" in err) == (1, True)


async def test_a_change_of_a_kind_that_only_newer_schedulers_know_is_printed(tmp_path, monkeypatch):
    newer = WhySuggestion("priority", "the pod has priority 5", 1)
    monkeypatch.setattr(why_documents, "_suggestion", lambda *_, **__: newer)
    async with asked(tmp_path) as (world, why):
        await world.add_node("n1")
        await world.add_pod("waits", 9000)
        code, out, err = await why("waits")
        assert (code, err) == (0, "")
        assert "- the pod has priority 5: the pod then fits on 1 node\n" in out


@pytest.mark.parametrize("output", ["table", "json"])
async def test_a_replica_that_places_no_pods_says_so(tmp_path, output):
    async with asked(tmp_path, places_pods=False) as (world, why):
        await world.add_node("n1")
        await world.add_pod("waits", 9000)
        code, out, err = await why("waits", "-o", output)
        assert (code, "all nodes with GPUs were checked" in err) == (0, True)
        assert "CardInsufficientMemory" in out
