"""kube-scheduler's side of the extender protocol (k8s.io/kube-scheduler/extender/v1)."""

import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from purser.lab.controllers.scheduling.requests import Raw, resource_names

MAX_EXTENDER_PRIORITY = 10


class ExtenderError(Exception):
    """The extender did not answer, or answered with an error."""


@dataclass(frozen=True)
class ExtenderSettings:
    """An entry of KubeSchedulerConfiguration's ``extenders``; an empty verb is not called."""

    url_prefix: str
    filter_verb: str = ""
    prioritize_verb: str = ""
    bind_verb: str = ""
    preempt_verb: str = ""
    weight: int = 1
    managed_resources: tuple[str, ...] = ()
    """Of pods that name one of these the extender is asked; of every pod where there are none."""
    ignored_resources: tuple[str, ...] = ()
    """The same, of resources that only the extender counts (``ignoredByScheduler``)."""
    timeout_s: float = 5.0
    is_ignorable: bool = False


@dataclass(frozen=True)
class FilterResult:
    """Which nodes fit, and why others do not."""

    node_names: tuple[str, ...]
    failed: Mapping[str, str]
    unresolvable_nodes: Mapping[str, str]


class HttpExtender:
    """One extender, configured with ``nodeCacheCapable: true``: it is sent names of nodes only."""

    def __init__(self, settings: ExtenderSettings, session: aiohttp.ClientSession, context: ssl.SSLContext) -> None:
        self.settings = settings
        self._session = session
        self._ssl = context
        self._managed = frozenset((*settings.managed_resources, *settings.ignored_resources))

    def is_interested(self, pod: Raw) -> bool:
        """Only pods that name a managed resource are sent; without any, every pod is."""
        return not self._managed or not self._managed.isdisjoint(resource_names(pod))

    async def filter(self, pod: Raw, node_names: Iterable[str]) -> FilterResult:
        """Raises `ExtenderError`."""
        answer = await self._call(self.settings.filter_verb, _args(pod, node_names))
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])
        return FilterResult(
            tuple(answer.get("NodeNames") or ()),
            answer.get("FailedNodes") or {},
            answer.get("FailedAndUnresolvableNodes") or {},
        )

    async def prioritize(self, pod: Raw, node_names: Iterable[str]) -> dict[str, int]:
        """Scores on the scheduler's own scale. Raises `ExtenderError`."""
        answer = await self._call(self.settings.prioritize_verb, _args(pod, node_names))
        scale = self.settings.weight * (100 // MAX_EXTENDER_PRIORITY)
        return {entry["Host"]: entry["Score"] * scale for entry in answer or ()}

    async def bind(self, pod: Raw, node: str) -> None:
        """Raises `ExtenderError`."""
        metadata = pod["metadata"]
        body = {
            "PodName": metadata["name"],
            "PodNamespace": metadata["namespace"],
            "PodUID": metadata["uid"],
            "Node": node,
        }
        answer = await self._call(self.settings.bind_verb, body)
        if answer.get("Error"):
            raise ExtenderError(answer["Error"])

    async def preempt(self, pod: Raw, victims: Mapping[str, Iterable[str]]) -> dict[str, tuple[str, ...]]:
        """Candidate nodes with the uids of their victims, before and after. Raises `ExtenderError`."""
        named = {
            node: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for node, uids in victims.items()
        }
        body = {"Pod": _without_type_meta(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": named}
        answer = await self._call(self.settings.preempt_verb, body)
        left = answer.get("NodeNameToMetaVictims") or {}
        return {node: tuple(pod["UID"] for pod in (found or {}).get("Pods") or ()) for node, found in left.items()}

    async def _call(self, verb: str, body: Mapping[str, Any]) -> Any:
        url = f"{self.settings.url_prefix.rstrip('/')}/{verb}"
        timeout = aiohttp.ClientTimeout(total=self.settings.timeout_s)
        try:
            async with self._session.post(url, json=body, ssl=self._ssl, timeout=timeout) as response:
                if response.status != 200:
                    raise ExtenderError(
                        f"failed {verb} with extender at URL {self.settings.url_prefix}, code {response.status}"
                    )
                return await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise ExtenderError(f'Post "{url}": {_reason(error)}') from error


def _args(pod: Raw, node_names: Iterable[str]) -> dict[str, Any]:
    return {"Pod": _without_type_meta(pod), "Nodes": None, "NodeNames": list(node_names)}


def _without_type_meta(pod: Raw) -> dict[str, Any]:
    """Objects of a Go informer carry no apiVersion and kind, so what kube-scheduler sends has none."""
    return {key: value for key, value in pod.items() if key not in ("apiVersion", "kind")}


def _reason(error: Exception) -> str:
    """As Go says it; aiohttp's own text names objects by their address."""
    if isinstance(error, aiohttp.ClientConnectorError):
        why = os.strerror(error.errno).lower() if error.errno else error.os_error
        return f"dial tcp {error.host}:{error.port}: connect: {why}"
    if isinstance(error, TimeoutError):
        return "context deadline exceeded"
    return str(error) or type(error).__name__
