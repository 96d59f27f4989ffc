"""What a release of the chart leaves, for Helm does not know of it: what agents wrote on nodes, and what scheduler and
kube-scheduler made for themselves."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from purser.core.names import (
    GRANT_ANNOTATION,
    GRANT_KEY_CONFIGMAP,
    GRANT_KEY_SECRET,
    KUBE_SCHEDULER_LEASE,
    TLS_SECRET,
)
from purser.kube import Client, KubeError, NotFoundError
from purser.kube.resources import CONFIG_MAPS, LEASES, PODS, SECRETS, Resource
from purser.operator.uninstall.agents import nodes_to_strip, strip
from purser.operator.wording import some

LOOK_S = 0.5
_PARTS = "app.kubernetes.io/name=purser,app.kubernetes.io/component in (agent,scheduler,operator)"
_ENDED = ("Succeeded", "Failed")

Say = Callable[[str], None]


async def clean_up(client: Client, namespace: str, *, timeout_s: float, say: Say) -> None:
    """Remove what a release that was uninstalled leaves; ``say`` is told each thing.

    The keys of grants stay as long as a pod with a grant does: who installs Purser again can read it then. Raises
    `KubeError` where the release's pods have not gone in time: they would write it all again.
    """
    await _parts_gone(client, namespace, timeout_s)
    for node in await nodes_to_strip(client, namespace):
        with contextlib.suppress(NotFoundError):  # it went by itself
            await strip(client, node)
            say(f"node {node.metadata.name}: what its agent wrote")
    await _delete(client, LEASES, KUBE_SCHEDULER_LEASE, namespace, say)
    await _delete(client, SECRETS, TLS_SECRET, namespace, say)
    if granted := await _granted(client):
        say(f"kept: the keys that grants of pods are signed with: {some(granted)}")
        return
    await _delete(client, SECRETS, GRANT_KEY_SECRET, namespace, say)
    await _delete(client, CONFIG_MAPS, GRANT_KEY_CONFIGMAP, namespace, say)


async def _parts_gone(client: Client, namespace: str, timeout_s: float) -> None:
    names: list[str] = []
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                names = [pod.metadata.name for pod in (await client.list(PODS, namespace, label_selector=_PARTS)).items]
                if not names:
                    return
                await asyncio.sleep(LOOK_S)
    except TimeoutError:
        raise KubeError(f"after {timeout_s:g} s still there: pods {some(names)}") from None


async def _granted(client: Client) -> list[str]:
    pods = (await client.list(PODS)).items
    return [
        f"{pod.metadata.namespace}/{pod.metadata.name}"
        for pod in pods
        if GRANT_ANNOTATION in pod.metadata.annotations and pod.status.phase not in _ENDED
    ]


async def _delete(client: Client, resource: Resource[Any], name: str, namespace: str, say: Say) -> None:
    try:
        await client.delete(resource, name, namespace)
    except NotFoundError:
        return
    say(f"{resource.kind} {name}")
