"""The real kube-controller-manager and kube-scheduler at work on the embedded server: the hardest clients there are.

They speak protobuf, run informers on everything, lead by leases, and stop at the first thing they do not understand.
"""

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from purser.lab.apiserver import ApiServer
from tests.cluster.kubernetes.binaries import Binaries

from .client import STRATEGIC, Api, until
from .conftest import REAL, connected
from .objects import deployment

FOLDER = Binaries.chosen().folders[0]
PROGRAMS = ("kube-scheduler", "kube-controller-manager")
pytestmark = [
    pytest.mark.processes,
    pytest.mark.cluster,
    pytest.mark.gate,
    pytest.mark.skipif(not all((FOLDER / name).exists() for name in PROGRAMS), reason="needs the real components"),
]


@contextlib.asynccontextmanager
async def running(name: str, kubeconfig: Path, log: Path) -> AsyncIterator[None]:
    program = str(FOLDER / name)
    described = await asyncio.to_thread(subprocess.run, [program, "--help"], capture_output=True, text=True)
    insecure = ["--port=0"] if "--port " in described.stdout else []  # gone since 1.24
    flags = [f"--kubeconfig={kubeconfig}", "--secure-port=0", "--leader-elect=true", *insecure]
    if name == "kube-controller-manager":
        # Gone since 1.37, which refuses the names.
        cloud = ",-cloud-node-lifecycle,-service,-route" if "cloud-node-lifecycle" in described.stdout else ""
        flags.append(f"--controllers=*,-nodeipam,-nodelifecycle{cloud}")
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(program, *flags, stdout=output, stderr=output)
        try:
            yield
        finally:
            process.terminate()
            await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server() -> AsyncIterator[ApiServer]:
    """One for these tests alone: the components take up whatever is there."""
    if REAL:
        pytest.skip("a real cluster has the components already")
    async with ApiServer(history=2000, bookmark_seconds=0.2) as embedded:
        yield embedded


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def api(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    """With the components, and nodes of one GPU and of two."""
    folder = tmp_path_factory.mktemp("components")
    async with contextlib.AsyncExitStack() as stack:
        api = await stack.enter_async_context(connected(server, folder))
        for name in PROGRAMS:
            await stack.enter_async_context(running(name, api.kubeconfig, folder / f"{name}.log"))
        await node(api, "small", 1)
        await node(api, "big", 2)
        yield api


async def node(api: Api, name: str, gpus: int) -> None:
    resources = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    status = {"capacity": resources, "conditions": [{"type": "Ready", "status": "True"}]}
    (await api.post("/api/v1/nodes", {"metadata": {"name": name}, "status": status})).ok()


async def pods_of(api: Api, ns: str) -> list[dict[str, Any]]:
    return (await api.get(f"{ns}/pods")).ok().body["items"]  # type: ignore[no-any-return]


async def test_a_deployment_is_rolled_out_scheduled_and_taken_down(api: Api, ns: str) -> None:
    body = deployment("d", replicas=3)
    body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments"
    (await api.post(path, body)).ok()

    async def scheduled() -> Any:
        found = await pods_of(api, ns)
        return len(found) == 3 and all("nodeName" in pod["spec"] for pod in found) and found

    found = await until("three pods are bound", scheduled)
    assert sorted(pod["spec"]["nodeName"] for pod in found) == ["big", "big", "small"]

    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    for pod in found:
        (await api.patch(f"{ns}/pods/{pod['metadata']['name']}/status", {"status": ready}, STRATEGIC)).ok()

    async def available() -> bool:
        return (await api.get(f"{path}/d")).body["status"].get("availableReplicas") == 3

    await until("the deployment is available", available)
    reasons = {event["reason"] for event in (await api.get(f"{ns}/events")).body["items"]}
    assert {"Scheduled", "SuccessfulCreate", "ScalingReplicaSet"} <= reasons

    (await api.delete(f"{path}/d", propagationPolicy="Background")).ok()

    async def ended() -> bool:
        for pod in await pods_of(api, ns):
            if "deletionTimestamp" in pod["metadata"]:
                await api.delete(f"{ns}/pods/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})
        return not await pods_of(api, ns)

    await until("the pods are gone", ended)


async def test_a_pod_that_fits_nowhere_gets_the_reason(api: Api, ns: str) -> None:
    limits = {"limits": {"nvidia.com/gpu": "4"}}
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x", "resources": limits}]}}
    (await api.post(f"{ns}/pods", body)).ok()

    async def refused() -> Any:
        conditions = (await api.get(f"{ns}/pods/a")).body["status"].get("conditions", ())
        told = (each for each in conditions if "Insufficient nvidia.com/gpu" in each.get("message", ""))
        return next(told, None)

    condition = await until("the scheduler has seen the node and tried", refused)
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
