"""Brings a cluster's CustomResourceDefinition up to date: Helm makes those of a chart once, and never changes them."""

import asyncio

from purser.kube import Client, KubeError, NotFoundError, Raw
from purser.operator.acting.dry import text_diff
from purser.operator.manifests import projection
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy.crd import definition

CRD_POLL_PERIOD_S = 0.1
CRD_SERVED_TIMEOUT_S = 30.0
"""For the API server to serve a new definition."""


async def define(client: Client) -> str:
    """Make the definition as this version of Purser has it, and return once the API server serves it.

    Written as a merge patch, which replaces the list of versions whole, so that no field of an older one stays; and
    which servers before Kubernetes 1.25 take, too: they leave out the rules in CEL, where an apply would be refused.
    Answers with what was done, in one sentence. Raises `KubeError`.
    """
    wanted = definition()
    name = wanted["metadata"]["name"]
    try:
        before = await client.get(DEFINITIONS, name)
    except NotFoundError:
        await client.create(DEFINITIONS, wanted)
        did = "created"
    else:
        after = await client.patch_merge(DEFINITIONS, name, wanted)
        did = "updated" if _version(before) != _version(after) else "unchanged"
    try:
        async with asyncio.timeout(CRD_SERVED_TIMEOUT_S):
            await _established(client, name)
    except TimeoutError:
        why = f"see kubectl describe crd {name}"
        raise KubeError(
            f"CustomResourceDefinition {name} is {did}, but not served after {CRD_SERVED_TIMEOUT_S:g} s: {why}"
        ) from None
    return f"CustomResourceDefinition {name} {did}"


async def preview_definition(client: Client) -> str:
    """What would change of the cluster's CustomResourceDefinition, as a diff; empty: nothing.

    Servers before Kubernetes 1.25 leave out the rules in CEL, so that these are always shown. Raises `KubeError`.
    """
    wanted = definition()
    name = wanted["metadata"]["name"]
    try:
        live = await client.get(DEFINITIONS, name)
    except NotFoundError:
        return text_diff(name, None, wanted)
    shown = projection(live, wanted)
    spec = {**shown["spec"], "versions": live["spec"]["versions"]}
    return text_diff(name, {**shown, "spec": spec}, wanted)


async def _established(client: Client, name: str) -> None:
    while True:
        if _is_established(await client.get(DEFINITIONS, name)):
            return
        await asyncio.sleep(CRD_POLL_PERIOD_S)


def _is_established(found: Raw) -> bool:
    conditions = found.get("status", {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)


def _version(found: Raw) -> str:
    return str(found["metadata"]["resourceVersion"])
