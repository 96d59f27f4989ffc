"""kubelet's configuration file (KubeletConfiguration, YAML or JSON), as far as admission goes."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from purser.core.decoding import UnreadableError, convert_value
from purser.core.kubelet.config import (
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyPolicy,
    TopologyScope,
    cpu_options,
    topology_options,
)
from purser.core.kubernetes.quantities import QuantityLike, quantity_ceil, quantity_milli
from purser.yaml_reading import read_yaml

MAX_KUBELET_CONFIG_BYTES = 1024 * 1024
"""A longer configuration is none."""

_KIND = "KubeletConfiguration"

Word = str | int | bool
Amounts = dict[str, QuantityLike] | None
E = TypeVar("E", bound=str)
Options = TypeVar("Options")


class KubeletConfigError(ValueError):
    """A file that is not a configuration of a kubelet that runs; the message names the field."""


class _ReservedMemory(msgspec.Struct, frozen=True, rename="camel"):
    numa_node: int
    limits: Amounts = None


class _File(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    topology_manager_policy: str | None = None
    topology_manager_scope: str | None = None
    topology_manager_policy_options: dict[str, Word] | None = None
    cpu_manager_policy: str | None = None
    cpu_manager_policy_options: dict[str, Word] | None = None
    reserved_system_cpus: str | int | None = msgspec.field(default=None, name="reservedSystemCPUs")
    system_reserved: Amounts = None
    kube_reserved: Amounts = None
    memory_manager_policy: str | None = None
    reserved_memory: list[_ReservedMemory] | None = None


def parse_config(text: bytes, version: str) -> KubeletConfig:
    """The configuration of a kubelet of this version. Raises `KubeletConfigError`."""
    file = _parse(text)
    return KubeletConfig(
        version=version,
        topology_policy=_choice("topologyManagerPolicy", file.topology_manager_policy, TopologyPolicy.NONE),
        topology_scope=_choice("topologyManagerScope", file.topology_manager_scope, TopologyScope.CONTAINER),
        topology_options=_options(topology_options, file.topology_manager_policy_options),
        cpu_policy=_choice("cpuManagerPolicy", file.cpu_manager_policy, CpuPolicy.NONE),
        cpu_options=_options(cpu_options, file.cpu_manager_policy_options),
        reserved_cpus="" if file.reserved_system_cpus is None else str(file.reserved_system_cpus),
        reserved_cpu_millis=_cpu_of("systemReserved", file.system_reserved)
        + _cpu_of("kubeReserved", file.kube_reserved),
        memory_policy=_choice("memoryManagerPolicy", file.memory_manager_policy, MemoryPolicy.NONE),
        reserved_memory=_reserved_memory(file.reserved_memory or []),
    )


def _parse(text: bytes) -> _File:
    try:
        file = convert_value(read_yaml(text, "it", max_bytes=MAX_KUBELET_CONFIG_BYTES), _File, "it")
    except UnreadableError as error:
        raise KubeletConfigError(str(error)) from error
    if file.kind != _KIND:
        raise KubeletConfigError(f"kind is {file.kind!r}: must be {_KIND}")
    return file


def _choice(field: str, value: str | None, default: E) -> E:
    """A policy by its name; empty and absent mean kubelet's default."""
    try:
        return type(default)(value) if value else default
    except ValueError as error:
        raise KubeletConfigError(f"{field}: unknown value {value!r}") from error


def _options(read: Callable[[Mapping[str, object]], Options], values: dict[str, Word] | None) -> Options:
    try:
        return read(values or {})
    except ValueError as error:
        raise KubeletConfigError(str(error)) from error


def _cpu_of(field: str, amounts: Amounts) -> int:
    try:
        return quantity_milli((amounts or {}).get("cpu", 0))
    except ValueError as error:
        raise KubeletConfigError(f"{field}.cpu: {error}") from error


def _reserved_memory(entries: list[_ReservedMemory]) -> dict[int, dict[str, int]]:
    found: dict[int, dict[str, int]] = {}
    for entry in entries:
        where = f"reservedMemory for NUMA node {entry.numa_node}"
        try:
            amounts = {name: quantity_ceil(amount) for name, amount in (entry.limits or {}).items()}
        except ValueError as error:
            raise KubeletConfigError(f"{where}: {error}") from error
        found[entry.numa_node] = found.get(entry.numa_node, {}) | amounts
    return found
