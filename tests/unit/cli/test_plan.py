"""`purser plan free` against an API server."""

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.adapters.small_cluster import small_cluster
from tests.unit.cli.typed import apart, beside, here
from tests.unit.kube.servers import api_server
from typer.testing import CliRunner

from purser.cli import plugin
from purser.cli.output import FAILED, MISUSED
from purser.core.grant.signing import sign
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceShare, Grant, NodeInventory
from purser.core.names import INVENTORY_ANNOTATION
from purser.kube.resources import NODES, PODS, untyped_resource

pytestmark = pytest.mark.processes

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")


async def test_a_plan_is_printed_and_what_stays_is_named(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"

    async def free(*words):
        return await beside("plan", "free", f"--kubeconfig={kubeconfig}", *words)

    async with api_server(kubeconfig) as (_, client):
        assert (await free("--gpus", "1"))[0] == FAILED
        for name, gpus in (("n1", 2), ("n2", 1)):
            devices = tuple(Device(f"{name}-{i}", i, "T4", 1000, slots=4) for i in range(gpus))
            inventory = msgspec.json.encode(NodeInventory(name, devices)).decode()
            metadata = {"name": name, "annotations": {INVENTORY_ANNOTATION: inventory}}
            await client.create(NODES, {"metadata": metadata, "status": {"allocatable": {"cpu": "4"}}})
        limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "600"}
        spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": limits}}]}
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "controller": True}
        template = {"metadata": {"labels": {"app": "o"}}, "spec": spec}
        asked = {"replicas": 1, "selector": {"matchLabels": {"app": "o"}}, "template": template}
        body = {"metadata": {"name": "o", "namespace": "default"}, "spec": asked}
        owner["uid"] = (await client.create(REPLICA_SETS, body)).get("metadata", {}).get("uid")
        metadata = {"name": "p", "namespace": "default", "ownerReferences": [owner]}
        pod = await client.create(PODS, {"metadata": metadata, "spec": spec})
        part = ContainerGrant("c", ContainerKind.APP, (DeviceShare("n1-1", 600, 0),))
        grant = Grant(pod.metadata.uid, "default", "p", "n1", (part,))
        await client.bind("default", "p", grant.pod_uid, "n1", sign(grant, Ed25519PrivateKey.generate()))
        assert await free("--gpus", "1") == (0, "Free now: GPU 0 on node n1\n", "")
        code, out, err = await free("--gpus", "2")
        assert (code, err, [line.split() for line in out.splitlines()[:2]]) == (
            0,
            "",
            [
                ["STEP", "POD", "NODE", "GPUS", "THEN", "TO", "GPUS", "COST"],
                ["1", "default/p", "n1", "1", "to", "node", "n2", "0", "1"],
            ],
        )
        assert out.endswith("Then free: GPUs 0, 1 on node n1\nCost: 1; no plan costs less than 1\n")
        found = json.loads((await free("--gpus", "2", "-o", "json"))[1])
        assert (found["cost"], found["least_cost"], found["is_cheapest"]) == (1, 1, True)
        assert [(step["uid"], step["to"]) for step in found["steps"]] == [(grant.pod_uid, "n2")]
        words = ["plan", "free", f"--kubeconfig={kubeconfig}", "--gpus=2", "-o", "json"]
        of_kubectl = await asyncio.to_thread(CliRunner().invoke, plugin, words)
        assert (of_kubectl.exit_code, json.loads(of_kubectl.stdout)) == (0, found)
        code, out, err = await free("--gpus", "2", "--max-priority=-1")
        assert (code, out) == (FAILED, "") and "default/p has priority 0" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gpus=9"], "no schedulable node has 9 usable GPUs (most: 2 on node n1): GPUs that are "),
        (
            ["--gpus=2", "--nodes=2"],
            "only 1 of 3 schedulable nodes has at least 2 usable GPUs, but you asked for 2 nodes: GPUs that are ",
        ),
        (
            ["--gpus=1", "--nodes=4"],
            "3 of 3 schedulable nodes have at least 1 usable GPU, but you asked for 4 nodes: GPUs that are ",
        ),
        (["--gpus=1", "--nodes=3"], "without evicting pods that must stay: default/p has priority 0"),
    ],
)
async def test_room_that_there_is_not_is_not_blamed_on_pods_that_stay(tmp_path, words, says):
    async with small_cluster(tmp_path) as cluster:
        await cluster.pod("p", "n2")
        kubeconfig = f"--kubeconfig={tmp_path}/kubeconfig"
        code, out, err = await beside("plan", "free", kubeconfig, "--max-priority=-1", *words)
        assert (code, out) == (FAILED, "") and says in err
        assert ("default/p" in err) == ("default/p" in says)


@pytest.mark.parametrize("words", [["--yes"], ["--apply"], ["--apply", "--step-timeout=0", "--yes"]])
def test_pods_are_evicted_only_where_somebody_says_yes(words):
    code, out, _ = here("plan", "free", "--gpus", "1", "--kubeconfig=/nowhere", *words)
    assert (code, out) == (MISUSED, "")


@pytest.mark.gate
async def test_a_plan_is_carried_out_or_says_why_it_stopped(tmp_path):
    async with small_cluster(tmp_path) as cluster:
        await cluster.pod("p", "n1")
        words = ("plan", "free", "--gpus=2", "--apply", "--yes", f"--kubeconfig={tmp_path}/kubeconfig")
        running = asyncio.create_task(apart(*words))
        await cluster.is_asked_to_leave("p")
        await cluster.end("p")
        await cluster.pod("q", "n2")
        code, out, err = await running
        assert (code, err) == (0, "")
        assert out.splitlines()[-3:] == [
            "Node n1: the GPUs stay cordoned until the plan is finished."
            " If purser is killed, run: purser uncordon gpu n1 n1-0 n1-1",
            "1/1: default/p evicted; default/q runs on node n2",
            "The GPUs are free and open to new pods again",
        ]
        assert (await apart(*words))[:2] == (0, "Free now: GPUs 0, 1 on node n1\n")
        await cluster.pod("r", "n1")
        code, out, err = await apart(*words, "--step-timeout=1", "-o", "json")
        assert (code, [step["pod"] for step in json.loads(out)["steps"]]) == (FAILED, ["default/r"])
        assert err.splitlines()[-1] == (
            "purser: stopped: after 1 s, pod default/r is still terminating."
            " Of 1 step: default/r is being evicted, but the eviction is not complete"
        )


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.gate), signal.SIGKILL])
async def test_cordons_are_taken_back_by_the_plan_or_by_the_command_that_it_said(tmp_path, number):
    async with small_cluster(tmp_path) as cluster:
        await cluster.pod("p", "n1")
        words = ("plan", "free", "--gpus=2", "--apply", "--yes", f"--kubeconfig={tmp_path}/kubeconfig")
        purser = Path(sys.executable).with_name("purser")
        process = await asyncio.create_subprocess_exec(purser, *words, stdout=PIPE, stderr=PIPE)
        await cluster.is_asked_to_leave("p")
        process.send_signal(number)
        out, err = map(bytes.decode, await process.communicate())
        if number is signal.SIGINT:
            assert process.returncode == FAILED
            assert (
                err == "purser: interrupted. Of 1 step: default/p is being evicted, but the eviction is not complete\n"
            )
        else:
            assert await cluster.cordoned() == "n1-0,n1-1"
            _, _, command = out.splitlines()[-1].partition("If purser is killed, run: purser ")
            code, _, err = await beside(*command.split(), f"--kubeconfig={tmp_path}/kubeconfig")
            assert (code, err) == (0, "")
        assert await cluster.cordoned() == ""
