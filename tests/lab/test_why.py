"""`purser why` on the lab: what it suggests for pods that wait is done, and they are bound."""

import json
import os
import random

import pytest

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.scenarios.actions import create, delete, event, running
from tests.scenarios.suggestions import Suggested
from tests.unit.cli.typed import beside

from .lab_cluster import LabCluster, check_invariants

pytestmark = pytest.mark.gate

PODS = int(os.environ.get("PURSER_WHY_PODS", "15"))
"""That wait. A thousand by hand."""

SEED = os.environ.get("PURSER_WHY_SEED", "1")


@pytest.mark.timeout(max(300, 20 * PODS))
async def test_each_suggestion_lets_the_pod_be_bound(tmp_path, quiet_logs):
    nodes = node_choices(["t4-4:2", "mixed-4"])
    settings = LabSettings(nodes, probe_interval_s=0.1, decision_log_folder=tmp_path)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        cluster = LabCluster(lab, "waiting")
        await cluster.set_up()
        await the_command_says_the_same(lab, cluster, tmp_path)
        suggested = Suggested(cluster, random.Random(SEED), all_filters=False)
        await suggested.play(PODS)
        print(dict(suggested.done))
        assert suggested.done["amount"]
        await check_invariants(lab)


async def the_command_says_the_same(lab, cluster, log):
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "50000"}
    # More than any GPU has, and less than each node has in all: kube-scheduler asks Purser about it.
    container = {"name": "c", "image": "busybox", "resources": {"limits": limits}}
    await create(cluster, {"metadata": {"name": "large", "namespace": "waiting"}, "spec": {"containers": [container]}})
    await event(cluster, "large", "FailedScheduling", "nodes are available")
    code, out, err = await beside("why", "large", "-n", "waiting", f"--kubeconfig={lab.kubeconfig}", "-o", "json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    kinds = [each["kind"] for each in found["suggestions"]]
    assert kinds == ["amount"]
    code, out, err = await beside("why", "large", "-n", "waiting", "--from", log, "-o", "json")
    assert (code, err) == (0, "")
    of_log = json.loads(out)
    assert told(of_log) == told(found)
    small = {**container, "resources": {"limits": {**limits, "nvidia.com/gpumem": "500"}}}
    await create(cluster, {"metadata": {"name": "small", "namespace": "waiting"}, "spec": {"containers": [small]}})
    node = (await running(cluster, ["small"]))["small"]["spec"]["nodeName"]
    placed = json.loads((await beside("why", "small", "-n", "waiting", "--from", log, "-o", "json"))[1])
    assert (placed["state"], placed["node"], placed["choice"]["own"]["node"]) == ("Placed", node, node)
    await delete(cluster, "small", "large")


def told(found):
    reasons = [(each["reason"], each["nodes"], each["gpus"], each["text"]) for each in found["reasons"]]
    return reasons, [each["change"]["amount"] for each in found["suggestions"]]
