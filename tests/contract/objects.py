"""Small manifests."""

from typing import Any


def pod(name: str, *, labels: dict[str, str] | None = None, resources: Any = None, **spec: Any) -> dict[str, Any]:
    """A pod that no scheduler of a real cluster takes away from the test."""
    container = {"name": "main", "image": "registry.example/app:1", **({"resources": resources} if resources else {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"schedulerName": "nobody", "containers": [container], **spec},
    }


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {}}


def deployment(name: str, replicas: int | None = None, image: str = "registry.example/app:1") -> dict[str, Any]:
    spec: dict[str, Any] = {
        "selector": {"matchLabels": {"app": name}},
        "template": {
            "metadata": {"labels": {"app": name}},
            "spec": {"containers": [{"name": "main", "image": image}]},
        },
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def service(name: str, *ports: dict[str, Any]) -> dict[str, Any]:
    spec = {"selector": {"app": name}, "ports": list(ports)}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def binding(pod_name: str, node: str, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod_name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


def definition(name: str, group: str, schema: Any, **version: Any) -> dict[str, Any]:
    """A namespaced CRD with kind Thing-like names; `name` is the plural."""
    kind = name.capitalize()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": name, "kind": kind},
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
            ],
        },
    }
