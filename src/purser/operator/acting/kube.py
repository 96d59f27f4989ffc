"""Writes actions to the API, and tells the observer what effects to expect."""

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from purser.kube import Client, ConflictError, InvalidError, NotFoundError, Raw, Resource
from purser.kube.objects import ObjectMeta
from purser.kube.resources import PODS
from purser.operator.model import (
    Action,
    Apply,
    Delete,
    DeletePod,
    Evict,
    ObjectKey,
    PatchNode,
    SetFinalizer,
    Settled,
    WriteStatus,
)
from purser.operator.names import APPLIED_HASH_ANNOTATION
from purser.operator.observing.expectations import Check, at_least, going
from purser.operator.observing.kinds import resource_of
from purser.operator.observing.objects import OPERATOR_NODES
from purser.operator.policy import CLUSTER_POLICIES


class _Identified(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_NODES = OPERATOR_NODES.as_type(_Identified)
_POLICIES = CLUSTER_POLICIES.as_type(_Identified)


class Notes(Protocol):
    """Who knows the server, and wants to know what was written: the observer."""

    @property
    def policy_version(self) -> str:
        """Which version of Eviction the server takes."""
        ...

    def applied(self, key: ObjectKey, settled: Settled) -> None:
        """An object was applied and came out so."""
        ...

    def expect(self, resource: Resource[Any], key: str, check: Check) -> None:
        """A write will have this effect."""
        ...


class KubeWriter:
    """One write per action. Each is valid by itself, so that nothing is half done between two."""

    def __init__(self, client: Client, notes: Notes):
        self._client = client
        self._notes = notes

    async def do(self, action: Action) -> None:
        """Write it. Raises `KubeError`, and LookupError for a kind that the operator does not own."""
        match action:
            case Apply():
                await self._apply(action)
            case Delete():
                await self._delete(action)
            case PatchNode():
                await self._patch_node(action)
            case DeletePod():
                await self._delete_pod(action)
            case Evict():
                await self._evict(action)
            case WriteStatus():
                await self._patch_policy(action.policy, {"status": msgspec.to_builtins(action.status)}, "status")
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
        self._notes.applied(key, Settled(_hash(action.object), came_out))
        self._notes.expect(resource, _key(key), at_least(came_out["metadata"]["resourceVersion"]))

    async def _replace_fields(
        self, resource: Resource[Raw], key: ObjectKey, obj: Mapping[str, Any], refusal: InvalidError
    ) -> Raw:
        """Write an object that is there as a merge patch, which replaces lists whole.

        Server-side apply before Kubernetes 1.22 leaves parts of what is no longer wanted (a removed probe's numbers, a
        variable's valueFrom beside its new value), and refuses the result as invalid, for ever (tried on 1.20).
        """
        try:
            return await self._client.patch_merge(resource, key.name, obj, key.namespace or None)
        except NotFoundError:
            raise refusal from None

    async def _delete(self, action: Delete) -> None:
        resource, key = resource_of(action.key), action.key
        await self._client.delete(resource, key.name, key.namespace or None, uid=action.uid, propagation="Background")
        self._notes.expect(resource, _key(key), going(action.uid))

    async def _patch_node(self, action: PatchNode) -> None:
        patch = node_patch(action)
        if action.unschedulable:
            patch.setdefault("metadata", {})["resourceVersion"] = await self._version_without_cordon(action.node)
        written = await self._client.patch_merge(_NODES, action.node, patch)
        self._notes.expect(_NODES, action.node, at_least(written.metadata.resource_version))

    async def _version_without_cordon(self, name: str) -> str:
        """What a cordon is conditional on: one that somebody else set a moment ago must not get the operator's mark."""
        node = await self._client.get(OPERATOR_NODES, name)
        if node.spec.unschedulable:
            raise ConflictError(409, "Conflict", f"node {name} was cordoned by somebody else in between")
        return node.metadata.resource_version

    async def _delete_pod(self, action: DeletePod) -> None:
        pod = action.pod
        await self._client.delete(PODS, pod.name, pod.namespace, uid=pod.uid)
        self._notes.expect(PODS, f"{pod.namespace}/{pod.name}", going(pod.uid))

    async def _evict(self, action: Evict) -> None:
        workload = action.workload
        body = {
            "apiVersion": f"policy/{self._notes.policy_version}",
            "kind": "Eviction",
            "metadata": {"name": workload.name, "namespace": workload.namespace},
            "deleteOptions": {"preconditions": {"uid": workload.uid}},
        }
        await self._client.create_subresource(PODS, workload.name, "eviction", body, workload.namespace)

    async def _patch_policy(self, name: str, patch: Mapping[str, Any], subresource: str | None = None) -> None:
        written = await self._client.patch_merge(_POLICIES, name, patch, subresource=subresource)
        if written.metadata.deletion_timestamp and not patch.get("metadata", {}).get("finalizers", True):
            self._notes.expect(_POLICIES, name, going(written.metadata.uid))
        else:
            self._notes.expect(_POLICIES, name, at_least(written.metadata.resource_version))


def node_patch(action: PatchNode) -> dict[str, Any]:
    """The merge patch of a node: labels, annotations and cordon in one write."""
    metadata = {key: each for key, each in (("labels", action.labels), ("annotations", action.annotations)) if each}
    patch: dict[str, Any] = {"metadata": metadata} if metadata else {}
    if action.unschedulable is not None:
        patch["spec"] = {"unschedulable": action.unschedulable or None}
    return patch


def _hash(obj: Mapping[str, Any]) -> str:
    return str(obj["metadata"].get("annotations", {}).get(APPLIED_HASH_ANNOTATION, ""))


def _key(key: ObjectKey) -> str:
    return f"{key.namespace}/{key.name}" if key.namespace else key.name
