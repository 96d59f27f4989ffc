"""What holds of the file, of options and of variables, in NVIDIA's order: command line, environment, file, default.

Names and defaults are those of k8s-device-plugin. An option or a variable that is given counts even if it is empty, as
it does there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from purser.core.decoding import UnreadableError, brief, convert_value
from purser.core.kubernetes.booleans import parse_bool
from purser.core.salvaging import shown
from purser.core.sharing.file import FILE, PluginFile, SharingError
from purser.core.sharing.words import MigStrategy

DeviceListStrategy = Literal["envvar", "volume-mounts", "cdi-annotations", "cdi-cri"]
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
    device_lists: tuple[DeviceListStrategy, ...] = ("envvar",)
    device_ids: Literal["uuid", "index"] = "uuid"
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_hook: str = "/usr/bin/nvidia-ctk"
    container_driver_root: str = "/driver-root"
    allocation_policy: Literal["distributed", "packed"] = "distributed"
    """Which replica a container gets first: of the GPU with the fewest taken, or the most."""
    imex_channels: tuple[int, ...] = ()
    """None, or 0 alone."""
    imex_required: bool = False


class _Flag(NamedTuple):
    field: str
    at: str
    """In the file."""
    options: tuple[str, ...]
    variables: tuple[str, ...]
    """The first that is there counts."""


_FLAGS = (
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

PLUGIN_VARIABLES = tuple(name for flag in _FLAGS for name in flag.variables)
"""All that `plugin_settings` heeds."""


def plugin_settings(
    file: PluginFile, options: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> PluginSettings:
    """What holds. ``options`` are those given on the command line, by name without dashes.

    Raises `SharingError`, which names the option, the variable or the place in the file.
    """
    found = PluginSettings(**dict(_given_settings(file, options or {}, environment or {})))
    for _, conflict in _conflicts(file, found):
        raise SharingError(conflict)
    return msgspec.structs.replace(found, dev_root=found.dev_root or found.driver_root)


def usable_file(
    file: PluginFile, options: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> tuple[PluginFile, tuple[str, ...]]:
    """The file without what `plugin_settings` would refuse because of it, and a sentence for each thing left out.

    Raises `SharingError` where options and variables alone are refused.
    """
    problems = []
    for flag in _FLAGS:
        try:
            dict(_given_settings(_only_field(file, flag.at), {}, {}))
        except SharingError as error:
            problems.append(f"{error}. The value is ignored")
            file = _without_value(file, flag.at)
    plugin_settings(PluginFile(), options, environment)
    found = PluginSettings(**dict(_given_settings(file, options or {}, environment or {})))
    for at, conflict in _conflicts(file, found):
        problems.append(f"{conflict}. {at} is ignored")
        file = _without_value(file, at)
    return file, tuple(problems)


def with_last_flags(file: PluginFile, problems: Iterable[str], last: PluginFile) -> tuple[PluginFile, tuple[str, ...]]:
    """The file with the flags that the last good one has, in place of those with mistakes: a typo is not to take a
    node's MIG devices away. And a sentence for each. ``problems``: of the file, as it was read."""
    bare = [each.removeprefix(f"{FILE}: ") for each in problems]
    notes = []
    for at in (flag.at for flag in _FLAGS):
        sections = (at.rsplit(".", depth)[0] for depth in range(at.count(".") + 1))
        is_mistaken = any(each.startswith(f"{section} is ") for section in sections for each in bare)
        if is_mistaken and _value_at(file, at) is None and (before := _value_at(last, at)) is not None:
            file = _with_value(file, at, before)
            last_value = ", ".join(map(str, before)) if isinstance(before, tuple) else shown(before)
            notes.append(f"{FILE}: {at}: the value from the last valid file stays in effect: {last_value}")
    return file, tuple(notes)


def _conflicts(file: PluginFile, found: PluginSettings) -> Iterator[tuple[str, str]]:
    """What does not go together: which part of the file is the later word, and a sentence."""
    if found.imex_channels not in ((), (0,)):
        at = "imex.channelIDs"
        yield at, f"{_place(file, at)} is {list(found.imex_channels)}, but must be empty or contain only 0"
    if file.sharing.mps is not None and found.mig_strategy in (MigStrategy.MIXED, MigStrategy.ON_DEMAND):
        restriction = f"works only with the MIG strategies none and single, not with {found.mig_strategy}"
        yield "sharing.mps", f"{FILE}: sharing.mps {restriction}: use sharing.timeSlicing, or another flags.migStrategy"
    if found.device_ids == "index" and found.mig_strategy is MigStrategy.ON_DEMAND:
        at = "flags.plugin.deviceIDStrategy"
        restriction = "index does not work with the MIG strategy on-demand, because the indexes of MIG devices change"
        yield at, f"{_place(file, at, 'deviceIDStrategy')} {restriction}. Use uuid"


def _place(file: PluginFile, at: str, name: str = "") -> str:
    """What a sentence on a setting begins with: with the file only where the file says it, and not an option or a
    variable."""
    return f"{FILE}: {name or at}" if _value_at(file, at) is not None else name or at


def _only_field(file: PluginFile, at: str) -> PluginFile:
    """A file that says nothing else."""
    only: PluginFile = _with_value(PluginFile(), at, _value_at(file, at))
    return only


def _without_value(file: PluginFile, at: str) -> PluginFile:
    kept: PluginFile = _with_value(file, at, None)
    return kept


def _with_value(value: Any, at: str, new: Any) -> Any:
    """A copy that says this at a place in the file."""
    key, _, rest = at.partition(".")
    (name,) = (field.name for field in msgspec.structs.fields(value) if field.encode_name == key)
    return msgspec.structs.replace(value, **{name: _with_value(getattr(value, name), rest, new) if rest else new})


def _given_settings(
    file: PluginFile, options: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Each field of `PluginSettings` of which something is said, and what."""
    types = {field.name: field.type for field in msgspec.structs.fields(PluginSettings)}
    for flag in _FLAGS:
        option = next((name for name in flag.options if name in options), None)
        variable = next((name for name in flag.variables if name in environment), None)
        if option is not None:
            where, value = f"option --{option}", _convert_text(types[flag.field], options[option])
        elif variable is not None:
            where, value = f"variable {variable}", _convert_text(types[flag.field], environment[variable])
        else:
            where, value = f"{FILE}: {flag.at}", _value_at(file, flag.at)
        if value is not None:
            yield flag.field, _checked(value, types[flag.field], where)


def _value_at(file: PluginFile, at: str) -> Any:
    """What the file says there; None: nothing."""
    value: Any = file
    for part in at.split("."):
        value = getattr(value, _names(value.__class__)[part])
    return value


@cache
def _names(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    """Its fields, by their names in the file."""
    return {field.encode_name: field.name for field in msgspec.structs.fields(kind)}


_CHANNEL = re.compile(r"[0-9]{1,18}", re.ASCII)


def _convert_text(kind: Any, text: str) -> Any:
    """A text of the command line or the environment as what it stands for; what stands for nothing stays a text."""
    if kind is bool:
        value = parse_bool(text) if text else False
        return text if value is None else value
    if kind == tuple[int, ...]:
        return tuple(int(each) if _CHANNEL.fullmatch(each.strip()) else each for each in text.split(","))
    return text


def _choice(words: Sequence[str]) -> str:
    return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"


def _checked(value: Any, kind: Any, where: str) -> Any:
    if kind == tuple[DeviceListStrategy, ...] and isinstance(value, str):
        value = tuple(each.strip() for each in value.split(","))
    words = _words(kind)
    for each in value if isinstance(value, tuple) else (value,):
        if words and isinstance(each, str) and each not in words:
            raise SharingError(f"{where} is {brief(each)}, but must be {_choice(words)}")
    try:
        return convert_value(value, kind, where)
    except UnreadableError as error:
        raise SharingError(str(error)) from error


def _words(kind: Any) -> tuple[str, ...]:
    """All that a value may be, or each of a list; empty: there are no words for it."""
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return tuple(kind)
    of = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return get_args(of) if get_origin(of) is Literal else ()
