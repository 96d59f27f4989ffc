"""Options of a server, each said once: beside its field in the server's settings type.

``slots: Annotated[int, Option("How many containers may share a GPU.", value="agent.slots")] = 10`` is the option
``--slots`` of the command and the value ``agent.slots`` of the Helm chart. From such fields come the command line
(`purser.cli.from_settings`), the sentences, bounds and patterns of the chart's values and docs/options.md (both written
by scripts/generate_options.py). A field without an `Option` can be set by code only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, MISSING, dataclass, field, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from purser.core.device.resources import gpu_resource
from purser.core.pod.units import read_unit

REQUIRED = MISSING
"""The default of what has none."""

T = TypeVar("T")


@dataclass(frozen=True)
class Option:
    """How a field is set on the command line. Several on one field exclude each other."""

    help: str
    """One sentence, for ``--help``, the chart's values and the reference."""
    _: KW_ONLY
    name: str = ""
    """Without dashes before it. Empty: the field's, with dashes for underscores."""
    metavar: str = ""
    environment: str = ""
    """The variable that says it, too."""
    value: str = ""
    """The chart's value that says it, such as ``agent.slots``."""
    minimum: int | None = None
    maximum: int | None = None
    type_checks: bool = False
    """The settings type itself refuses what is out of these bounds, in its own words."""
    words: tuple[str, ...] = ()
    """All that it may be. Empty: of an enumeration all words, of anything else whatever its type can be."""
    read: Callable[[str], object] | None = None
    """Makes the value of the text, where the type alone does not say how. Raises ValueError."""
    form: str = ""
    """What `read` wants, where its errors do not say so: ``NAMESPACE/NAME``."""
    pattern: str = ""
    """What the chart's value must match, as JSON schemas have it: what `read` wants, before anything is installed."""
    repeated: bool = False
    """May be given several times, and makes a tuple."""
    skips_empty: bool = False
    """What is empty does not count: of several that may be given, one that is empty says that there are none."""


@dataclass(frozen=True)
class Variables:
    """For a field that is only set by environment variables."""

    help: str
    names: tuple[str, ...]
    read: Callable[[Mapping[str, str]], object]


@dataclass(frozen=True)
class OptionGroup:
    """Of a field whose value has options of its own."""

    switch: Option | None = None
    """Turned off, the field is None, and its options do not count."""
    parts: Mapping[str, Option] = field(default_factory=dict)
    """Options by field, for a type that knows none."""


@dataclass(frozen=True)
class OptionField:
    """One option in its place."""

    path: tuple[str, ...]
    """Fields that lead to it, from the settings type on."""
    kind: Any
    """Type of the value, where it is not None."""
    default: Any
    option: Option | Variables

    @property
    def name(self) -> str:
        """Of the option, without dashes before it."""
        return getattr(self.option, "name", "") or self.path[-1].replace("_", "-")

    @property
    def flag(self) -> str:
        """The option, as it is typed."""
        return f"--{self.name}"

    @property
    def words(self) -> tuple[str, ...]:
        """All that it may be; empty: whatever its type can be."""
        if isinstance(self.option, Variables):
            return ()
        enumeration = isinstance(self.kind, type) and issubclass(self.kind, StrEnum)
        return self.option.words or (tuple(self.kind) if enumeration else ())


def settings_of(kind: type, at: tuple[str, ...] = ()) -> Iterator[OptionField]:
    """All options of a settings type, in the order of its fields; a group's switch comes before its options."""
    for name, hint, default in _annotated(kind):
        path = (*at, name)
        plain = _without_none(get_args(hint)[0])
        for annotated in hint.__metadata__:
            if not isinstance(annotated, OptionGroup):
                yield OptionField(path, plain, default, annotated)
                continue
            if annotated.switch is not None:
                yield OptionField(path, bool, default is not None, annotated.switch)
            if annotated.parts:
                hints = get_type_hints(plain)
                yield from (
                    OptionField((*path, n), hints[n], getattr(default, n), o) for n, o in annotated.parts.items()
                )
            else:
                yield from settings_of(plain, path)


def settings_from(kind: type[T], given: Mapping[str, Any], environment: Mapping[str, str]) -> T:
    """The settings for what was given, by name of the option; None, or no entry: it was not given.

    Raises ValueError, with the option, for what is none of its words or cannot be read.
    """
    values: dict[tuple[str, ...], Any] = {}
    by: dict[tuple[str, ...], OptionField] = {}
    off: set[tuple[str, ...]] = set()
    for each in settings_of(kind):
        if any(each.path[: len(group)] == group for group in off):
            continue
        if isinstance(each.option, Variables):
            values[each.path] = each.option.read(environment)
        elif (value := given.get(each.name)) is not None and not (value == "" and each.option.skips_empty):
            if each.path in values:
                raise ValueError(f"{by[each.path].flag} and {each.flag} are mutually exclusive")
            values[each.path], by[each.path] = _read(each, each.option, value), each
            if value is False:
                off.add(each.path)
    return _made(kind, (), values)


def _made(kind: type[T], at: tuple[str, ...], values: Mapping[tuple[str, ...], Any]) -> T:
    found: dict[str, Any] = {}
    for name, hint, _ in _annotated(kind):
        path = (*at, name)
        group = next((each for each in hint.__metadata__ if isinstance(each, OptionGroup)), None)
        if group is None:
            found |= {name: values[path]} if path in values else {}
        elif group.switch is not None and not values.get(path, True):
            found[name] = None
        else:
            plain = _without_none(get_args(hint)[0])
            parts = {part: values[*path, part] for part in group.parts if (*path, part) in values}
            found[name] = plain(**parts) if group.parts else _made(plain, path, values)
    return kind(**found)


def _annotated(kind: type) -> Iterator[tuple[str, Any, Any]]:
    """Name, annotation and default of each field that has an option."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        hint = hints[each.name]
        if get_origin(hint) is Annotated:
            yield each.name, hint, each.default if each.default_factory is MISSING else each.default_factory()


def _without_none(hint: Any) -> Any:
    """Of ``X | None`` the X."""
    rest = [each for each in get_args(hint) if each is not NoneType]
    return rest[0] if get_origin(hint) in (Union, UnionType) and len(rest) == 1 else hint


def _read(setting: OptionField, option: Option, given: Any) -> Any:
    if option.repeated:
        return tuple(_read_one(setting, option, each) for each in given if each or not option.skips_empty)
    return _read_one(setting, option, given)


def _read_one(setting: OptionField, option: Option, given: Any) -> Any:
    if setting.words:
        if given not in setting.words:
            raise ValueError(f"invalid value {given!r} for {setting.flag}: must be {' or '.join(setting.words)}")
        return (get_args(setting.kind)[0] if option.repeated else setting.kind)(given)
    if option.read is None:
        return given
    try:
        return option.read(given)
    except ValueError as error:
        raise ValueError(
            f"invalid value {given!r} for {setting.flag}: must be {option.form}"
            if option.form
            else f"{setting.flag}: {error}"
        ) from None


def default_text(value: object) -> str:
    """A default as it is typed; empty: there is none, or it is none of the words that one could type."""
    if value is None or value is REQUIRED or is_dataclass(value):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(str, value))
    return str(value)


PORT_MAXIMUM = 65535

NODE_NAME = Option("This node's name in Kubernetes.", environment="NODE_NAME")
MEMORY_UNITS = Option(
    "Number of MiB in one unit of a resource, such as aliyun.com/gpu-mem=1. It corresponds to gpushare's --memory-unit "
    "and Volcano's gpu-memory-factor, and must be the same for agents and scheduler. Default: aliyun.com/gpu-mem=1024, "
    "volcano.sh/gpu-memory=1 and volcano.sh/vgpu-memory=1.",
    name="memory-unit",
    value="memoryUnits",
    read=read_unit,
    repeated=True,
)
MANAGED_RESOURCES = Option(
    "Additional resources under which nodes list GPUs and about which kube-scheduler asks Purser: other names from "
    "the device plugin's file (nvidia.com/gpu.<name>), or MIG profiles of new GPUs. Agents do not list any other "
    "names. Must be the same for agents and scheduler.",
    name="managed-resource",
    value="scheduler.kubeScheduler.managedResources",
    read=gpu_resource,
    pattern="^nvidia\\.com/(gpu[.-]|mig-)[-.a-z0-9]+$",
    repeated=True,
    skips_empty=True,
)
METRICS_ADDRESS = Option("Address to serve metrics and health on.")
AGENT_METRICS_PORT = 9440
"""The agent's default, also in the operator's DaemonSet."""
METRICS_PORT = Option("Port to serve metrics and health on; 0 picks a free one.", minimum=0, maximum=PORT_MAXIMUM)
HOST_ROOT = Option("Where the host's root file system is mounted.")
SYSFS_ROOT = Option("Where sysfs is mounted.")
DRIVER_LIBRARY = Option("Path to libnvidia-ml.so.1, if the library is not in a standard location.")
DRIVER_ROOTS = Option(
    "Root of the driver installation, such as /run/nvidia/driver. If there are several, the first one that contains "
    "the library is used.",
    name="driver-root",
    repeated=True,
)
DRIVER_ROOT_FILE = Option("Path to NVIDIA's driver-ready file. If the file exists, it overrides the driver root.")
