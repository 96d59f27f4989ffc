"""Nodes and pods in one YAML file, written by hand::

    nodes:
      - {name: a, count: 4, gpus: 8, model: A100, cpu: 96, memory: 768Gi}
    pods:
      - {name: train, count: 3, gpus: 2, cpu: 16, memory: 64Gi, arrives: 0, every: 600, lasts: 7200}
      - {name: notebook, count: 20, gpus: 1, gpu_milli: 250, models: [A100], arrives: 60, every: 60, lasts: 3600}

``count`` makes so many, named ``<name>-0``, ``<name>-1``, ...; times are seconds, and ``every`` is between two of them.
A pod without ``gpu_milli`` has its GPUs whole. CPU and memory are Kubernetes quantities; a node that says nothing of
them has enough. A node's ``mig: A100-40GB`` says that its GPUs are cut on demand, as GPUs of that kind; a pod's
``mig: 1g.5gb`` that it asks for such GPU instances, as many as ``gpus`` says, or one. In a list with such nodes
``gpu_milli`` counts in percent, rounded up. ``family: Hygon DCU``, of a node or a pod, is about devices of that family
of another vendor (`purser.core.vendors`); such a node needs no ``model``.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml

from purser.core.device.resources import mig_resource
from purser.core.fleet.facts import FleetNodeFacts, GpuFacts
from purser.core.fleet.free_resources import MANY
from purser.core.kubernetes.quantities import QuantityError, quantity_mib, quantity_milli
from purser.core.mig.listing import max_instances
from purser.core.mig.profiles import MIG_KINDS
from purser.core.model import WHOLE_MILLI, WHOLE_PERCENT, DeviceMode, Enforcement
from purser.core.names import GPU_RESOURCE
from purser.core.placement.shape import PodShape
from purser.core.vendors.catalogue import FAMILIES
from purser.core.wording import counted
from purser.simulator.files import read_text
from purser.simulator.openb import MAX_AMOUNT, MAX_GPUS, parse_number, whole_number
from purser.simulator.problems import FileProblems, InputError, Problem
from purser.simulator.workload import PODS_PER_NODE, SLOTS, SimPod, SimWorkload, has_bounds, mig_kinds

NODE_FIELDS = ("name", "count", "gpus", "model", "family", "mig", "cpu", "memory")
_SHARED_POD_FIELDS = ("gpus", "gpu_milli", "family", "mig", "models", "cpu", "memory", "arrives", "every", "lasts")
POD_FIELDS = ("name", "count", *_SHARED_POD_FIELDS)

NO_BOUNDS_NOTE = (
    "bounds are not supported for lists with GPUs that are partitioned on demand, or with other vendors' GPUs"
)

MAX_ENTRIES = 2_000_000
"""Nodes, and pods."""

MAX_NESTING = 16
"""Lists and mappings within one another; a workload has three."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_workload(path: Path) -> SimWorkload:
    """Both lists of a file. Raises `InputError` with everything that is wrong."""
    problems = FileProblems(path)
    root = _compose_root(path)
    top = _Entry(root, ("nodes", "pods"), problems) if root is not None else None
    if top is None:
        problems.add(1, 1, "the file is empty: must contain nodes and pods")
        raise InputError(problems.found)
    nodes = _read_entries(top, "nodes", NODE_FIELDS, _nodes, problems)
    kinds = mig_kinds(tuple(nodes))
    pods = _read_entries(top, "pods", POD_FIELDS, partial(_pods, kinds=kinds), problems)
    problems.raise_if_any()
    notes = () if has_bounds(tuple(nodes)) else (NO_BOUNDS_NOTE,)
    return SimWorkload(path.name, tuple(nodes), tuple(pods), notes)


def _compose_root(path: Path) -> yaml.Node | None:
    text = read_text(path)
    try:
        _check_depth(path, text)
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        raise InputError([Problem(str(path), line, column, f"invalid YAML: {error.problem}")]) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise InputError([Problem(str(path), 1, 1, f"invalid YAML: {str(error).splitlines()[0]}")]) from error
    return node


def _check_depth(path: Path, text: str) -> None:
    """The composer in C goes as deep as the file does, and ends the process. Raises `InputError`."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_NESTING:
            line, column = (event.start_mark.line, event.start_mark.column) if event.start_mark else (0, 0)
            raise InputError(
                [Problem(str(path), line + 1, column + 1, f"the file is nested more than {MAX_NESTING} levels deep")]
            )


class _Entry:
    """One mapping, its values by field."""

    def __init__(self, node: yaml.Node, fields: Sequence[str], problems: FileProblems) -> None:
        self.node, self.problems = node, problems
        self.values: dict[str, yaml.Node] = {}
        if not isinstance(node, yaml.MappingNode):
            self.wrong(node, f"expected a mapping with {', '.join(fields)}")
            return
        for key, value in node.value:
            if key.value not in fields:
                self.wrong(key, f"unknown field {str(key.value)[:40]!r}: must be one of {', '.join(fields)}")
            elif key.value in self.values:
                self.wrong(key, f"{key.value} appears twice")
            else:
                self.values[key.value] = value

    def wrong(self, node: yaml.Node, message: str) -> None:
        """Note what is wrong, where the node begins."""
        self.problems.add(node.start_mark.line + 1, node.start_mark.column + 1, message)

    def text(self, field: str) -> str:
        """A word; empty where it is not there."""
        node = self.values.get(field)
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            self.wrong(node, f"{field} must be a single string")
            return ""
        return str(node.value)

    def name(self) -> str:
        """Its name; it must have one."""
        if "name" not in self.values:
            self.wrong(self.node, "the entry has no name")
        return self.text("name")

    def whole(self, field: str, default: int, least: int, most: int) -> int:
        """A whole number."""
        text = self.text(field)
        if not text:
            return default
        number = whole_number(text)
        if number is None or not least <= number <= most:
            self.wrong(
                self.values[field], f"invalid value {text!r} for {field}: must be an integer from {least} to {most}"
            )
            return default
        return number

    def seconds(self, field: str) -> float | None:
        """A time, None where it is not there."""
        text = self.text(field)
        found = parse_number(text)
        if text and found is None:
            self.wrong(
                self.values[field], f"invalid value {text!r} for {field}: must be a number of seconds, 0 or more"
            )
        return found

    def quantity(self, field: str, default: int, read: Callable[[str], int]) -> int:
        """A Kubernetes quantity, in the unit that it is read in."""
        text = self.text(field)
        if not text:
            return default
        try:
            value = read(text)
        except QuantityError as error:
            self.wrong(self.values[field], f"{field}: {error}")
            return default
        if not 0 <= value <= MAX_AMOUNT:
            self.wrong(
                self.values[field], f"invalid value {text!r} for {field}: must be a realistic amount of 0 or more"
            )
            return default
        return value

    def words(self, field: str) -> tuple[str, ...]:
        """A list of words."""
        node = self.values.get(field)
        if node is None:
            return ()
        items = node.value if isinstance(node, yaml.SequenceNode) else None
        if items is None or not all(isinstance(item, yaml.ScalarNode) and item.value for item in items):
            self.wrong(node, f"{field} must be a list of strings")
            return ()
        return tuple(str(item.value) for item in items)


def _read_entries(
    top: _Entry,
    field: str,
    fields: Sequence[str],
    make: "Callable[[_Entry, int], list[Any]]",
    problems: FileProblems,
) -> list[Any]:
    node = top.values.get(field)
    if not isinstance(node, yaml.SequenceNode) or not node.value:
        top.wrong(node or top.node, f"{field} must be a list with at least one entry")
        return []
    found: list[Any] = []
    names: set[str] = set()
    for item in node.value:
        entry = _Entry(item, fields, problems)
        count = entry.whole("count", 1, 1, MAX_ENTRIES)
        if len(found) + count > MAX_ENTRIES:
            entry.wrong(item, f"the entry creates more than {MAX_ENTRIES} {field}")
            return found
        made = make(entry, count)
        if taken := names.intersection(each.name for each in made):
            entry.wrong(entry.values.get("name", item), f"{min(taken)!r} appears twice")
        names.update(each.name for each in made)
        found += made
    return found


def _nodes(entry: _Entry, count: int) -> list[FleetNodeFacts]:
    name, model = entry.name(), entry.text("model") or entry.text("family")
    gpus = entry.whole("gpus", 0, 0, MAX_GPUS)
    if gpus and not model:
        entry.wrong(entry.node, f"the entry has {counted(gpus, 'GPU')} but no model: set model as well")
    cpu, memory = entry.quantity("cpu", MANY, quantity_milli), entry.quantity("memory", MANY, quantity_mib)
    each = (_gpu(entry, model),) * gpus
    return [FleetNodeFacts(one, each, cpu, memory, PODS_PER_NODE) for one in _names(name, count)]


def _gpu(entry: _Entry, model: str) -> GpuFacts:
    resource = _resource(entry)
    if not (name := entry.text("mig")) or resource != GPU_RESOURCE:
        return GpuFacts(model, WHOLE_MILLI, SLOTS, resource=resource)
    if (kind := MIG_KINDS.get(name)) is None:
        entry.wrong(entry.values["mig"], f"invalid value {name[:40]!r} for mig: must be one of {', '.join(MIG_KINDS)}")
        return GpuFacts(model, WHOLE_MILLI, SLOTS)
    return GpuFacts(
        model,
        WHOLE_MILLI,
        max_instances(kind),
        mode=DeviceMode.MIG,
        enforcement=Enforcement.MIG,
        mig_kind=name,
        mig_mask=0,
        mig_held=0,
    )


def _resource(entry: _Entry) -> str:
    """Under which its devices are listed."""
    if not (name := entry.text("family")):
        return GPU_RESOURCE
    if "mig" in entry.values:
        entry.wrong(entry.values["mig"], f"mig applies to NVIDIA's GPUs, not to {name[:40]!r}")
    family = next((each for each in FAMILIES if each.name == name), None)
    if family is None:
        known = ", ".join(each.name for each in FAMILIES)
        entry.wrong(entry.values["family"], f"invalid value {name[:40]!r} for family: must be one of {known}")
    return GPU_RESOURCE if family is None else family.resource


def _instances(entry: _Entry, gpus: int, kinds: Sequence[str]) -> PodShape:
    """The GPU instances that a pod asks for by profile."""
    profile = entry.text("mig")
    offered = [each.name for kind in kinds for each in MIG_KINDS[kind].profiles]
    if profile not in offered:
        there = (
            ", ".join(dict.fromkeys(offered)) or "no profiles, because no node has GPUs that are partitioned on demand"
        )
        entry.wrong(entry.values["mig"], f"invalid value {profile[:40]!r} for mig: the nodes offer {there}")
    if "gpu_milli" in entry.values:
        entry.wrong(
            entry.values["gpu_milli"],
            "gpu_milli and mig are mutually exclusive, because a GPU instance has a fixed size: remove one of them",
        )
    return PodShape(
        gpu_count=max(gpus, 1),
        resource=mig_resource(profile),
        gpu_memory_percent=WHOLE_PERCENT,
        gpu_cores_percent=WHOLE_PERCENT,
    )


def _pods(entry: _Entry, count: int, kinds: Sequence[str]) -> list[SimPod]:
    name, gpus = entry.name(), entry.whole("gpus", 0, 0, MAX_GPUS)
    milli = entry.whole("gpu_milli", WHOLE_MILLI, 1, WHOLE_MILLI) if gpus else 0
    if not gpus and "gpu_milli" in entry.values:
        entry.wrong(entry.values["gpu_milli"], "gpu_milli applies to each GPU: set gpus as well")
    models = tuple(f"={word}" for word in entry.words("models")) if gpus or "mig" in entry.values else ()
    cpu, memory = entry.quantity("cpu", 0, quantity_milli), entry.quantity("memory", 0, quantity_mib)
    if "mig" in entry.values:
        asked = _instances(entry, gpus, kinds)
    elif kinds and gpus:
        percent = -(-milli * WHOLE_PERCENT // WHOLE_MILLI)
        asked = PodShape(gpu_count=gpus, gpu_memory_percent=percent)
    else:
        asked = PodShape(gpu_count=gpus, gpu_memory_mib=milli)
    if "family" in entry.values:
        asked = PodShape(gpu_count=gpus, gpu_memory_mib=milli, resource=_resource(entry))
    shape = msgspec.structs.replace(asked, cpu_milli=cpu, memory_mib=memory, models=models)
    arrives, every, lasts = entry.seconds("arrives"), entry.seconds("every"), entry.seconds("lasts")
    if ("arrives" in entry.values) is not ("lasts" in entry.values):
        entry.wrong(entry.node, "the entry has only one of arrives and lasts: set both or neither")
    return [
        SimPod(one, shape, None if arrives is None else arrives + place * (every or 0.0), lasts)
        for place, one in enumerate(_names(name, count))
    ]


def _names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}-{place}" for place in range(count)]
