"""The hashes on manifests: by them one sees what differs without comparing it."""

import hashlib
import json
from typing import Any

from purser.operator.names import APPLIED_HASH_ANNOTATION, TEMPLATE_LABEL

Raw = dict[str, Any]


def hashed(obj: Raw) -> Raw:
    """The object with its hashes: of its pod template, on pods and DaemonSet, and of what is applied.

    Equal content has equal hashes, in whatever order it was written.
    """
    if obj["kind"] == "DaemonSet":
        obj = _with_template_hash(obj)
    annotations = {**obj["metadata"].get("annotations", {}), APPLIED_HASH_ANNOTATION: digest(obj, 16)}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def digest(value: Any, length: int) -> str:
    """The beginning of the SHA-256 of a JSON value, independent of the order of keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def _with_template_hash(obj: Raw) -> Raw:
    metadata, spec = obj["metadata"], obj["spec"]
    template = spec["template"]
    mark = {TEMPLATE_LABEL: digest(template, 10)}
    pods = {**template["metadata"], "labels": {**template["metadata"]["labels"], **mark}}
    return {
        **obj,
        "metadata": {**metadata, "labels": {**metadata["labels"], **mark}},
        "spec": {**spec, "template": {**template, "metadata": pods}},
    }
