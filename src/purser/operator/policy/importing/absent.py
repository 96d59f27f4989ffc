"""Sections that Purser does not have: parts for virtual machines, vGPU hosts, Kata, confidential computing.

Which of them are on follows from several switches: without `sandboxWorkloads.enabled` most others do nothing, whatever
they say; they are on in a stock install. One that is on is reported with what to write instead, all that are off in one
line. Of `sandboxWorkloads` the default workload is taken over: Purser keeps its operands away from such nodes.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import msgspec

from purser.core.wording import natural_sort_key, some
from purser.operator.names import WORKLOAD_LABEL
from purser.operator.policy.fields import Workload
from purser.operator.policy.importing.sections import Losses, Rank, Raw, at, is_requested

_SANDBOX, _DEFAULT_WORKLOAD = "sandboxWorkloads", "defaultWorkload"
_VIRTUAL = tuple(each for each in get_args(Workload) if each != "container")
_OWN_DAEMONSET_ADVICE = f"in your own DaemonSet with nodeSelector {WORKLOAD_LABEL}"


class _AbsentSection(msgspec.Struct, frozen=True):
    place: str
    is_on: Callable[[Raw], bool]
    lacks: str
    """What is not there any more, in one sentence."""
    instead: str = ""
    """What to write, or to do; empty: nothing."""

    @property
    def why(self) -> str:
        """The line on it where it is on."""
        instead = f"; use instead: {self.instead}" if self.instead else ""
        return f"ENABLED, but not supported: {self.lacks}{instead}"


def _switch(given: Raw, section: str) -> bool:
    return at(given, f"{section}.enabled") is True


def _is_sandbox_enabled(given: Raw) -> bool:
    return _switch(given, _SANDBOX)


def _enabled_with_sandbox(section: str, mode: str = "") -> Callable[[Raw], bool]:
    def is_on(given: Raw) -> bool:
        present = at(given, f"{_SANDBOX}.mode") or "kubevirt"
        return _is_sandbox_enabled(given) and _switch(given, section) and mode in ("", present)

    return is_on


def _is_never_used(_: Raw) -> bool:
    return False


_NOT_VALIDATED_NOTE = "no operand runs on nodes for virtual machines, so nothing is validated there"
_SECTIONS = (
    _AbsentSection(
        _SANDBOX,
        _is_sandbox_enabled,
        "Purser has no operands for virtual machines and does not run other operands on nodes whose label"
        f" {WORKLOAD_LABEL} (or defaultWorkload) is vm-passthrough or vm-vgpu",
        "your own DaemonSets for what virtual machines need there; deploy them before you remove NVIDIA's operator",
    ),
    _AbsentSection(
        "vfioManager",
        _enabled_with_sandbox("vfioManager"),
        "nothing binds GPUs to vfio-pci",
        f"vfio-pci.ids on the kernel command line of these nodes, or vfio-manager {_OWN_DAEMONSET_ADVICE}",
    ),
    _AbsentSection(
        "sandboxDevicePlugin",
        _enabled_with_sandbox("sandboxDevicePlugin", "kubevirt"),
        "the kubelet does not advertise GPUs for virtual machines",
        f"kubevirt-gpu-device-plugin {_OWN_DAEMONSET_ADVICE}",
    ),
    _AbsentSection("validator.vfioPCI", _is_sandbox_enabled, _NOT_VALIDATED_NOTE),
    _AbsentSection(
        "vgpuManager",
        _enabled_with_sandbox("vgpuManager"),
        "no vGPU host driver is installed",
        f"the driver installed on these nodes, or vgpu-manager {_OWN_DAEMONSET_ADVICE}",
    ),
    _AbsentSection(
        "vgpuDeviceManager",
        _enabled_with_sandbox("vgpuDeviceManager"),
        "no vGPU devices are created",
        f"vgpu-device-manager {_OWN_DAEMONSET_ADVICE}",
    ),
    _AbsentSection("validator.vgpuManager", _is_sandbox_enabled, _NOT_VALIDATED_NOTE),
    _AbsentSection("validator.vgpuDevices", _is_sandbox_enabled, _NOT_VALIDATED_NOTE),
    _AbsentSection(
        "kataSandboxDevicePlugin",
        _enabled_with_sandbox("kataSandboxDevicePlugin", "kata"),
        "the kubelet does not advertise GPUs for Kata containers",
        f"the Kata device plugin {_OWN_DAEMONSET_ADVICE}",
    ),
    _AbsentSection(
        "ccManager",
        _enabled_with_sandbox("ccManager", "kata"),
        "nothing sets the GPUs' confidential computing mode",
        f"the mode set on these nodes, or k8s-cc-manager {_OWN_DAEMONSET_ADVICE}",
    ),
    _AbsentSection("kataManager", _is_never_used, ""),  # NVIDIA's operator does nothing with it any more
)


def drop_absent_sections(given: Raw, lost: Losses) -> Raw:
    """The spec without these sections; each that is not empty is reported with its outcome."""
    off, rest = [], given
    for each in _SECTIONS:
        section = at(given, each.place)
        if not isinstance(section, dict):
            continue  # of another type, or absent: it is reported like any unknown field
        if each.is_on(given) and is_requested(section):
            lost.drop_section(each.place, each.why, Rank.NOT_DEPLOYED)
        elif is_requested(section):
            off.append(f"{lost.prefix}.{each.place}")
        rest = _without(rest, each.place)
    if off:
        lost.note(", ".join(off), "disabled and not supported", Rank.OFF)
    workload = at(given, f"{_SANDBOX}.{_DEFAULT_WORKLOAD}")
    return (
        {**rest, _SANDBOX: {_DEFAULT_WORKLOAD: workload}}
        if _is_sandbox_enabled(given) and workload in _VIRTUAL
        else rest
    )


def _without(given: Raw, place: str) -> Raw:
    name, _, rest = place.partition(".")
    if not rest:
        return {key: value for key, value in given.items() if key != name}
    return {**given, name: _without(given[name], rest)}


def report_ignored_labels(nodes: Iterable[Mapping[str, Any]], given: Raw, lost: Losses) -> None:
    """Names the nodes whose label gives their GPUs to virtual machines where NVIDIA's operator did not read it:
    Purser's operands stay away from them."""
    if _is_sandbox_enabled(given):
        return
    names = sorted((str(at(each, "metadata.name")) for each in nodes if _is_virtual(each)), key=natural_sort_key)
    if names:
        command = f"kubectl label nodes {' '.join(names)} {WORKLOAD_LABEL}-"
        why = (
            f"their label {WORKLOAD_LABEL} assigns their GPUs to virtual machines. NVIDIA's operator ignored the label"
            " and ran its operands there because sandboxWorkloads.enabled is not true. Purser does not run operands"
            f" there; if containers use the GPUs, remove the label: {command}"
        )
        lost.note(f"nodes {some(names, 'node', named=10)}", why, Rank.NOT_DEPLOYED)


def _is_virtual(node: Mapping[str, Any]) -> bool:
    labels = at(node, "metadata.labels")
    return isinstance(labels, dict) and labels.get(WORKLOAD_LABEL) in _VIRTUAL
