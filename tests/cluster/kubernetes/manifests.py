"""Manifests that tests start from."""

from collections.abc import Mapping, Sequence
from typing import Any

BUSYBOX_IMAGE = "purser.test/busybox:1"
PAUSE_IMAGE = "purser.test/pause:1"


def kubelets_read_pods() -> list[dict[str, Any]]:
    """A role for kubelets. Since 1.32 they may read their pods only once the node authorizer has seen where these are
    bound; a kubelet that was faster than that tells of the pod ten seconds later."""
    group = "rbac.authorization.k8s.io"
    metadata = {"name": "kubelets-read-pods"}
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    return [
        {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": metadata["name"]},
            "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:nodes"}],
        },
    ]


def busybox_pod(
    name: str,
    *,
    namespace: str = "default",
    command: Sequence[str] = ("sh", "-c", "env; sleep 3600"),
    resources: Mapping[str, Any] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A pod of one container `main`; `resources` are its limits, `spec` is merged into the pod's spec.

    The grace period is zero: a shell as process 1 ignores SIGTERM, and every test would wait for it.
    """
    container = {
        "name": "main",
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "Never",
        "command": list(command),
        "resources": {"limits": dict(resources)} if resources else {},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "restartPolicy": "Never",
            "containers": [container],
            **spec,
        },
    }
