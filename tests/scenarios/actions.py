"""What scenarios do and look at, over the Kubernetes API."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from purser.adapters.nodes import inventory_of
from purser.core.grant.signing import read
from purser.core.ledger import Ledger
from purser.core.model import Grant, NodeInventory
from purser.core.names import HEALTH_CONDITION
from purser.kube.errors import NotFoundError
from purser.kube.resources import EVENTS, NAMESPACES, NODES, PODS
from tests import waiting
from tests.scenarios.cluster import Cluster
from tests.scenarios.pods import GPU, Raw, whole
from tests.scenarios.pods import pod as pod_manifest

T = TypeVar("T")

RAW_PODS = PODS.raw()
_POLL_S = 0.05
_TERMINAL = ("Succeeded", "Failed")


async def eventually(cluster: Cluster, what: str, probe: Callable[[], Awaitable[T | None]]) -> T:
    """What ``probe`` answers once that is true; else an AssertionError that says what did not happen, and why."""
    reason = ""
    while not waiting.is_over():
        try:
            if found := await probe():
                return found
        except AssertionError as error:
            reason = str(error)
        await asyncio.sleep(_POLL_S)
    raise AssertionError(f"not in time: {what}. {reason}\n{await story(cluster)}")


async def story(cluster: Cluster) -> str:
    """Pods and events of the namespace, for a failed assertion."""
    lines = []
    for pod in await pods(cluster):
        status = pod["status"]
        words = [status.get(field, "") for field in ("phase", "reason", "message")]
        lines.append(f"pod {pod['metadata']['name']}: {' '.join(words)}")
    for event in (await cluster.client.list(EVENTS, cluster.namespace)).items:
        lines.append(f"event on {event.involved_object.name}: {event.reason}: {event.message}")
    return "\n".join(lines)


async def create(cluster: Cluster, *manifests: Raw) -> list[Raw]:
    """Create pods, all at once."""
    return list(await asyncio.gather(*(cluster.client.create(RAW_PODS, body, cluster.namespace) for body in manifests)))


async def pods(cluster: Cluster) -> list[Raw]:
    """All pods of the namespace."""
    return (await cluster.client.list(RAW_PODS, cluster.namespace)).items


async def pod_named(cluster: Cluster, name: str) -> Raw:
    """One pod."""
    return await cluster.client.get(RAW_PODS, name, cluster.namespace)


async def running(cluster: Cluster, names: Iterable[str]) -> dict[str, Raw]:
    """The pods once all of them run; at once an AssertionError when one of them failed."""
    wanted = set(names)

    async def probe() -> dict[str, Raw] | None:
        found = {pod["metadata"]["name"]: pod for pod in await pods(cluster) if pod["metadata"]["name"] in wanted}
        for name, pod in found.items():
            if pod["status"].get("phase") in _TERMINAL:
                raise RuntimeError(f"pod {name} ended: {pod['status']}\n{await story(cluster)}")
        waiting = sorted(name for name in wanted if name not in found or not is_running(found[name]))
        assert not waiting, f"not running: {waiting}"
        return found

    return await eventually(cluster, f"{len(wanted)} pods run", probe)


def is_running(pod: Raw) -> bool:
    """Whether every container of the pod has started."""
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


async def delete(cluster: Cluster, *names: str) -> None:
    """Delete pods and wait until they are gone."""
    for name in names:
        await cluster.client.delete(PODS, name, cluster.namespace, grace_period_seconds=0)
    await gone(cluster, *names)


async def leave(cluster: Cluster) -> None:
    """Delete the namespace and its pods. A namespace controller would let them run for five seconds more; no new ones
    are taken meanwhile."""
    await cluster.client.delete(NAMESPACES, cluster.namespace)
    for each in await pods(cluster):
        with suppress(NotFoundError):
            await cluster.client.delete(PODS, each["metadata"]["name"], cluster.namespace, grace_period_seconds=0)


async def gone(cluster: Cluster, *names: str) -> None:
    """Wait until pods are gone."""

    async def probe() -> bool:
        left = {pod["metadata"]["name"] for pod in await pods(cluster)} & set(names)
        assert not left, f"still there: {sorted(left)}"
        return True

    await eventually(cluster, "the pods are gone", probe)


async def absent(cluster: Cluster, name: str) -> bool:
    """Whether there is no such pod."""
    try:
        await pod_named(cluster, name)
    except NotFoundError:
        return True
    return False


async def event(cluster: Cluster, pod: str, reason: str, *parts: str) -> str:
    """The message of an event on a pod that holds all parts, once there is one."""

    async def probe() -> str | None:
        found = [
            event.message
            for event in (await cluster.client.list(EVENTS, cluster.namespace)).items
            if event.involved_object.name == pod and event.reason == reason
        ]
        match = next((message for message in found if all(part in message for part in parts)), None)
        assert match, f"{reason} events on {pod}: {found}"
        return match

    return await eventually(cluster, f"an event {reason} on {pod} with {parts}", probe)


async def has_event(cluster: Cluster, pod: str, reason: str) -> bool:
    """Whether there is such an event now."""
    found = (await cluster.client.list(EVENTS, cluster.namespace)).items
    return any(event.involved_object.name == pod and event.reason == reason for event in found)


def grant_of(pod: Raw) -> Grant | None:
    """The grant that a pod carries."""
    return read(pod["metadata"].get("annotations") or {})


def cards(pod: Raw, container: str = "main") -> tuple[str, ...]:
    """The uuids that a container was granted."""
    grant = grant_of(pod)
    assert grant is not None, f"pod {pod['metadata']['name']} has no grant"
    part = grant.of(container)
    assert part is not None, f"pod {pod['metadata']['name']} has no grant for {container}"
    return part.uuids


def pods_per_card(found: Iterable[Raw]) -> Counter[str]:
    """How many pods hold a part of each card."""
    return Counter(uuid for pod in found for uuid in set(cards(pod)))


async def inventory(cluster: Cluster) -> NodeInventory:
    """What the agent of the node with the cards reports."""
    found = inventory_of(await cluster.client.get(NODES, cluster.gpu_node))
    assert found is not None, "the node has no inventory"
    return found


async def reports_unhealthy(cluster: Cluster, uuids: set[str]) -> None:
    """Wait until the scheduler can know which GPUs of the node with GPUs are bad: kubelet knows it first."""

    async def probe() -> bool:
        found = {device.uuid for device in (await inventory(cluster)).devices if not device.healthy}
        assert found == uuids, f"unhealthy: {sorted(found)}"
        return True

    await eventually(cluster, "the inventory names the bad cards", probe)


async def hears_of_its_gpu(cluster: Cluster, name: str, is_unhealthy: bool) -> None:
    """Wait until a pod has the condition that says that its GPU is unhealthy, or has it no more."""

    async def probe() -> bool:
        conditions = (await pod_named(cluster, name))["status"]["conditions"]
        return is_unhealthy == (HEALTH_CONDITION in {each["type"] for each in conditions})

    await eventually(cluster, f"pod {name} has {'a' if is_unhealthy else 'no'} condition {HEALTH_CONDITION}", probe)


async def allocatable(cluster: Cluster) -> int:
    """How many nvidia.com/gpu kubelet offers on the node with the cards."""
    node = await cluster.client.get(NODES, cluster.gpu_node)
    return int(node.status.allocatable.get(GPU, 0))


async def offers(cluster: Cluster, count: int) -> None:
    """Wait until kubelet offers so many nvidia.com/gpu."""

    async def probe() -> bool:
        now = await allocatable(cluster)
        assert now == count, f"it offers {now}"
        return True

    await eventually(cluster, f"{cluster.gpu_node} offers {count} of {GPU}", probe)


async def no_gpu_is_left(cluster: Cluster) -> None:
    """Wait until kube-scheduler and Purser have heard that the node offers 0 nvidia.com/gpu.

    The API server says so first. A pod of that moment is bound, and kubelet refuses it: the pod that asks here may be
    one, and is not the test's own.
    """
    await offers(cluster, 0)
    name = "asks-for-a-gpu"

    async def probe() -> bool:
        conditions = (await pod_named(cluster, name))["status"].get("conditions") or ()
        return any(each["type"] == "PodScheduled" for each in conditions)

    waits = False
    while not waits:
        await create(cluster, pod_manifest(cluster, name, whole()))
        await eventually(cluster, "kube-scheduler has looked for a node", probe)
        waits = "nodeName" not in (await pod_named(cluster, name))["spec"]
        await delete(cluster, name)


async def check_books(cluster: Cluster) -> None:
    """Annotations, ledger, kubelet's PodResources and every container's own environment say the same."""
    active = [pod for pod in await pods(cluster) if is_running(pod) and grant_of(pod)]
    ledger = Ledger()
    ledger.set_inventory(await inventory(cluster))
    for pod in active:
        grant = grant_of(pod)
        assert grant is not None
        assert (grant.pod_uid, grant.node) == (pod["metadata"]["uid"], pod["spec"]["nodeName"])
        ledger.adopt(grant)
    assert ledger.violations() == ()
    held = await cluster.pod_resources(cluster.gpu_node)
    seen: set[str] = set()
    for pod in active:
        for part in grant_of(pod).containers:  # type: ignore[union-attr]
            key = (cluster.namespace, pod["metadata"]["name"], part.container)
            if key not in held:
                continue  # Init containers are not in kubelet's list.
            ids = held[key]
            assert not seen.intersection(ids), f"kubelet gave {seen.intersection(ids)} twice"
            seen.update(ids)
            assert {id_.partition("::")[0] for id_ in ids} == set(part.uuids), f"{key}: {ids} is not {part.uuids}"
            await check_environment(cluster, pod, part.container)


async def check_environment(cluster: Cluster, pod: Raw, container: str = "main") -> dict[str, str]:
    """The container's process sees its own cards and limits, no others."""
    grant = grant_of(pod)
    part = grant.of(container) if grant else None
    assert part is not None
    env = await cluster.container_env(pod["metadata"]["name"], container)
    shares = {share.uuid: share for share in part.shares}
    visible = env["NVIDIA_VISIBLE_DEVICES"].split(",")
    assert sorted(visible) == sorted(shares)
    for place, uuid in enumerate(visible):
        share = shares[uuid]
        if share.cores_percent < 100:
            assert env[f"CUDA_DEVICE_MEMORY_LIMIT_{place}"] == f"{share.memory_mib}m"
            if share.cores_percent:
                assert env["CUDA_DEVICE_SM_LIMIT"] == str(share.cores_percent)
    return env


def without_volatile(pod: Raw) -> dict[str, Any]:
    """What of a running pod must not change behind its back."""
    statuses = pod["status"].get("containerStatuses") or ()
    return {
        "uid": pod["metadata"]["uid"],
        "node": pod["spec"].get("nodeName"),
        "restarts": [status["restartCount"] for status in statuses],
        "containers": [status.get("containerID") for status in statuses],
        "grant": grant_of(pod),
    }
