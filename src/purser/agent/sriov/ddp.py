"""The DDP package (dynamic device personalization) that runs on a network controller of Intel's.

As the SR-IOV network device plugin has it: the kernel's devlink information ``fw.app.name`` (E800 series, driver
``ice``), else what Intel's ddptool says (700 series, driver ``i40e``, whose packages no interface of the kernel names).
A package is the whole controller's: that of a VF is its PF's.

A simulated host has no network namespace that could be asked: below its ``sys/devlink/pci`` is a file for a controller,
with a line of name and value for each information.
"""

import os
import time
from collections.abc import Callable, Collection
from pathlib import Path

import structlog
from msgspec.structs import replace

from purser.agent.host.files import read_head
from purser.agent.sriov.ddptool import MAX_PACKAGE_NAME_LENGTH, DdpError, ddptool_of, package_by_ddptool
from purser.agent.sriov.netlink import GenericNetlink, attributes
from purser.agent.sriov.sysfs import SriovTree, read_devices
from purser.core.sriov.configuration import SriovConfig, SriovDeviceType
from purser.core.sriov.devices import NodeDevices

log = structlog.get_logger("purser.agent")

PACKAGE_NAME = "fw.app.name"
"""Of the running firmware's versions: https://docs.kernel.org/networking/devlink/ice.html."""

REQUERY_PERIOD_S = 60.0
"""What was said of a controller holds for so long: ddptool is a process, and packages are loaded by hand."""

_FAMILY, _INFO_GET, _BUS_NAME, _DEVICE_NAME = "devlink", 51, 1, 2
_RUNNING, _VERSION_NAME, _VERSION_VALUE = 101, 103, 104
"""include/uapi/linux/devlink.h."""

_INTEL = "8086"
_MAX_SIMULATED_BYTES = 4096


class DdpPackages:
    """Of one node's controllers. Blocks: a ddptool that hangs for its deadline, once a minute for all of them."""

    def __init__(self, host_root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._host_root = host_root
        self._namespace = host_root / "proc/1/ns/net"
        self._clock = clock
        self._known: dict[str, tuple[float, str]] = {}
        """By address: when that was asked, and the package."""
        self._tool_failed_at = -REQUERY_PERIOD_S

    def of(self, addresses: Collection[str]) -> dict[str, str]:
        """By PCI address the package's name; empty: none, or that was never told. Where it cannot be told now, what was
        told last holds."""
        for address in addresses:
            now = self._clock()
            asked_at, package = self._known.get(address, (-REQUERY_PERIOD_S, ""))
            if now < asked_at + REQUERY_PERIOD_S:
                continue
            try:
                package = self._ask(address)
            except DdpError as error:
                log.warning(
                    "Cannot determine the DDP package of a network controller", address=address, error=str(error)
                )
            self._known[address] = now, package
        return {address: self._known[address][1] for address in addresses}

    def _ask(self, address: str) -> str:
        if not os.path.lexists(self._namespace):  # that of a process which may not be looked into is there
            return _simulated_package(self._host_root / "sys/devlink/pci" / address)
        return self._ask_kernel(address) or self._ask_tool(address)

    def _ask_kernel(self, address: str) -> str:
        try:
            with GenericNetlink(self._namespace) as kernel:
                answer = kernel.ask(_FAMILY, _INFO_GET, {_BUS_NAME: "pci", _DEVICE_NAME: address})
        except TimeoutError as error:
            raise DdpError("the kernel did not answer a devlink request") from error
        except OSError as error:  # no devlink, or not of this device: most drivers
            log.debug("No devlink information", address=address, error=str(error))
            return ""
        return running_versions(answer).get(PACKAGE_NAME, "")

    def _ask_tool(self, address: str) -> str:
        tool = ddptool_of(self._host_root, self._namespace)
        if not tool:
            return ""
        if self._clock() < self._tool_failed_at + REQUERY_PERIOD_S:
            raise DdpError("ddptool failed recently")
        try:
            return package_by_ddptool(tool, address)
        except DdpError:
            self._tool_failed_at = self._clock()
            raise


def read_node(tree: SriovTree, config: SriovConfig, packages: DdpPackages) -> NodeDevices:
    """All that the configuration's selectors go by. Raises `RoutesError`. Blocks."""
    found = read_devices(tree)
    return with_packages(found, packages) if config.selects_by_package else found


def with_packages(node: NodeDevices, packages: DdpPackages) -> NodeDevices:
    """The node, each of Intel's network devices with the package of its controller. Blocks."""
    controllers = {
        each.id: each.pf_address or each.address
        for each in node.devices
        if each.vendor == _INTEL and each.type is SriovDeviceType.NET_DEVICE
    }
    named = packages.of(sorted(set(controllers.values())))
    devices = (
        replace(each, ddp_profile=named[controllers[each.id]]) if each.id in controllers else each
        for each in node.devices
    )
    return replace(node, devices=tuple(devices))


def running_versions(answer: bytes) -> dict[str, str]:
    """Names and values of the running firmware's versions, of an answer's attributes."""
    found = {}
    for kind, content in attributes(answer):
        if kind == _RUNNING:
            version = dict(attributes(content))
            found[_decode_string(version.get(_VERSION_NAME, b""))] = _decode_string(version.get(_VERSION_VALUE, b""))
    return found


def _decode_string(content: bytes) -> str:
    return content.partition(b"\0")[0].decode(errors="replace")[:MAX_PACKAGE_NAME_LENGTH]


def _simulated_package(path: Path) -> str:
    try:
        lines = read_head(path, _MAX_SIMULATED_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ""
    named = dict(line.partition(" ")[::2] for line in lines)
    return named.get(PACKAGE_NAME, "")[:MAX_PACKAGE_NAME_LENGTH]
