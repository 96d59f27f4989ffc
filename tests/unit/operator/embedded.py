"""The lab's API server with what the operator needs of a cluster, and a count of what is written to it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from aiohttp import web
from tests.waiting import eventually

from purser.kube import Client, ClusterConfig
from purser.kube.resources import NAMESPACES, NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.operator.names import OPERAND_LABEL

NAMESPACE = "purser-system"
IMAGE = "purser.test/purser:1"
_READS = ("GET", "HEAD")
DEFINITION = {
    "metadata": {"name": "clusterpolicies.purser.dev"},
    "spec": {
        "group": "purser.dev",
        "scope": "Cluster",
        "names": {"plural": "clusterpolicies", "kind": "ClusterPolicy", "singular": "clusterpolicy"},
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            name: {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
                            for name in ("spec", "status")
                        },
                    }
                },
            }
        ],
    },
}
"""Of any policy: what the real definition checks is its own tests' matter."""


class Embedded:
    """A server, an administrator's client, and the writes of all others."""

    def __init__(self, server: ApiServer, config: ClusterConfig, client: Client) -> None:
        self.server = server
        self.config = config
        self.client = client
        self.writes: list[str] = []
        """``METHOD path`` of each write by others than the administrator; leases and events are not counted."""

    def watch_writes(self, user_agent: str = "tests") -> None:
        async def note(request: web.Request) -> web.StreamResponse | None:
            if request.headers.get("User-Agent") != user_agent and is_counted(request):
                self.writes.append(f"{request.method} {request.path}")
            return None

        self.server.intercept(note)


def is_counted(request: web.Request) -> bool:
    return request.method not in _READS and "/leases" not in request.path and "/events" not in request.path


@asynccontextmanager
async def embedded(folder: Any, **options: Any) -> AsyncIterator[Embedded]:
    async with ApiServer(tls=False, **options) as server:
        config = ClusterConfig.load(server.write_kubeconfig(folder / "kubeconfig"))
        async with Client(config, user_agent="tests") as client:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            cluster = Embedded(server, config, client)
            cluster.watch_writes()
            yield cluster


async def define_policies(client: Client) -> None:
    from purser.operator.observing.kinds import DEFINITIONS
    from purser.operator.policy import CLUSTER_POLICIES

    await client.create(DEFINITIONS, DEFINITION)
    await eventually(lambda: _is_served(client, CLUSTER_POLICIES))


async def _is_served(client: Client, resource: Any) -> bool:
    from purser.kube import NotFoundError

    try:
        await client.list(resource)
    except NotFoundError:
        return False
    return True


def definition(group: str, plural: str, kind: str, scope: str) -> dict[str, Any]:
    """Of a kind that somebody else installs; any object of it is taken."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "kind": kind, "singular": kind.lower()}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "scope": scope, "names": names, "versions": [version]},
    }


def node(name: str, labels: dict[str, str] | None = None, **info: str) -> dict[str, Any]:
    """A Ready GPU node; ``info`` replaces fields of its nodeInfo."""
    known = {"feature.node.kubernetes.io/pci-10de.present": "true", "kubernetes.io/os": "linux"}
    node_info = {
        "osImage": "Ubuntu 22.04.4 LTS",
        "kernelVersion": "5.15.0-91-generic",
        "containerRuntimeVersion": "containerd://1.7.22",
        "kubeletVersion": "v1.31.0",
        "bootID": f"boot-{name}",
        "machineID": "",
        "systemUUID": "",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
        **info,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": known if labels is None else labels},
        "status": {
            "nodeInfo": node_info,
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"},
        },
    }


def pod(name: str, on: str, namespace: str = "default", **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"nodeName": on, "containers": [{"name": "main", "image": "busybox"}]},
    }


def operand_pod(name: str, on: str, operand: str) -> dict[str, Any]:
    return pod(name, on, NAMESPACE, **{OPERAND_LABEL: operand})


async def create_node(client: Client, manifest: dict[str, Any]) -> None:
    await client.create(NODES, manifest)


async def create_pod(client: Client, manifest: dict[str, Any]) -> None:
    await client.create(PODS, manifest)


@contextmanager
def running(work: Any) -> Any:
    """A coroutine beside the test; ended at its end."""
    task = asyncio.ensure_future(work)
    try:
        yield task
    finally:
        task.cancel()


def builtins(value: Any) -> Any:
    return msgspec.to_builtins(value)
