"""What holds of the file, of options and of variables, in NVIDIA's order: command line, environment, file, default.

Names and defaults are those of k8s-device-plugin and of its feature discovery. An option or a variable that is given
counts even if it is empty, as it does there.
"""

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from purser.core.decoding import UnreadableError, brief, converted
from purser.core.sharing.file import FILE, PluginFile, SharingError
from purser.core.sharing.words import MigStrategy

T = TypeVar("T", bound=msgspec.Struct)


DeviceListWord = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
"""How a container's runtime hears of its devices; several at once can be meant."""


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the device plugin goes by."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    mps_root: str = "/run/nvidia/mps"
    """On the host. NVIDIA's plugin has no default and asks for one; this is the one of its chart."""
    driver_root: str = "/"
    dev_root: str = ""
    """Empty: as `driver_root`."""
    gdrcopy: bool = False
    gds: bool = False
    mofed: bool = False
    device_discovery: Literal["auto", "nvml", "tegra"] = "auto"
    pass_device_specs: bool = False
    device_lists: tuple[DeviceListWord, ...] = ("envvar",)
    device_ids: Literal["uuid", "index"] = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_hook: str = "/usr/bin/nvidia-ctk"
    container_driver_root: str = "/driver-root"
    allocation_policy: Literal["distributed", "packed"] = "distributed"
    """Which replica a container gets first: of the GPU with the fewest taken, or the most."""
    imex_channels: tuple[int, ...] = ()
    """None, or 0 alone."""
    imex_required: bool = False


class FeatureDiscoverySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What GPU feature discovery goes by."""

    mig_strategy: MigStrategy = MigStrategy.NONE
    fail_on_init_error: bool = True
    oneshot: bool = False
    no_timestamp: bool = False
    sleep_interval_s: float = 60.0
    """Between two looks; infinite: only one."""
    output_file: str = "/etc/kubernetes/node-feature-discovery/features.d/gfd"
    machine_type_file: str = "/sys/class/dmi/id/product_name"
    use_node_feature_api: bool = True
    device_discovery: Literal["auto", "nvml", "tegra"] = "auto"


class _Flag(NamedTuple):
    field: str
    at: str
    """In the file."""
    options: tuple[str, ...]
    variables: tuple[str, ...]
    """The first that is there counts."""


_PLUGIN = (
    _Flag("mig_strategy", "flags.migStrategy", ("mig-strategy",), ("MIG_STRATEGY",)),
    _Flag("fail_on_init_error", "flags.failOnInitError", ("fail-on-init-error",), ("FAIL_ON_INIT_ERROR",)),
    _Flag("mps_root", "flags.mpsRoot", ("mps-root",), ("MPS_ROOT",)),
    _Flag("driver_root", "flags.nvidiaDriverRoot", ("driver-root", "nvidia-driver-root"), ("NVIDIA_DRIVER_ROOT",)),
    _Flag("dev_root", "flags.nvidiaDevRoot", ("dev-root", "nvidia-dev-root"), ("NVIDIA_DEV_ROOT",)),
    _Flag("gdrcopy", "flags.gdrcopyEnabled", ("gdrcopy-enabled",), ("GDRCOPY_ENABLED",)),
    _Flag("gds", "flags.gdsEnabled", ("gds-enabled",), ("GDS_ENABLED",)),
    _Flag("mofed", "flags.mofedEnabled", ("mofed-enabled",), ("MOFED_ENABLED",)),
    _Flag(
        "device_discovery",
        "flags.deviceDiscoveryStrategy",
        ("device-discovery-strategy",),
        ("DEVICE_DISCOVERY_STRATEGY",),
    ),
    _Flag("pass_device_specs", "flags.plugin.passDeviceSpecs", ("pass-device-specs",), ("PASS_DEVICE_SPECS",)),
    _Flag("device_lists", "flags.plugin.deviceListStrategy", ("device-list-strategy",), ("DEVICE_LIST_STRATEGY",)),
    _Flag("device_ids", "flags.plugin.deviceIDStrategy", ("device-id-strategy",), ("DEVICE_ID_STRATEGY",)),
    _Flag(
        "cdi_annotation_prefix",
        "flags.plugin.cdiAnnotationPrefix",
        ("cdi-annotation-prefix",),
        ("CDI_ANNOTATION_PREFIX",),
    ),
    _Flag(
        "cdi_hook",
        "flags.plugin.nvidiaCTKPath",
        ("nvidia-cdi-hook-path", "nvidia-ctk-path"),
        ("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"),
    ),
    _Flag(
        "container_driver_root",
        "flags.plugin.containerDriverRoot",
        ("driver-root-ctr-path", "container-driver-root"),
        ("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"),
    ),
    _Flag(
        "allocation_policy",
        "flags.plugin.sharedDevicesAllocationPolicy",
        ("shared-devices-allocation-policy",),
        ("SHARED_DEVICES_ALLOCATION_POLICY",),
    ),
    _Flag("imex_channels", "imex.channelIDs", ("imex-channel-ids",), ("IMEX_CHANNEL_IDS",)),
    _Flag("imex_required", "imex.required", ("imex-required",), ("IMEX_REQUIRED",)),
)

_DISCOVERY = (
    _Flag("mig_strategy", "flags.migStrategy", ("mig-strategy",), ("GFD_MIG_STRATEGY", "MIG_STRATEGY")),
    _Flag(
        "fail_on_init_error",
        "flags.failOnInitError",
        ("fail-on-init-error",),
        ("GFD_FAIL_ON_INIT_ERROR", "FAIL_ON_INIT_ERROR"),
    ),
    _Flag("oneshot", "flags.gfd.oneshot", ("oneshot",), ("GFD_ONESHOT",)),
    _Flag("no_timestamp", "flags.gfd.noTimestamp", ("no-timestamp",), ("GFD_NO_TIMESTAMP",)),
    _Flag("sleep_interval_s", "flags.gfd.sleepInterval", ("sleep-interval",), ("GFD_SLEEP_INTERVAL",)),
    _Flag("output_file", "flags.gfd.outputFile", ("output-file", "output", "o"), ("GFD_OUTPUT_FILE",)),
    _Flag("machine_type_file", "flags.gfd.machineTypeFile", ("machine-type-file",), ("GFD_MACHINE_TYPE_FILE",)),
    _Flag(
        "use_node_feature_api",
        "flags.useNodeFeatureAPI",
        ("use-node-feature-api",),
        ("GFD_USE_NODE_FEATURE_API", "USE_NODE_FEATURE_API"),
    ),
    _Flag(
        "device_discovery",
        "flags.deviceDiscoveryStrategy",
        ("device-discovery-strategy",),
        ("DEVICE_DISCOVERY_STRATEGY",),
    ),
)


PLUGIN_VARIABLES = tuple(name for flag in _PLUGIN for name in flag.variables)
"""All that `plugin_settings` heeds."""


def plugin_settings(
    file: PluginFile, options: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> PluginSettings:
    """What holds. ``options`` are those given on the command line, by name without dashes.

    Raises `SharingError`, which names the option, the variable or the place in the file.
    """
    found = _settled(PluginSettings, _PLUGIN, file, options or {}, environment or {})
    if found.imex_channels not in ((), (0,)):
        raise SharingError(f"imex.channelIDs are {list(found.imex_channels)}: there can be none, or 0 alone")
    if file.sharing.mps is not None and found.mig_strategy is MigStrategy.MIXED:
        raise SharingError(f"{FILE}: sharing.mps goes with the MIG strategies none and single, not with mixed")
    return msgspec.structs.replace(found, dev_root=found.dev_root or found.driver_root)


def discovery_settings(
    file: PluginFile, options: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> FeatureDiscoverySettings:
    """The same for GPU feature discovery. Raises `SharingError`."""
    return _settled(FeatureDiscoverySettings, _DISCOVERY, file, options or {}, environment or {})


def _settled(
    kind: type[T],
    flags: tuple[_Flag, ...],
    file: PluginFile,
    options: Mapping[str, str],
    environment: Mapping[str, str],
) -> T:
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    found = {}
    for flag in flags:
        option = next((name for name in flag.options if name in options), None)
        variable = next((name for name in flag.variables if name in environment), None)
        if option is not None:
            where, said = f"option --{option}", _as(types[flag.field], options[option])
        elif variable is not None:
            where, said = f"variable {variable}", _as(types[flag.field], environment[variable])
        else:
            where, said = f"{FILE}: {flag.at}", _in(file, flag.at)
        if said is not None:
            found[flag.field] = _checked(said, types[flag.field], where)
    return kind(**found)


def _in(file: PluginFile, at: str) -> Any:
    """What the file says there; None: nothing."""
    value: Any = file
    for part in at.split("."):
        names = {field.encode_name: field.name for field in msgspec.structs.fields(value)}
        value = getattr(value, names[part])
    return value


_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False", ""), False),
}
"""As Go parses them; empty is false there, too."""


_CHANNEL = re.compile(r"[0-9]{1,18}", re.ASCII)


def _as(kind: Any, text: str) -> Any:
    """A text of the command line or the environment as what it stands for; what stands for nothing stays a text."""
    if kind is bool:
        return _BOOLEANS.get(text, text)
    if kind == tuple[int, ...]:
        return tuple(int(each) if _CHANNEL.fullmatch(each.strip()) else each for each in text.split(","))
    return text


def _checked(value: Any, kind: Any, where: str) -> Any:
    if kind is float:
        seconds = _seconds(value)
        if seconds is None:
            raise SharingError(f"{where} is {brief(value)}, which is no duration such as 60s")
        return seconds
    if kind == tuple[DeviceListWord, ...] and isinstance(value, str):
        value = tuple(each.strip() for each in value.split(","))
    words = _words(kind)
    for each in value if isinstance(value, tuple) else (value,):
        if words and isinstance(each, str) and each not in words:
            raise SharingError(f"{where} is {brief(each)}: give {' or '.join(words)}")
    try:
        return converted(value, kind, where)
    except UnreadableError as error:
        raise SharingError(str(error)) from error


def _words(kind: Any) -> tuple[str, ...]:
    """All that a value may be, or each of a list; empty: there are no words for it."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(kind)
    of = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return get_args(of) if get_origin(of) is Literal else ()


_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LONGEST_NS = 2**63
"""Go has no longer duration; its file's word for this one is ``infinite``."""
_MAX_DURATION = 200
"""Characters of one that is written."""


def _seconds(value: int | float | str) -> float | None:
    """A duration as the file has it; None: it is none."""
    if isinstance(value, int | float):
        seconds = value * 1e-9 if abs(value) <= _LONGEST_NS else math.nan
    elif value == "infinite":
        return math.inf
    else:
        text = value.removeprefix("+").removeprefix("-")
        if len(text) > _MAX_DURATION:
            return None
        if text != "0" and not (text and _DURATION.sub("", text) == ""):
            return None
        sign = -1.0 if value.startswith("-") else 1.0
        seconds = sign * sum(float(number) * _UNITS_S[unit] for number, unit in _DURATION.findall(text))
    return seconds if abs(seconds) <= _LONGEST_NS * 1e-9 else None
