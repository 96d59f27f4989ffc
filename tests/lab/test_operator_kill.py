"""The operator killed around every write to the API: whatever it was about to do, the next one ends up at the same.

What is killed is a process's work: from the fatal write on, no request of it is answered any more, and it is ended. Its
successor has only the API to go by. Killed before a write means that the write never arrives; killed after it, that it
arrives and its answer is lost.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from purser.kube.resources import DAEMON_SETS, NODES, PODS
from purser.operator.manifests.objects import OWNED_KINDS
from purser.operator.names import APPLIED_HASH_ANNOTATION, FIELD_MANAGER, MANAGED_BY_LABEL, OPERAND_LABEL
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.running import run
from tests.tiers import IS_LONG
from tests.unit.operator.embedded import NAMESPACE, create_pod, eventually, is_counted, pod
from tests.unit.operator.embedded_cluster import SMALL, Stack, stack

pytestmark = pytest.mark.usefixtures("quiet_logs")

OURS = f"{MANAGED_BY_LABEL}={FIELD_MANAGER}"
POLICY = {"metadata": {"name": "policy"}, "spec": SMALL}


class Killer:
    """Lets so many writes of the operator through, and then none of its requests."""

    def __init__(self, stack: Stack) -> None:
        self.allowed = -1
        """Writes until death; negative: it lives."""
        self.is_dead = False
        self.died = asyncio.Event()
        self.answers_lost = False
        """The last write arrives, its answer does not."""
        self.seen = 0
        stack.cluster.server.intercept(self.intercept)

    async def intercept(self, request: web.Request) -> web.StreamResponse | None:
        if request.headers.get("User-Agent") != "purser-operator":
            return None
        if self.is_dead:
            return web.Response(status=403)  # refused for good: its end need not be waited for
        if not is_counted(request):
            return None
        self.seen += 1
        if self.allowed < 0 or self.seen < self.allowed:
            return None
        if self.seen > self.allowed or not self.answers_lost:
            self._die()
            return self._no_answer(request)
        self._die()
        return None

    def _die(self) -> None:
        self.is_dead = True
        self.died.set()

    def _no_answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response(status=500)

    def live_until(self, write: int, answers_lost: bool) -> None:
        self.allowed, self.answers_lost = write, answers_lost
        self.seen, self.is_dead = 0, False
        self.died.clear()

    def live(self) -> None:
        self.live_until(-1, False)


@asynccontextmanager
async def process(stack: Stack) -> AsyncIterator[asyncio.Future[int]]:
    """An operator that ends at once; gives its port of metrics."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(stack.settings(), stack.cluster.config, asyncio.Event(), port.set_result))
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def killed_at(stack: Stack, killer: Killer, write: int, answers_lost: bool, done: Callable[[], Any]) -> bool:
    """Whether the operator came to this write before all was done; its successor is not started yet."""
    killer.live_until(write, answers_lost)
    async with process(stack) as port:
        await eventually(lambda: killer.died.is_set() or done(), every_s=0.06)
        if not killer.died.is_set():
            resting = asyncio.create_task(at_rest(stack, await port))
            dying = asyncio.create_task(killer.died.wait())
            await asyncio.wait({resting, dying}, return_when=asyncio.FIRST_COMPLETED)
            resting.cancel()
            dying.cancel()
            await asyncio.gather(resting, dying, return_exceptions=True)
    return killer.died.is_set()


async def ends_well(stack: Stack, killer: Killer, done: Callable[[], Awaitable[bool]]) -> Any:
    killer.live()
    async with process(stack) as port:
        await eventually(done, every_s=0.06)
        await at_rest(stack, await port)
    return await what_there_is(stack)


async def at_rest(stack: Stack, port: int) -> None:
    """Where no policy is left the last write was that of its finalizers."""
    if not await is_gone(stack):
        await stack.at_rest(port)


async def what_there_is(stack: Stack) -> Any:
    """Owned objects, nodes and operands' pods, without what differs between two equal clusters."""
    found: dict[str, Any] = {}
    for resource in OWNED_KINDS:
        listed = await stack.client.list(resource, NAMESPACE if resource.namespaced else None, label_selector=OURS)
        for obj in listed.items:
            found[f"{resource.kind}/{obj['metadata']['name']}"] = _essence(obj)
    for obj in (await stack.client.list(NODES.raw())).items:
        annotations = {
            key: value for key, value in obj["metadata"].get("annotations", {}).items() if "start" not in key
        }
        metadata = obj["metadata"]
        found[f"Node/{metadata['name']}"] = (metadata.get("labels"), annotations, obj["spec"].get("unschedulable"))
    for each in (await stack.client.list(PODS, NAMESPACE, label_selector=OPERAND_LABEL)).items:
        key = f"Pod/{each.metadata.labels[OPERAND_LABEL]} on {each.spec.node_name}"
        found[key] = found.get(key, 0) + (0 if each.metadata.deletion_timestamp else 1)
    found["GPU pods"] = sorted(each.metadata.name for each in (await stack.client.list(PODS, "default")).items)
    for policy in (await stack.client.list(CLUSTER_POLICIES)).items:
        status = policy.get("status") or {}
        found[f"Policy/{policy['metadata']['name']}"] = (policy["metadata"].get("finalizers"), status.get("state"))
    return found


def _essence(obj: dict[str, Any]) -> bytes:
    metadata = obj["metadata"]
    kept = {key: metadata.get(key) for key in ("name", "labels", "annotations")}
    # The hash is also of the owner's uid.
    dropped = (APPLIED_HASH_ANNOTATION, "deprecated.daemonset.template.generation")
    kept["annotations"] = {key: value for key, value in (kept["annotations"] or {}).items() if key not in dropped}
    return msgspec.json.encode({**obj, "metadata": kept, "status": None}, order="deterministic")


# --- histories: what happens to a cluster, and how it is known to be over


async def nothing_yet(stack: Stack, killer: Killer) -> None:
    """From nothing to Ready: the policy is there before the operator."""
    await stack.client.create(CLUSTER_POLICIES, POLICY)


async def installed(stack: Stack, killer: Killer) -> None:
    await nothing_yet(stack, killer)
    await ends_well(stack, killer, stack.is_ready)


async def the_driver_is_updated_under_its_users(stack: Stack, killer: Killer) -> None:
    """Pods that nobody recreates: the policy says that they may go nevertheless."""
    await installed(stack, killer)
    for name in ("train", "infer"):
        await create_pod(stack.client, gpu_pod(name, "n0"))
    changes = {"version": "999.9", "upgradePolicy": {"gpuPodDeletion": {"force": True}}}
    await stack.client.patch_merge(CLUSTER_POLICIES, "policy", {"spec": {"driver": changes}})


def gpu_pod(name: str, on: str) -> dict[str, Any]:
    made = pod(name, on)
    made["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
    return made


async def the_policy_is_deleted(stack: Stack, killer: Killer) -> None:
    """While a pod uses a GPU."""
    await installed(stack, killer)
    await create_pod(stack.client, gpu_pod("train", "n0"))
    await stack.client.delete(CLUSTER_POLICIES, "policy")


async def a_second_policy_takes_over(stack: Stack, killer: Killer) -> None:
    await installed(stack, killer)
    await stack.client.create(CLUSTER_POLICIES, {"metadata": {"name": "second"}, "spec": SMALL})
    await stack.client.delete(CLUSTER_POLICIES, "policy")


async def is_gone(stack: Stack) -> bool:
    return not (await stack.client.list(CLUSTER_POLICIES)).items


async def nothing_is_left(stack: Stack) -> bool:
    """The pod ends once only the driver is there, which must have stayed for it."""
    found = (await stack.client.list(PODS, NAMESPACE, label_selector=OPERAND_LABEL)).items
    if (await stack.client.list(PODS, "default")).items:
        operands = {each.metadata.labels[OPERAND_LABEL] for each in found}
        assert "driver" in operands
        if operands == {"driver"}:
            await stack.client.delete(PODS, "train", "default", grace_period_seconds=0)
        return False
    return await is_gone(stack) and not (await stack.client.list(DAEMON_SETS, NAMESPACE, label_selector=OURS)).items


async def the_second_rules(stack: Stack) -> bool:
    policies = {each["metadata"]["name"]: each for each in (await stack.client.list(CLUSTER_POLICIES)).items}
    return list(policies) == ["second"] and (policies["second"].get("status") or {}).get("state") == "ready"


async def is_ready(stack: Stack) -> bool:
    return await stack.is_ready()


HISTORIES = [
    pytest.param(nothing_yet, is_ready, id="from nothing to ready"),
    pytest.param(the_driver_is_updated_under_its_users, is_ready, id="the driver is updated under its users"),
    pytest.param(a_second_policy_takes_over, the_second_rules, id="a second policy takes over"),
    pytest.param(the_policy_is_deleted, nothing_is_left, id="the policy is deleted"),
]
"""Where what an API server does itself has a say; `test_killed` has these and all others, in memory."""


def death(number: int) -> tuple[int, bool]:
    """At which write a process dies, and whether that write still arrives."""
    writes = 1 if IS_LONG or number < 2 else 25
    return (writes, True) if number % 2 == 0 else (writes + 1, False)


@pytest.mark.parametrize(("begin", "is_over"), HISTORIES if IS_LONG else HISTORIES[:1])
async def test_an_operator_killed_around_each_write_in_turn_ends_up_at_the_same(
    begin: Callable[[Stack, Killer], Awaitable[None]],
    is_over: Callable[[Stack], Awaitable[bool]],
    tmp_path: Path,
) -> None:
    """One cluster, and a new process for each write of the history: between any two writes a process ends. In the
    fast suite all but the first two come further.

    Either way a process does so many writes: killed after its last, its answer was lost; killed before the next one, it
    had the answer.
    """
    (tmp_path / "undisturbed").mkdir()
    async with stack(tmp_path / "undisturbed") as calm:
        killer = Killer(calm)
        await begin(calm, killer)
        wanted = await ends_well(calm, killer, lambda: is_over(calm))
    async with stack(tmp_path) as cluster:
        killer = Killer(cluster)
        await begin(cluster, killer)
        deaths = 0
        while await killed_at(cluster, killer, *death(deaths), lambda: is_over(cluster)):
            deaths += 1
            assert deaths < 300, "it gets nowhere"
        assert deaths
        assert await ends_well(cluster, killer, lambda: is_over(cluster)) == wanted
