"""Pods that do not exist yet, from manifests: Pods themselves, and the Pod templates of what creates pods."""

from collections.abc import Iterator
from typing import Any

import msgspec

from purser.core.decoding import UnreadableError
from purser.kube.objects import DEFAULT_SCHEDULER
from purser.yaml_reading import MAX_YAML_BYTES, read_all_yaml

MAX_MANIFEST_BYTES = MAX_YAML_BYTES
"""Bytes of a file."""

TEMPLATED_KINDS = ("Deployment", "Job", "StatefulSet", "ReplicaSet", "ReplicationController", "CronJob")
"""Kinds with a Pod template. Not DaemonSets: each of their pods has a node of its own from the start."""


class ManifestError(ValueError):
    """A file that has no pod; the message says what is wrong with it."""


class ManifestPod(msgspec.Struct, frozen=True):
    """One pod of a manifest."""

    kind: str
    """``Pod``, or the kind whose template it is."""
    namespace: str
    """Empty: the manifest names none."""
    name: str
    """Of the object that has it."""
    body: dict[str, Any]
    """Its ``metadata`` and ``spec``, as its author wrote them and with the API server's defaults that decide."""

    @property
    def names_resource_claims(self) -> bool:
        """Whether it names claims of dynamic resource allocation."""
        return bool(self.body["spec"].get("resourceClaims"))


def manifest_pods(text: bytes, name: str) -> list[ManifestPod]:
    """Those of all documents of a file, YAML or JSON, Lists included; other kinds are passed over. ``name``: what error
    messages call the file. Raises `ManifestError`."""
    try:
        documents = read_all_yaml(text, name, max_bytes=MAX_MANIFEST_BYTES)
    except UnreadableError as error:
        raise ManifestError(str(error)) from error
    objects = [each for document in documents for each in _items(document)]
    if any(not isinstance(each.get("kind"), str) for each in objects):
        raise ManifestError(f"{name} is not a manifest: an object in it has no kind")
    found = [pod for each in objects if (pod := _pod_of(each, name)) is not None]
    if not found:
        there = ", ".join(sorted({each["kind"] for each in objects})) or "nothing"
        templated = ", ".join(TEMPLATED_KINDS)
        raise ManifestError(f"{name} has no Pod and nothing with a Pod template ({templated}): it has {there}")
    return found


def _items(document: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(document, dict):
        return
    items = document.get("items")
    if document.get("kind") == "List" and isinstance(items, list):
        yield from (each for each in items if isinstance(each, dict))
    else:
        yield document


def _pod_of(found: dict[str, Any], name: str) -> ManifestPod | None:
    kind, meta = found["kind"], _dict(found.get("metadata"))
    if kind == "Pod":
        template = found
    elif kind in TEMPLATED_KINDS:
        spec = _dict(found.get("spec"))
        template = _dict((_dict(_dict(spec.get("jobTemplate")).get("spec")) or spec).get("template"))
    else:
        return None
    own = str(meta.get("name") or meta.get("generateName") or "")
    if not own:
        raise ManifestError(f"{name}: a {kind} has no metadata.name, which is required")
    if not isinstance(template.get("spec"), dict):
        raise ManifestError(f"{name}: {kind} {own} has no {'spec' if kind == 'Pod' else 'Pod template'}")
    namespace = meta.get("namespace")
    spec = {
        "schedulerName": DEFAULT_SCHEDULER,
        **{key: value for key, value in template["spec"].items() if value is not None},
    }
    labels = {key: _dict(template.get("metadata")).get(key) or {} for key in ("labels", "annotations")}
    body = {"metadata": {**labels, "name": own}, "spec": spec}
    return ManifestPod(kind, namespace if isinstance(namespace, str) else "", own, body)


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
