"""What became of a pod, in the same words from the twin and from kubelet's own managers."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from purser.core.kubelet import cpumanager, memorymanager
from purser.core.kubelet.admission import admit
from purser.core.kubelet.asks import AdmissionOutcome, PreferredAllocation, finish
from purser.core.kubelet.config import MemoryPolicy
from purser.core.kubelet.cpuset import format_cpuset
from purser.core.kubelet.devicemanager import register, update
from purser.core.kubelet.masks import nodes_of
from purser.core.kubelet.state import DeviceManagerState, KubeletState, MemoryState, PluginDevice, PluginOptions

from .cases import Case, Json


def twin_outcomes(case: Case) -> list[Json]:
    """After each step, by the twin."""
    state = _start(case)
    active: list[str] = []
    refused: set[str] = set()
    outcomes: list[Json] = []
    for step in case.steps:
        active = [uid for uid in active if uid not in step.gone]
        state = msgspec.structs.replace(state, devices=_listed(state.devices, case, step.unhealthy))
        outcome = finish(admit(case.node, state, step.pod, active), _first_by_name)
        state = outcome.state
        if outcome.refusal is None:
            active.append(step.pod.uid)
        else:
            refused.add(step.pod.uid)
        outcomes.append(_outcome(outcome, step.pod.uid, refused))
    return outcomes


def kubelet_outcomes(case: Case, steps: Iterable[Mapping[str, Any]]) -> list[Json]:
    """After each step, by one play of `main.go`."""
    refused: set[str] = set()
    outcomes: list[Json] = []
    for asked, step in zip(case.steps, steps, strict=True):
        if not step["admitted"]:
            refused.add(asked.pod.uid)
        outcomes.append(
            {
                "refusal": None if step["admitted"] else _refusal(step["reason"], step["message"]),
                "hints": {name: [each["nodes"], each["preferred"]] for name, each in step["hints"].items()},
                "devices": _without_empty({uid: each for uid, each in step["devices"].items() if uid not in refused}),
                "cpus": _without_empty(step["cpus"]),
                "shared": step["default"],
                "memory": _without_empty(_blocks(step["memory"] or {})),
                "nodes": {number: _numa_node(each) for number, each in (step["nodes"] or {}).items()},
            }
        )
    return outcomes


def _start(case: Case) -> KubeletState:
    devices = DeviceManagerState()
    for resource in case.devices:
        devices = register(devices, resource, PluginOptions(preferred_allocation=True))
    has_memory = case.node.config.memory_policy is MemoryPolicy.STATIC
    return KubeletState(devices, cpumanager.start(case.node), memorymanager.start(case.node) if has_memory else None)


def _listed(devices: DeviceManagerState, case: Case, unhealthy: Collection[str]) -> DeviceManagerState:
    for resource, listed in case.devices.items():
        found = [PluginDevice(id_, id_ not in unhealthy, nodes) for id_, nodes in listed.items()]
        devices = update(devices, resource, found)
    return devices


def _first_by_name(ask: PreferredAllocation) -> Iterable[str]:
    return [*ask.must_include, *sorted(ask.available - ask.must_include)][: ask.size]


def _outcome(outcome: AdmissionOutcome, pod_uid: str, refused: Collection[str]) -> Json:
    """Without the devices of pods that were refused: which of them one has been given is chance, as in `_refusal`."""
    state, refusal = outcome.state, outcome.refusal
    hints = {name: hint for (uid, name), hint in state.hints.items() if uid == pod_uid and hint.mask is not None}
    devices = {
        key: {resource: sorted(allocation.device_ids) for resource, allocation in held.items()}
        for key, held in state.devices.held.items()
        if key[0] not in refused
    }
    return {
        "refusal": None if refusal is None else _refusal(refusal.reason, refusal.message),
        "hints": {name: [list(nodes_of(hint.mask or 0)), hint.preferred] for name, hint in hints.items()},
        "devices": _without_empty(_by_pod(devices)),
        "cpus": _by_pod(
            {key: format_cpuset(cpus) for key, cpus in (state.cpus.exclusive if state.cpus else {}).items()}
        ),
        "shared": format_cpuset(state.cpus.default) if state.cpus else "",
        **_memory(state.memory),
    }


def _memory(state: MemoryState | None) -> Json:
    if state is None:
        return {"memory": {}, "nodes": {}}
    blocks = {
        key: [[list(nodes_of(block.nodes)), block.resource, block.size] for block in found]
        for key, found in state.blocks.items()
    }
    nodes = {
        str(number): {
            "assignments": node.assignments,
            "group": list(nodes_of(node.group)),
            "free": {name: table.free for name, table in node.tables.items()},
        }
        for number, node in state.nodes.items()
    }
    return {"memory": _by_pod({key: sorted(each) for key, each in blocks.items()}), "nodes": nodes}


_SHORT_OF_DEVICES = re.compile(
    r"(requested number of devices unavailable for|no healthy devices present; cannot allocate unhealthy devices) .*,"
)


def _refusal(reason: str, message: str) -> list[str]:
    """Which of several resources is short comes first by chance: kubelet goes through a container's limits, a map."""
    return [reason, _SHORT_OF_DEVICES.sub("short of devices,", message)]


def _blocks(memory: Mapping[str, Any]) -> Json:
    return {
        pod: {
            name: sorted([each["numaAffinity"], each["type"], each["size"]] for each in blocks)
            for name, blocks in containers.items()
        }
        for pod, containers in memory.items()
    }


def _numa_node(node: Mapping[str, Any]) -> Json:
    return {
        "assignments": node["numberOfAssignments"],
        "group": node["cells"],
        "free": {name: table["free"] for name, table in node["memoryMap"].items()},
    }


def _by_pod(values: Mapping[tuple[str, str], Any]) -> Json:
    found: Json = {}
    for (pod, container), value in values.items():
        found.setdefault(pod, {})[container] = value
    return found


def _without_empty(tree: Any) -> Any:
    """Without pods and containers that hold nothing."""
    if not isinstance(tree, dict):
        return tree
    kept = {key: _without_empty(value) for key, value in tree.items()}
    return {key: value for key, value in kept.items() if value not in ({}, "")}
