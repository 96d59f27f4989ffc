"""What the tools of `purser mcp` answer: documents of bounded size. Nothing here writes to a cluster."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from purser.adapters import snapshot
from purser.adapters.cluster_files import anonymize_objects, encode_objects, trim_objects
from purser.adapters.dry_runs import dry_run
from purser.adapters.manifests import ManifestError, manifest_pods
from purser.adapters.objects import DEVICE_CLAIM_KINDS, read_objects
from purser.adapters.occupancy import EvictionRules, read_occupancy
from purser.adapters.pod_events import with_warnings
from purser.adapters.workloads import read_workload
from purser.cli import get_tables, plan
from purser.cli.cluster_source import with_advice
from purser.cli.shown_cluster import shown_of_fleet
from purser.cli.why_text import explanation_lines
from purser.cli.why_workloads import named, resource_of, workload_lines
from purser.core.decoding import brief
from purser.core.planning import RoomRequest
from purser.core.planning import plan as planned
from purser.core.wording import some
from purser.kube import Client, ClusterConfig, ConfigError, KubeError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.workloads import WORKLOADS
from purser.scheduler.explaining import Explainer, UnknownPodError

T = TypeVar("T")

MAX_ENTRIES = 100
"""Of each list and object in an answer: a model reads all of it. `bounded` says what is left out."""


MAX_SNAPSHOT_BYTES = 256 * 1024
"""Of an answer: some 100 pods on 30 nodes."""


class Listing(StrEnum):
    """What can be listed."""

    GPUS = "gpus"
    GRANTS = "grants"
    NODES = "nodes"
    NAMESPACES = "namespaces"


class ToolFailure(ValueError):
    """A question that cannot be answered; the message says why, and what to do."""


class ClusterTools:
    """Answers about one cluster, which is read anew for each question."""

    def __init__(self, kubeconfig: Path | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context

    async def why(self, pod: str, namespace: str | None) -> dict[str, Any]:
        """What `purser why` says, as text and in fields. Raises `ToolFailure`."""
        try:
            kind, name = named(pod)
        except ValueError as error:
            raise ToolFailure(str(error)) from error

        async def read(client: Client) -> dict[str, Any]:
            where = namespace or client.config.namespace
            workload = None if kind == "Pod" else await read_workload(client, resource_of(kind), where, name)
            objects = await with_warnings(client, await read_objects(client), kind, where, name)

            def explained() -> dict[str, Any]:
                explainer = Explainer(objects)
                if kind == "Pod":
                    pod = explainer.explain(where, name)
                    return {"text": "\n".join(explanation_lines(pod)), "explanation": msgspec.to_builtins(pod)}
                found = explainer.explain_workload(kind, where, name, workload)
                head = (brief(line, 2000) for line in workload_lines(found))
                lines = [*head, *(() if found.pod is None else explanation_lines(found.pod))]
                return {"text": "\n".join(lines), "explanation": msgspec.to_builtins(found)}

            return await asyncio.to_thread(explained)

        try:
            return bounded(await self._ask(read))
        except UnknownPodError as error:
            raise ToolFailure(str(error)) from error

    async def why_manifest(self, manifest: str, name: str | None, namespace: str | None) -> dict[str, Any]:
        """What `purser why -f` says of a pod that does not exist yet. ``name``: which one of several, by name or
        KIND/NAME. Raises `ToolFailure`."""
        try:
            found = await asyncio.to_thread(manifest_pods, manifest.encode(), "the manifest")
        except ManifestError as error:
            raise ToolFailure(str(error)) from error
        by_name = [(each, (each.name, f"{each.kind}/{each.name}".lower())) for each in found]
        chosen = [each for each, names in by_name if name is None or name in names or name.lower() in names]
        if len(chosen) != 1:
            names = [f"{each.kind}/{each.name}" for each in found]
            if len(set(names)) < len(names) and len(chosen) > 1 and name is not None:
                raise ToolFailure(f"the manifest has several pods or pod templates named {name}: pass only one of them")
            which = "several pods or pod templates" if chosen else f"no pod or pod template named {name}"
            raise ToolFailure(f"the manifest has {which}: set the argument name to one of {some(names)}")
        (asked,) = chosen

        async def read(client: Client) -> dict[str, Any]:
            objects = await read_objects(client, DEVICE_CLAIM_KINDS if asked.names_resource_claims else ())
            here = asked.namespace or namespace or client.config.namespace
            answer = await dry_run(client, asked, here)

            def explained() -> dict[str, Any]:
                pod = Explainer(objects).explain_new(asked, here, answer)
                return {"text": "\n".join(explanation_lines(pod)), "explanation": msgspec.to_builtins(pod)}

            return await asyncio.to_thread(explained)

        try:
            return bounded(await self._ask(read))
        except ManifestError as error:
            raise ToolFailure(str(error)) from error

    async def snapshot(self, anonymize: bool) -> dict[str, Any]:
        """The file of `purser snapshot`, as text. Raises `ToolFailure`, also for one that is larger than
        `MAX_SNAPSHOT_BYTES`."""

        async def read(client: Client) -> tuple[bytes, Sequence[str]]:
            objects = await read_objects(client, WORKLOADS)

            def encoded() -> bytes:
                trimmed = trim_objects(objects)
                return encode_objects(anonymize_objects(trimmed)[0] if anonymize else trimmed)

            return await asyncio.to_thread(encoded), objects.problems

        text, problems = await self._ask(read)
        if len(text) > MAX_SNAPSHOT_BYTES:
            raise ToolFailure(
                f"the snapshot is {len(text)} bytes long, but an answer can have at most {MAX_SNAPSHOT_BYTES}: have "
                "the user run purser snapshot -o FILE"
            )
        return {"snapshot": text.decode(), "notes": list(problems)}

    async def get(self, what: Listing, namespace: str | None, node: str | None) -> dict[str, Any]:
        """The rows of `purser get`. Raises `ToolFailure`."""

        async def read(client: Client) -> dict[str, Any]:
            nodes, pods = await snapshot.read_objects(client)
            fleet, problems = snapshot.fleet_of(nodes, pods)
            cluster = shown_of_fleet(fleet, {each.metadata.name: each for each in nodes})
            rows: list[dict[str, Any]] = []
            match what:
                case Listing.GPUS:
                    gpus = get_tables.gpu_rows(cluster)
                    rows = [get_tables.gpu_document(row) for row in gpus if node in (None, row.node.name)]
                case Listing.GRANTS:
                    rows = [
                        get_tables.grant_document(row)
                        for row in get_tables.grant_rows(cluster)
                        if namespace in (None, row.grant.namespace) and node in (None, row.grant.node)
                    ]
                case Listing.NODES:
                    found = get_tables.node_rows(cluster)
                    rows = [get_tables.node_document(row) for row in found if node in (None, row.node.name)]
                case Listing.NAMESPACES:
                    waiting = get_tables.waiting_by_namespace(pods)
                    limits = get_tables.limits_by_namespace((await client.list(RESOURCE_QUOTAS)).items)
                    rows = [
                        document
                        for row in get_tables.namespace_rows(cluster, waiting, limits)
                        if (document := get_tables.namespace_document(row))
                        and namespace in (None, document["namespace"])
                    ]
            return {what.value: rows, "notes": list(problems)}

        return bounded(await self._ask(read))

    async def plan_free(self, gpus: int, nodes: int, max_priority: int, force: bool) -> dict[str, Any]:
        """The plan of `purser plan free`, which is not carried out. Raises `ToolFailure`."""

        rules = EvictionRules(max_priority, force, "max_priority", "force")

        async def read(client: Client) -> dict[str, Any]:
            occupancy, problems = await read_occupancy(client, rules)
            wish = RoomRequest(gpus, nodes)
            made = await asyncio.to_thread(planned, occupancy, wish)
            if made is None:
                raise ToolFailure(plan.why_no_plan(occupancy, wish))
            least = plan.least_known(occupancy, wish, made)
            return {**plan.plan_document(made, least), "notes": list(problems)}

        return bounded(await self._ask(read))

    async def _ask(self, read: Callable[[Client], Awaitable[T]]) -> T:
        try:
            config = ClusterConfig.load(self._kubeconfig, self._context)
            async with Client(config, user_agent="purser") as client:
                return await read(client)
        except ConfigError as error:
            raise ToolFailure(str(error)) from error
        except KubeError as error:
            raise ToolFailure(with_advice(error)) from error


def bounded(document: dict[str, Any], most: int = MAX_ENTRIES) -> dict[str, Any]:
    """A document, each list and object in it cut after ``most`` entries; ``left_out`` says where, and how many."""
    left_out: dict[str, int] = {}
    found = _cut(document, most, "", left_out)
    return {**found, "left_out": left_out}


def _cut(value: Any, most: int, path: str, left_out: dict[str, int]) -> Any:
    if isinstance(value, (dict, list, tuple)) and len(value) > most:
        left_out[path] = len(value) - most
    if isinstance(value, dict):
        kept = list(value.items())[:most]
        return {key: _cut(each, most, f"{path}.{key}" if path else str(key), left_out) for key, each in kept}
    if isinstance(value, (list, tuple)):
        return [_cut(each, most, f"{path}[{place}]", left_out) for place, each in enumerate(value[:most])]
    return value
