"""Pseudonyms in annotations: those of Purser by what they say, of others the ids of devices and pods in their text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from purser.adapters.cluster_files.pseudonyms import NameKind, Pseudonyms
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.dialects import SHARING, VENDORS, kai, selectors
from purser.core.grant import signing
from purser.core.grant.disputes import HeldPod, NodeDisputes, RefusedPod, read_disputes
from purser.core.kubelet.report import format as report_format
from purser.core.kubelet.report.format import MAX_REPORTED_DEVICES, Holding, KubeletReport, ReportError, ResourceReport
from purser.core.kubelet.report.idlists import IdList, compact_ids, expand_ids
from purser.core.model import ContainerGrant, Grant
from purser.core.names import (
    CORDON_ANNOTATIONS,
    DISPUTES_ANNOTATION,
    GRANT_ANNOTATION,
    INIT_RESOURCES_ANNOTATION,
    KUBELET_ANNOTATION,
)

Found = tuple[NameKind, str]

_MAX_BYTES = 1024 * 1024
"""Of an annotation; the API server allows 256 KiB for all of an object."""
_ANY_JSON: JsonReader[Any] = JsonReader(object, "annotation", max_bytes=_MAX_BYTES)
_BY_CONTAINER: JsonReader[dict[str, Any]] = JsonReader(
    dict[str, Any], f"annotation {INIT_RESOURCES_ANNOTATION}", max_bytes=_MAX_BYTES
)

_LIST_ANNOTATIONS = (
    *CORDON_ANNOTATIONS,
    selectors.USE_GPUUUID,
    selectors.NOUSE_GPUUUID,
    selectors.VOLCANO_USE_GPUUUID,
    selectors.VOLCANO_NOUSE_GPUUUID,
)
"""Uuids of devices with commas: who wrote them may mean devices that no node has."""

_RECORD_ANNOTATIONS = frozenset(name for dialect in (*SHARING.values(), *VENDORS.values()) for name in dialect.RECORDS)
"""What other systems' schedulers write of a placement."""

_NODE_RECORDS = frozenset(name for name in _RECORD_ANNOTATIONS if name.endswith("-node"))
"""Of these the node, which may be gone."""

_DEVICE_IDS = re.compile(r"\b(?:GPU|MIG)-[\w-]+")
"""Of devices that may be gone, too."""


def names_in(annotations: Mapping[str, str], node: str = "") -> Iterator[Found]:
    """The names that nothing but an annotation has. ``node``: whose they are, of a node's."""
    for name in _LIST_ANNOTATIONS:
        yield from ((NameKind.GPU, each.strip()) for each in annotations.get(name, "").split(","))
    for name in sorted(_RECORD_ANNOTATIONS & annotations.keys()):
        yield from ((NameKind.GPU, each) for each in _DEVICE_IDS.findall(annotations[name]))
    yield from ((NameKind.NODE, annotations[name]) for name in sorted(_NODE_RECORDS & annotations.keys()))
    if (grant := _grant(annotations)) is not None:
        yield from ((NameKind.NODE, grant.node), (NameKind.NAMESPACE, grant.namespace), (NameKind.POD, grant.pod))
        yield (NameKind.UID, grant.pod_uid)
        yield from _names_in_parts(grant.containers)
    if (disputes := read_disputes(annotations.get(DISPUTES_ANNOTATION), node)) is not None:
        those: list[HeldPod | RefusedPod] = [*disputes.held, *disputes.refused]
        for each in those:
            yield from ((NameKind.NAMESPACE, each.namespace), (NameKind.POD, each.pod), (NameKind.UID, each.uid))
            yield from ((NameKind.GPU, uuid) for uuid in each.uuids)
        for held in disputes.held:
            yield from _names_in_parts(held.containers)
    if (report := _report(annotations)) is not None:
        for holding in report.held:
            yield from ((NameKind.UID, holding.uid), (NameKind.CONTAINER, holding.container))


def _names_in_parts(parts: Iterable[ContainerGrant]) -> Iterator[Found]:
    for part in parts:
        yield NameKind.CONTAINER, part.container
        yield from ((NameKind.GPU, share.uuid) for share in part.shares)


def replace_names(annotations: Mapping[str, str], given: Pseudonyms, node: str = "") -> dict[str, str]:
    """The annotations with pseudonyms. What cannot be read of Purser's own is left out. ``node``: as in `names_in`."""
    found: dict[str, str] = {}
    for name, text in annotations.items():
        match name:
            case str() if name == GRANT_ANNOTATION:
                grant = _grant(annotations)
                new = None if grant is None else msgspec.json.encode(_replaced_grant(grant, given)).decode()
            case str() if name == DISPUTES_ANNOTATION:
                disputes = read_disputes(text, node)
                new = None if disputes is None else msgspec.json.encode(_replaced_disputes(disputes, given)).decode()
            case str() if name == KUBELET_ANNOTATION:
                report = _report(annotations)
                new = None if report is None else report_format.encode(_replaced_report(report, given))
            case str() if name == INIT_RESOURCES_ANNOTATION:
                new = _replaced_init_resources(text, given)
            case kai.GPU_FRACTION_CONTAINER_NAME:
                new = given.of(NameKind.CONTAINER, text)
            case _:
                new = _replace_in_text(name, text, given)
        if new is not None:
            found[name] = new
    return found


def _replace_in_text(name: str, text: str, given: Pseudonyms) -> str:
    """A record may be a node's name; an inventory has it in a field. Elsewhere the same word may be a model."""
    if name in _RECORD_ANNOTATIONS and given.has(NameKind.NODE, text):
        return given.of(NameKind.NODE, text)
    if not text.startswith(("{", "[")):
        return given.in_text(text)
    try:
        value = _ANY_JSON.read(text)
    except UnreadableError:
        return given.in_text(text)
    found = given.in_json(value)
    if isinstance(value, dict) and isinstance(value.get("node"), str):
        found["node"] = given.of(NameKind.NODE, value["node"])
    return msgspec.json.encode(found).decode()


def _grant(annotations: Mapping[str, str]) -> Grant | None:
    try:
        return signing.read(annotations)
    except signing.GrantError:
        return None


def _replaced_grant(grant: Grant, given: Pseudonyms) -> Grant:
    return replace(
        grant,
        pod_uid=given.of(NameKind.UID, grant.pod_uid),
        namespace=given.of(NameKind.NAMESPACE, grant.namespace),
        pod=given.of(NameKind.POD, grant.pod),
        node=given.of(NameKind.NODE, grant.node),
        containers=_replaced_parts(grant.containers, given),
    )


def _replaced_parts(parts: Iterable[ContainerGrant], given: Pseudonyms) -> tuple[ContainerGrant, ...]:
    return tuple(
        replace(
            part,
            container=given.of(NameKind.CONTAINER, part.container),
            shares=tuple(replace(share, uuid=given.in_text(share.uuid)) for share in part.shares),
        )
        for part in parts
    )


def _replaced_disputes(found: NodeDisputes, given: Pseudonyms) -> NodeDisputes:
    return NodeDisputes(
        given.of(NameKind.NODE, found.node),
        held=tuple(
            replace(_replaced_pod(each, given), containers=_replaced_parts(each.containers, given))
            for each in found.held
        ),
        refused=tuple(replace(_replaced_pod(each, given), in_the_way=()) for each in found.refused),
        closed=tuple(map(given.in_text, found.closed)),
    )


def _replaced_pod(found: Any, given: Pseudonyms) -> Any:
    pod: HeldPod | RefusedPod = found
    return replace(
        pod,
        namespace=given.of(NameKind.NAMESPACE, pod.namespace),
        pod=given.of(NameKind.POD, pod.pod),
        uid=given.of(NameKind.UID, pod.uid),
        uuids=tuple(map(given.in_text, pod.uuids)),
    )


def _report(annotations: Mapping[str, str]) -> KubeletReport | None:
    try:
        return report_format.decode(annotations[KUBELET_ANNOTATION]) if KUBELET_ANNOTATION in annotations else None
    except ReportError:
        return None


def _replaced_report(found: KubeletReport, given: Pseudonyms) -> KubeletReport:
    return replace(
        found,
        resources={name: _replaced_resource(each, given) for name, each in found.resources.items()},
        held=tuple(_replaced_holding(each, given) for each in found.held),
    )


def _replaced_resource(found: ResourceReport, given: Pseudonyms) -> ResourceReport:
    return replace(found, groups=tuple(replace(each, ids=_replaced_ids(each.ids, given)) for each in found.groups))


def _replaced_holding(found: Holding, given: Pseudonyms) -> Holding:
    return replace(
        found,
        uid=given.of(NameKind.UID, found.uid),
        container=given.of(NameKind.CONTAINER, found.container),
        devices={name: _replaced_ids(each, given) for name, each in found.devices.items()},
    )


def _replaced_ids(ids: IdList, given: Pseudonyms) -> IdList:
    try:
        return compact_ids([given.in_text(each) for each in expand_ids(ids, MAX_REPORTED_DEVICES)])
    except ValueError:
        return ()


def _replaced_init_resources(text: str, given: Pseudonyms) -> str | None:
    try:
        found = _BY_CONTAINER.read(text)
    except UnreadableError:
        return None
    named = {given.of(NameKind.CONTAINER, name): each for name, each in found.items()}
    return msgspec.json.encode(named).decode()
