"""Where labels are published. All of them write only what differs from what stands there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.agent.host.inotify import FolderWatch
from purser.core.features import Labels, changes, is_feature_label
from purser.kube.client import Client
from purser.kube.errors import NotFoundError
from purser.kube.informer import Informer
from purser.kube.objects import Node, ObjectMeta, Slim
from purser.kube.resources import NODES, PODS, Raw, Resource

log = structlog.get_logger("purser.agent")

MAX_FEATURE_FILE_BYTES = 65536
"""node-feature-discovery passes over a file that is larger."""

NFD_NODE_LABEL = "nfd.node.kubernetes.io/node-name"
"""Of a NodeFeature object: the node that it is about."""

NODE_FEATURE_PREFIX = "nvidia-features-for-"
"""Names of the objects of NVIDIA's feature discovery: its replacement takes over its object."""


class NodeFeatureSpec(Slim, frozen=True, gc=False):
    """What is published of a node."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)


class NodeFeature(Slim, frozen=True, gc=False):
    """node-feature-discovery's object, as far as labels go."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeFeatureSpec = NodeFeatureSpec()


NODE_FEATURES = Resource("nfd.k8s-sigs.io", "v1alpha1", "nodefeatures", "NodeFeature", True, NodeFeature)


class Outlet(Protocol):
    """A place for labels."""

    async def put(self, labels: Labels) -> bool:
        """Make these all that stands there; whether anything was written. Raises `KubeError` or OSError."""
        ...

    async def watch(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever the outlet may have been changed by others, until cancelled."""
        ...

    def leave(self) -> None:
        """The agent stops."""
        ...


class FeatureFile:
    """A file for node-feature-discovery's worker: ``name=value`` in each line."""

    def __init__(self, path: Path, *, is_kept: bool) -> None:
        self._path = path
        self._is_kept = is_kept
        self._is_missed = False

    async def put(self, labels: Labels) -> bool:
        """Replace the file, once there is its folder, which is the worker's to make."""
        if not self._path.parent.is_dir():
            if not self._is_missed:
                log.warning("The folder for the node's feature file does not exist yet", folder=str(self._path.parent))
            self._is_missed = True
            return False
        self._is_missed = False
        there = self._read()
        if there is not None and not changes(labels, there):
            return False
        replace_file(self._path, "".join(f"{key}={value}\n" for key, value in sorted(labels.items())).encode())
        return True

    async def watch(self, changed: Callable[[], None]) -> None:
        """The folder."""
        with FolderWatch(self._path.parent) as folder:
            while True:
                await folder.changed()
                changed()

    def leave(self) -> None:
        """Take the file away, unless it is to stay."""
        if not self._is_kept:
            try:
                self._path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("Cannot remove the node's labels", file=str(self._path), error=str(error))

    def _read(self) -> Labels | None:
        """None: there is none that could stay."""
        try:
            lines = read_head(self._path, MAX_FEATURE_FILE_BYTES).decode(errors="replace").splitlines()
        except OSError:
            return None
        return {key: value for key, _, value in (line.partition("=") for line in lines)}


class LastWrite:
    """What was written last, and upon which version of an object: its watch may be behind."""

    def __init__(self) -> None:
        self._resource_version: str | None = None
        self._labels: Labels = {}

    def note(self, labels: Labels, resource_version: str) -> None:
        """These were written upon this version; empty: there was no object."""
        self._resource_version, self._labels = resource_version, labels

    def already_wrote(self, labels: Labels, resource_version: str) -> bool:
        """Whether these are written already, as the object will show."""
        return resource_version == self._resource_version and not changes(labels, self._labels)

    def forget(self) -> None:
        """The object went."""
        self._resource_version = None


class NodeFeatureObject:
    """An object for node-feature-discovery's master, which goes with the agent's DaemonSet."""

    def __init__(self, client: Client, node: str, namespace: str, pod: str) -> None:
        self._client = client
        self._node = node
        self._namespace = namespace
        self._pod = pod
        self._name = f"{NODE_FEATURE_PREFIX}{node}"
        self._owner: Raw | None = None
        self._last_write = LastWrite()
        self._objects = Informer(client, NODE_FEATURES, namespace, field_selector=f"metadata.name={self._name}")

    async def put(self, labels: Labels) -> bool:
        """Create the object, or change what differs; waits for node-feature-discovery to be there."""
        await self._objects.synced()
        owner = await self._find_owner()
        there = self._objects.store.get(f"{self._namespace}/{self._name}")
        resource_version = "" if there is None else there.metadata.resource_version
        if self._last_write.already_wrote(labels, resource_version):
            return False
        metadata: Raw = {} if owner is None else {"ownerReferences": [owner]}
        if there is None:
            metadata |= {"name": self._name, "labels": {NFD_NODE_LABEL: self._node}}
            body = {"metadata": metadata, "spec": {"features": {}, "labels": labels}}
            await self._client.create(NODE_FEATURES, body, self._namespace)
            self._last_write.note(labels, resource_version)
            return True
        found = changes(labels, there.spec.labels)
        is_owned = owner is None or [each.uid for each in there.metadata.owner_references] == [owner["uid"]]
        if not found and is_owned and there.metadata.labels.get(NFD_NODE_LABEL) == self._node:
            return False
        patch = {"metadata": {**metadata, "labels": {NFD_NODE_LABEL: self._node}}, "spec": {"labels": found}}
        await self._client.patch_merge(NODE_FEATURES, self._name, patch, self._namespace)
        self._last_write.note(labels, resource_version)
        return True

    async def watch(self, changed: Callable[[], None]) -> None:
        """The object."""

        def on_delete(_: NodeFeature) -> None:
            self._last_write.forget()
            changed()

        self._objects.add_handler(lambda _: changed(), lambda *_: changed(), on_delete)
        await self._objects.run()

    def leave(self) -> None:
        """The object stays: labels that come and go with each agent would move pods."""

    async def _find_owner(self) -> Raw | None:
        """The agent's DaemonSet; None where it has none. Its pod is no owner beside it, unlike NVIDIA's: that keeps no
        object longer, and each new pod would cost a write."""
        if self._pod and self._owner is None:
            try:
                pod = await self._client.get(PODS.raw(), self._pod, self._namespace)
            except NotFoundError:
                return None
            owners: list[dict[str, Any]] = pod["metadata"].get("ownerReferences") or []
            found = next((each for each in owners if each["kind"] == "DaemonSet"), None)
            if found is not None:
                self._owner = {name: found[name] for name in ("apiVersion", "kind", "name", "uid")}
                self._owner["controller"] = True
        return self._owner


class NodeLabels:
    """The node itself. Labels of feature discovery are recognised by name, from any writer."""

    def __init__(self, client: Client, node: str, nodes: Informer[Node]) -> None:
        self._client = client
        self._node = node
        self._nodes = nodes
        self._last_write = LastWrite()

    async def put(self, labels: Labels) -> bool:
        """Change what differs, and remove labels that are no longer published."""
        node = self._nodes.store.get(self._node)
        if node is None or self._last_write.already_wrote(labels, node.metadata.resource_version):
            return False
        found = changes(labels, {key: value for key, value in node.metadata.labels.items() if is_feature_label(key)})
        if found:
            await self._client.patch_merge(NODES, self._node, {"metadata": {"labels": found}})
            self._last_write.note(labels, node.metadata.resource_version)
        return bool(found)

    async def watch(self, changed: Callable[[], None]) -> None:
        """The node's labels; its informer is run by who publishes annotations there."""

        def on_update(old: Node, new: Node) -> None:
            if old.metadata.labels != new.metadata.labels:
                changed()

        self._nodes.add_handler(lambda _: changed(), on_update)

    def leave(self) -> None:
        """The labels stay."""
