"""Pods as their owner sees them: those of the informer, and those just written that it does not have yet."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from purser.kube.client import Client
from purser.kube.errors import ApiError, ConflictError, NotFoundError
from purser.kube.events import EventRecorder
from purser.kube.informer import Informer
from purser.kube.pods import TERMINAL_PHASES
from purser.kube.resources import PODS, Raw, Resource, ref_of

_RAW_PODS = PODS.raw()
_MAX_REMEMBERED_UIDS = 256


def owner_uid(obj: Mapping[str, Any]) -> str:
    """The uid of the controller that an object belongs to, empty without one."""
    return str((_controller_of(obj) or {}).get("uid", ""))


def owner_keys(obj: Mapping[str, Any], kind: str) -> tuple[str, ...]:
    """``namespace/name`` of the controller, when it is of this kind."""
    owner = _controller_of(obj)
    if owner is None or owner.get("kind") != kind:
        return ()
    return (f"{obj['metadata']['namespace']}/{owner['name']}",)


def owner_reference(resource: Resource[Raw], owner: Raw) -> dict[str, Any]:
    """How an object says that it belongs to ``owner``."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _controller_of(obj: Mapping[str, Any]) -> Mapping[str, Any] | None:
    references = obj["metadata"].get("ownerReferences") or ()
    return next((reference for reference in references if reference.get("controller")), None)


def phase(pod: Raw) -> str:
    """The pod's phase, empty when it has none yet."""
    return str((pod.get("status") or {}).get("phase") or "")


def is_active(pod: Raw) -> bool:
    """Whether the pod runs or will, and is not being deleted."""
    return phase(pod) not in TERMINAL_PHASES and not pod["metadata"].get("deletionTimestamp")


def is_ready(pod: Raw) -> bool:
    """Whether the pod's Ready condition is true."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


class OwnedPods:
    """The pods of all owners of one controller."""

    def __init__(self, client: Client, pods: Informer[Raw], recorder: EventRecorder) -> None:
        self._client = client
        self._recorder = recorder
        self._by_owner: dict[str, dict[str, Raw]] = {}
        self._deleted: set[str] = set()
        self._gone: deque[str] = deque(maxlen=_MAX_REMEMBERED_UIDS)
        """Uids of pods that are gone: the answer to a creation may come after the pod's end."""
        pods.add_handler(on_add=self._put, on_update=lambda _old, pod: self._put(pod), on_delete=self._drop)

    def of(self, owner: Raw) -> list[Raw]:
        """The owner's pods, oldest name first; those that were just deleted are left out."""
        pods = self._by_owner.get(owner["metadata"]["uid"], {})
        return sorted(
            (pod for uid, pod in pods.items() if uid not in self._deleted), key=lambda pod: str(pod["metadata"]["name"])
        )

    def going(self, owner: Raw) -> list[Raw]:
        """The owner's pods that were asked to go, by whomever, and are still there."""
        pods = self._by_owner.get(owner["metadata"]["uid"], {})
        return [pod for uid, pod in pods.items() if uid in self._deleted or pod["metadata"].get("deletionTimestamp")]

    async def create(
        self,
        resource: Resource[Raw],
        owner: Raw,
        *,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        spec: Raw | None = None,
    ) -> None:
        """A pod of the owner's template, with more labels and fields of the spec; without ``name`` of any name.

        A refusal is raised, and reported in an event on the owner, as the real controllers do.
        """
        template = owner["spec"]["template"]
        metadata = template.get("metadata") or {}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **{key: metadata[key] for key in ("annotations", "finalizers") if metadata.get(key)},
                "labels": {**(metadata.get("labels") or {}), **(labels or {})},
                **({"name": name} if name else {"generateName": f"{owner['metadata']['name']}-"}),
                "namespace": owner["metadata"]["namespace"],
                "ownerReferences": [owner_reference(resource, owner)],
            },
            "spec": {**template["spec"], **(spec or {})},
        }
        try:
            pod = await self._client.create(_RAW_PODS, body, owner["metadata"]["namespace"])
        except ApiError as error:
            self._recorder.event(ref_of(resource, owner), "FailedCreate", f"Error creating: {error}", type="Warning")
            raise
        if pod["metadata"]["uid"] not in self._gone:
            self._put(pod)

    async def delete(self, pod: Raw) -> None:
        """Ask a pod to go; one that is gone already is fine."""
        metadata = pod["metadata"]
        self._deleted.add(metadata["uid"])
        try:
            await self._client.delete(PODS, metadata["name"], metadata["namespace"], uid=metadata["uid"])
        except (NotFoundError, ConflictError):
            self._drop(pod)
        except BaseException:
            self._deleted.discard(metadata["uid"])
            raise

    def _put(self, pod: Raw) -> None:
        if uid := owner_uid(pod):
            known = self._by_owner.setdefault(uid, {})
            known[pod["metadata"]["uid"]] = pod

    def _drop(self, pod: Raw) -> None:
        self._gone.append(pod["metadata"]["uid"])
        self._deleted.discard(pod["metadata"]["uid"])
        owner = owner_uid(pod)
        known = self._by_owner.get(owner, {})
        known.pop(pod["metadata"]["uid"], None)
        if not known:
            self._by_owner.pop(owner, None)
