"""A whole cluster around the operator: the lab's API server and controllers, and kubelets that run nothing."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from tests.unit.operator.embedded import IMAGE, NAMESPACE, Embedded, create_node, embedded, eventually, node

from purser.kube import Client, Informer, KubeError
from purser.kube.clock import SystemClock, timestamp
from purser.kube.resources import PODS
from purser.lab.controllers.manager import run_controllers, run_scheduler
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy import CLUSTER_POLICIES, crd
from purser.operator.running import run
from purser.operator.settings import LeaseSettings, OperatorSettings

OFF = {"enabled": False}
SMALL = {"dcgmExporter": OFF, "gfd": OFF, "migManager": OFF, "dcgm": OFF}
"""Four operands are as good as nine for much, and half the writes."""
POLICY: dict[str, Any] = {"metadata": {"name": "policy"}, "spec": {}}
_touches = itertools.count()


class Kubelets:
    """Report pods that are bound as ready, but those of the operands in ``failing``; end pods that were asked to go."""

    def __init__(self, client: Client) -> None:
        self.failing: set[tuple[str, str]] = set()
        """(node, operand)"""
        self.dead: set[str] = set()
        """Nodes whose kubelet does nothing any more."""
        self._client = client
        self._pods = Informer(client, PODS.raw())
        self._changed = asyncio.Event()
        self._pods.add_handler(self._note, lambda _, new: self._note(new), self._note)

    def _note(self, _: Any) -> None:
        self._changed.set()

    def fail(self, node: str, operand: str) -> None:
        self.failing.add((node, operand))
        self._changed.set()

    def heal(self) -> None:
        self.failing.clear()
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                for pod in list(self._pods.store.values()):
                    try:
                        await self._look_after(pod)
                    except KubeError:
                        self._changed.set()
                        await asyncio.sleep(0.01)

    async def _look_after(self, pod: dict[str, Any]) -> None:
        if pod["spec"].get("nodeName") in self.dead:
            return
        metadata, status = pod["metadata"], pod.get("status") or {}
        where = (metadata["name"], metadata["namespace"])
        if metadata.get("deletionTimestamp"):
            await self._client.delete(PODS, *where, uid=metadata["uid"], grace_period_seconds=0)
        elif pod["spec"].get("nodeName"):
            wanted = self._status(pod)
            shown = {key: status.get(key) for key in wanted}
            if _words(shown) != _words(wanted):
                await self._client.patch_merge(PODS, where[0], {"status": wanted}, where[1], subresource="status")

    def _status(self, pod: dict[str, Any]) -> dict[str, Any]:
        operand = pod["metadata"].get("labels", {}).get("purser.dev/operand", "")
        fails = (pod["spec"]["nodeName"], operand) in self.failing
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
        condition = {"type": "Ready", "status": "False" if fails else "True"}
        condition["lastTransitionTime"] = timestamp(SystemClock().now())
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "ready": not fails,
            "restartCount": 5 if fails else 0,
        }
        container |= {"image": "", "imageID": "", "state": waiting if fails else {"running": {}}}
        return {"phase": "Running", "conditions": [condition], "containerStatuses": [container]}


def _words(status: dict[str, Any]) -> list[Any]:
    conditions = status.get("conditions") or []
    return [status.get("phase"), [each["status"] for each in conditions if each["type"] == "Ready"]]


class Stack:
    """What a test asks of it."""

    def __init__(self, cluster: Embedded, kubelets: Kubelets) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.kubelets = kubelets

    def settings(self, identity: str = "operator", namespace: str = NAMESPACE) -> OperatorSettings:
        """With one identity, so that a process that is restarted has the lease of the one that was killed."""
        return OperatorSettings(
            purser_image=IMAGE,
            namespace=namespace,
            identity=identity,
            metrics_address="127.0.0.1",
            metrics_port=0,
            rounds_apart_s=0.02,
            lease=LeaseSettings(30.0, 20.0, 0.05),
        )

    @asynccontextmanager
    async def operator(self, identity: str = "operator", namespace: str = NAMESPACE) -> AsyncIterator[int]:
        """A process in this loop; gives its port of metrics."""
        stop, port = asyncio.Event(), asyncio.get_running_loop().create_future()
        task = asyncio.create_task(run(self.settings(identity, namespace), self.cluster.config, stop, port.set_result))
        try:
            await asyncio.wait({task, port}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            yield port.result()
        finally:
            stop.set()
            await task

    async def policy(self, name: str = "policy") -> dict[str, Any]:
        return await self.client.get(CLUSTER_POLICIES, name)

    async def condition(self, kind: str, name: str = "policy") -> dict[str, Any]:
        return _condition(await self.policy(name), kind)

    async def is_ready(self) -> bool:
        policy = await self.policy()
        status = policy.get("status") or {}
        current = status.get("observedGeneration") == policy["metadata"]["generation"]
        progressing = _condition(policy, "Progressing").get("status") == "True"
        return current and status.get("state") == "ready" and not progressing

    async def ready(self) -> None:
        await eventually(self.is_ready, every_s=0.06)

    async def settled(self, port: int) -> None:
        """Until the policy is ready, and then at rest."""
        await self.ready()
        await self.at_rest(port)

    async def round(self, port: int) -> None:
        """Have an operator, with its metrics on this port, make a round for a change that is none to it."""
        [first, *_] = (await self.client.list(CLUSTER_POLICIES)).items
        await make_round(self.client, port, first["metadata"]["name"])

    async def at_rest(self, port: int) -> None:
        """Until two rounds in a row wrote nothing: the second began after the change that brought the first."""
        rounds = 0
        for _ in range(200):
            count = len(self.cluster.writes)
            await self.round(port)
            rounds = rounds + 1 if len(self.cluster.writes) == count else 0
            if rounds == 2:
                return
        raise AssertionError(f"rounds write again and again: {self.cluster.writes[-5:]}")


@asynccontextmanager
async def stack(folder: Any, nodes: int = 1) -> AsyncIterator[Stack]:
    async with embedded(folder) as cluster:
        await cluster.client.create(DEFINITIONS, crd.definition())
        await eventually(lambda: _served(cluster.client))
        for number in range(nodes):
            await create_node(cluster.client, node(f"n{number}"))
        async with Client(cluster.config, user_agent="tests") as client:
            kubelets = Kubelets(client)
            tasks = [
                asyncio.create_task(run_controllers(client)),
                asyncio.create_task(run_scheduler(client, "default-scheduler")),
                asyncio.create_task(kubelets.run()),
            ]
            try:
                yield Stack(cluster, kubelets)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def make_round(client: Client, port: int, policy: str = "policy") -> None:
    """Have an operator, with its metrics on this port, make a round for a change of its policy that is none to it."""
    made = await rounds(port)
    touched = {"metadata": {"annotations": {"tests/touched": str(next(_touches))}}}
    await client.patch_merge(CLUSTER_POLICIES.raw(), policy, touched)

    async def is_made() -> bool:
        return await rounds(port) > made

    await eventually(is_made)


async def rounds(port: int) -> float:
    """How many the operator with its metrics on this port has made; 0 while it does not lead."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/metrics") as response:
        lines = (await response.text()).splitlines()
    made = (line.rsplit(" ", 1)[1] for line in lines if line.startswith("gpu_operator_reconciliation_total "))
    return float(next(made, 0))


def _condition(policy: dict[str, Any], kind: str) -> dict[str, Any]:
    conditions = (policy.get("status") or {}).get("conditions", [])
    return next((each for each in conditions if each["type"] == kind), {})


async def _served(client: Client) -> bool:
    try:
        await client.list(CLUSTER_POLICIES)
    except KubeError:
        return False
    return True
