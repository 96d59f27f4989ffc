"""Writes actions to the API, and registers the expected effects with the observer."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from purser.kube import Client, InvalidError, NotFoundError, Raw, Resource
from purser.kube.objects import Identified
from purser.kube.policy_group import evict
from purser.kube.resources import NODES, PODS
from purser.operator.manifests import removal
from purser.operator.model import (
    Action,
    Adopt,
    AppliedObject,
    Apply,
    Delete,
    DeletePod,
    Evict,
    ObjectKey,
    PatchNode,
    SetFinalizer,
    WriteStatus,
)
from purser.operator.names import APPLIED_HASH_ANNOTATION, GROUP, KIND
from purser.operator.observing.expectations import Check, at_least, terminating
from purser.operator.observing.kinds import resource_of
from purser.operator.policy import CLUSTER_POLICIES

_NODES = NODES.as_type(Identified)
_POLICIES = CLUSTER_POLICIES.as_type(Identified)


class Notes(Protocol):
    """The interface of the observer for writers."""

    @property
    def policy_version(self) -> str:
        """Which version of Eviction the server takes."""
        ...

    def applied(self, key: ObjectKey, settled: AppliedObject) -> None:
        """An object was applied and came out so."""
        ...

    def expect(self, resource: Resource[Any], key: str, check: Check) -> None:
        """A write will have this effect."""
        ...


class KubeWriter:
    """One write per action, and one more where others added what is not theirs to add. Each is valid by itself, so that
    nothing is half done between two."""

    def __init__(self, client: Client, notes: Notes):
        self._client = client
        self._notes = notes

    async def do(self, action: Action) -> None:
        """Write it. Raises `KubeError`, and LookupError for a kind that the operator does not own."""
        match action:
            case Apply():
                await self._apply(action)
            case Adopt():
                await self._adopt(action)
            case Delete():
                await self._delete(action)
            case PatchNode():
                await self._patch_node(action)
            case DeletePod():
                await self._delete_pod(action)
            case Evict():
                await self._evict(action)
            case WriteStatus():
                same = {"metadata": {"resourceVersion": action.resource_version}} if action.resource_version else {}
                status = {"status": msgspec.to_builtins(action.status)}
                await self._patch_policy(action.policy, {**same, **status}, "status")
            case SetFinalizer():
                metadata = {"resourceVersion": action.resource_version, "finalizers": list(action.finalizers)}
                await self._patch_policy(action.policy, {"metadata": metadata})

    async def _apply(self, action: Apply) -> None:
        key = ObjectKey.of(action.object)
        resource = resource_of(key)
        try:
            came_out = await self._client.apply(resource, action.object, force=True)
        except InvalidError as error:
            came_out = await self._replace_fields(resource, key, action.object, error)
        came_out = await self._without_additions(resource, key, action.object, came_out)
        self._notes.applied(key, AppliedObject(_hash(action.object), came_out))
        self._notes.expect(resource, key.path, at_least(came_out["metadata"]["resourceVersion"]))

    async def _replace_fields(
        self, resource: Resource[Raw], key: ObjectKey, obj: Mapping[str, Any], refusal: InvalidError
    ) -> Raw:
        """Write an object that is there as a merge patch, which replaces lists whole. Its other owners stay.

        Server-side apply before Kubernetes 1.22 leaves parts of what is no longer wanted (a removed probe's numbers, a
        variable's valueFrom beside its new value), and refuses the result as invalid, for ever (tried on 1.20).
        """
        try:
            live = await self._client.get(resource, key.name, key.namespace or None)
        except NotFoundError:
            raise refusal from None
        owned = _ownership_metadata(live, obj["metadata"].get("ownerReferences", ()))
        patch = {**obj, "metadata": {**obj["metadata"], **owned}}
        return await self._client.patch_merge(resource, key.name, patch, key.namespace or None)

    async def _without_additions(
        self, resource: Resource[Raw], key: ObjectKey, obj: Mapping[str, Any], came_out: Raw
    ) -> Raw:
        """Takes away what others added in places that are the operator's alone: an apply leaves it theirs."""
        patch = removal(came_out, obj)
        if not patch:
            return came_out
        same = {"metadata": {"resourceVersion": came_out["metadata"]["resourceVersion"]}}
        return await self._client.patch_merge(resource, key.name, {**patch, **same}, key.namespace or None)

    async def _adopt(self, action: Adopt) -> None:
        resource, key = resource_of(action.key), action.key
        live = await self._client.get(resource, key.name, key.namespace or None)
        patch = {"metadata": {**_ownership_metadata(live, (action.owner,)), "uid": action.uid}}
        came_out = await self._client.patch_merge(resource, key.name, patch, key.namespace or None)
        self._notes.expect(resource, key.path, at_least(came_out["metadata"]["resourceVersion"]))

    async def _delete(self, action: Delete) -> None:
        resource, key = resource_of(action.key), action.key
        await self._client.delete(resource, key.name, key.namespace or None, uid=action.uid, propagation="Background")
        self._notes.expect(resource, key.path, terminating(action.uid))

    async def _patch_node(self, action: PatchNode) -> None:
        written = await self._client.patch_merge(_NODES, action.node, node_patch(action))
        self._notes.expect(_NODES, action.node, at_least(written.metadata.resource_version))

    async def _delete_pod(self, action: DeletePod) -> None:
        pod = action.pod
        await self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        self._notes.expect(PODS, f"{pod.namespace}/{pod.name}", terminating(pod.uid))

    async def _evict(self, action: Evict) -> None:
        workload = action.workload
        await evict(self._client, self._notes.policy_version, workload.namespace, workload.name, workload.uid)

    async def _patch_policy(self, name: str, patch: Mapping[str, Any], subresource: str | None = None) -> None:
        written = await self._client.patch_merge(_POLICIES, name, patch, subresource=subresource)
        if written.metadata.deletion_timestamp and not patch.get("metadata", {}).get("finalizers", True):
            self._notes.expect(_POLICIES, name, terminating(written.metadata.uid))
        else:
            self._notes.expect(_POLICIES, name, at_least(written.metadata.resource_version))


def node_patch(action: PatchNode) -> dict[str, Any]:
    """The merge patch of a node: labels, annotations and cordon in one write, refused where the node changed since."""
    named = {
        "labels": action.labels,
        "annotations": action.annotations,
        "resourceVersion": action.resource_version,
    }
    metadata = {key: each for key, each in named.items() if each}
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if action.unschedulable is not None:
        patch["spec"] = {"unschedulable": action.unschedulable or None}
    return patch


def _ownership_metadata(live: Raw, ours: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The metadata that makes a live object one of ``ours``: instead of other ClusterPolicies', beside other owners,
    and on condition that it is still the same."""
    metadata = live["metadata"]
    others = [each for each in metadata.get("ownerReferences") or () if not _is_policy(each)]
    return {"resourceVersion": metadata["resourceVersion"], "ownerReferences": [*others, *ours]}


def _is_policy(owner: Mapping[str, Any]) -> bool:
    group, _, _ = str(owner["apiVersion"]).partition("/")
    return (group, owner["kind"]) == (GROUP, KIND)


def _hash(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("annotations", {}).get(APPLIED_HASH_ANNOTATION, ""))
