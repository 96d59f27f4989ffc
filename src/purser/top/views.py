"""The tables: what their columns are, which rows are found, and in which order they stand."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from purser.core.kubernetes.times import parsed
from purser.core.state import ClusterState, StateGpu, StateGpuHealth, StateGrant, StateNode, StateWaiting
from purser.core.wording import counted, natural_sort_key
from purser.top.holding import cores_percent, gpu_indices, gpu_uuids, memory_mib
from purser.top.lines import Style, clean, width
from purser.top.view_names import TopView

T = TypeVar("T")


@dataclass(frozen=True)
class TopColumn(Generic[T]):
    """One column of a view."""

    head: str
    read: Callable[[T], object]
    """What stands there."""
    order: Callable[[T], Any] | None = None
    """What rows are sorted by, the smallest first; None: by the text."""
    right: bool = False
    """Numbers stand on the right."""
    wide: bool = False
    """Only where there is room for it, and with ``-o wide``."""

    def key(self, subject: T) -> Any:
        """By which rows are sorted."""
        return str(self.read(subject)) if self.order is None else self.order(subject)


@dataclass(frozen=True)
class Row:
    """A row as it is shown."""

    key: str
    """Of what it is about; stays the same as that changes."""
    cells: tuple[str, ...]
    style: Style = Style.PLAIN


@dataclass(frozen=True)
class ViewTable:
    """A view's rows, filtered and sorted."""

    heads: tuple[str, ...]
    right: tuple[bool, ...]
    wide: tuple[bool, ...]
    rows: tuple[Row, ...]
    widths: tuple[int, ...]
    """Cells that each column needs."""
    total: int
    """Rows before they were filtered."""


def bar(held: int, total: int, cells: int = 10) -> str:
    """``|||......`` and percent: readable without colours, and in any character set. ``-`` where there is nothing to
    hold."""
    if total <= 0:
        return "-"
    part = min(max(held / total, 0.0), 1.0)
    full = round(part * cells)
    if held > 0:
        full = max(full, 1)
    return f"{'|' * full}{'.' * (cells - full)} {part * 100:3.0f}%"


def age(since: str, now: float) -> str:
    """How long ago, as kubectl prints it: ``45s``, ``12m``, ``3h``, ``9d``."""
    then = parsed(since)
    if then is None:
        return "-"
    seconds = max(int(now - then), 0)
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 120 * 60:
        return f"{seconds // 60}m"
    return f"{seconds // 3600}h" if seconds < 48 * 3600 else f"{seconds // 86400}d"


def _descending_ratio(held: int, total: int) -> float:
    return -held / total if total else 0.0


def _sum(node: StateNode, read: Callable[[StateGpu], int]) -> int:
    return sum(map(read, node.gpus))


def _slots_held(gpu: StateGpu) -> int:
    return gpu.slots_held


def _memory(node: StateNode) -> tuple[int, int]:
    return _sum(node, lambda g: g.memory_held_mib), _sum(node, lambda g: g.memory_mib)


def _memory_text(held: int, total: int) -> str:
    return f"{held}/{total}" if total else "-"  # a GPU that uses the machine's memory does not report it


def _cores(node: StateNode) -> tuple[int, int]:
    return _sum(node, lambda g: g.cores_held_percent), _sum(node, lambda g: g.cores_percent)


def _closed_gpu_count(node: StateNode) -> int:
    return sum(gpu.health is not StateGpuHealth.HEALTHY for gpu in node.gpus)


def _models(node: StateNode) -> str:
    return ",".join(sorted({gpu.model for gpu in node.gpus}))


def _node_status(node: StateNode) -> str:
    words = [word for gpu in node.gpus if (word := _health_word(gpu)) != StateGpuHealth.HEALTHY]
    counts = [f"{words.count(word)} {word}" for word in _HEALTH_WORDS if word in words]
    return ", ".join(["Cordoned"] * node.cordoned + counts) or "Ready"


_DEGRADED = "Degraded"
_HEALTH_WORDS = [*(word for word in StateGpuHealth if word is not StateGpuHealth.HEALTHY), _DEGRADED, "Healthy"]


def _health_word(gpu: StateGpu) -> str:
    return _DEGRADED if gpu.is_degraded else str(gpu.health)


GpuRow = tuple[StateNode, StateGpu]


def _enforcements(grant: StateGrant) -> str:
    return ",".join(sorted({part.enforcement for part in grant.containers}))


def node_columns() -> list[TopColumn[StateNode]]:
    """Of the view of nodes."""
    return [
        TopColumn("NODE", lambda n: n.name, lambda n: natural_sort_key(n.name)),
        TopColumn("GPUS", lambda n: len(n.gpus), lambda n: -len(n.gpus), right=True),
        TopColumn("STATUS", _node_status, lambda n: (-n.cordoned, -_closed_gpu_count(n))),
        TopColumn("SHARES", lambda n: _sum(n, _slots_held), lambda n: -_sum(n, _slots_held), right=True),
        TopColumn("MEMORY", lambda n: bar(*_memory(n)), lambda n: _descending_ratio(*_memory(n))),
        TopColumn("MIB", lambda n: _memory_text(*_memory(n)), lambda n: -_memory(n)[0], right=True, wide=True),
        TopColumn("CORES", lambda n: bar(*_cores(n)), lambda n: _descending_ratio(*_cores(n))),
        TopColumn("MODEL", _models),
        TopColumn("DRIVER", lambda n: n.driver_version, wide=True),
        TopColumn("AGENT", lambda n: n.agent_version, wide=True),
    ]


def gpu_columns() -> list[TopColumn[GpuRow]]:
    """Of the view of GPUs."""
    return [
        TopColumn("NODE", lambda r: r[0].name, lambda r: (natural_sort_key(r[0].name), r[1].index)),
        TopColumn("GPU", lambda r: r[1].index, lambda r: r[1].index, right=True),
        TopColumn("HEALTH", lambda r: _health_word(r[1]), lambda r: _HEALTH_WORDS.index(_health_word(r[1]))),
        TopColumn("PODS", lambda r: r[1].pods, lambda r: -r[1].pods, right=True),
        TopColumn(
            "MEMORY",
            lambda r: bar(r[1].memory_held_mib, r[1].memory_mib),
            lambda r: _descending_ratio(r[1].memory_held_mib, r[1].memory_mib),
        ),
        TopColumn(
            "MIB",
            lambda r: _memory_text(r[1].memory_held_mib, r[1].memory_mib),
            lambda r: -r[1].memory_held_mib,
            right=True,
            wide=True,
        ),
        TopColumn(
            "CORES",
            lambda r: bar(r[1].cores_held_percent, r[1].cores_percent),
            lambda r: _descending_ratio(r[1].cores_held_percent, r[1].cores_percent),
        ),
        TopColumn("MODEL", lambda r: r[1].model),
        TopColumn("SLOTS", lambda r: f"{r[1].slots_held}/{r[1].slots}", lambda r: -r[1].slots_held, True, wide=True),
        TopColumn("MODE", lambda r: r[1].mode, wide=True),
        TopColumn("ENFORCES", lambda r: r[1].enforcement, wide=True),
        TopColumn("RESOURCE", lambda r: r[1].resource, wide=True),
        TopColumn("UUID", lambda r: r[1].uuid, wide=True),
        TopColumn("REASON", lambda r: r[1].reason, wide=True),
    ]


def pod_columns() -> list[TopColumn[StateGrant]]:
    """Of the view of pods that hold GPUs."""
    return [
        TopColumn("NAMESPACE", lambda g: g.namespace),
        TopColumn("POD", lambda g: g.pod, lambda g: natural_sort_key(g.pod)),
        TopColumn("NODE", lambda g: g.node, lambda g: natural_sort_key(g.node)),
        TopColumn("GPU INDEX", gpu_indices, lambda g: natural_sort_key(gpu_indices(g))),
        TopColumn("MEMORY MiB", memory_mib, lambda g: -memory_mib(g), right=True),
        TopColumn("CORES %", lambda g: cores_percent(g) or "-", lambda g: -cores_percent(g), right=True),
        TopColumn("STATE", lambda g: g.state),
        TopColumn("ENFORCED BY", _enforcements),
        TopColumn("UUIDS", gpu_uuids, wide=True),
    ]


def waiting_columns(now: float) -> list[TopColumn[StateWaiting]]:
    """Of the view of pods that wait. ``now``: seconds since the epoch."""
    return [
        TopColumn("AGE", lambda w: age(w.since, now), lambda w: w.since or "~", right=True),
        TopColumn("NAMESPACE", lambda w: w.namespace),
        TopColumn("POD", lambda w: w.pod, lambda w: natural_sort_key(w.pod)),
        TopColumn("GPUS", lambda w: w.gpus or "-", lambda w: -w.gpus, right=True),
        TopColumn("PRIORITY", lambda w: w.priority, lambda w: -w.priority, right=True, wide=True),
        TopColumn("SCHEDULER", lambda w: w.scheduler, wide=True),
        TopColumn("REASON", lambda w: w.reason or "-"),
        TopColumn("WHAT", lambda w: w.message or "-"),
    ]


def columns_of(view: TopView, now: float) -> list[TopColumn[Any]]:
    """Of any view."""
    if view is TopView.NODES:
        return node_columns()
    if view is TopView.GPUS:
        return gpu_columns()
    return pod_columns() if view is TopView.PODS else waiting_columns(now)


def rows_of_view(view: TopView, state: ClusterState) -> list[tuple[str, Any]]:
    """What a view shows, each with its key."""
    if view is TopView.NODES:
        return [(node.name, node) for node in state.nodes]
    if view is TopView.GPUS:
        return [(f"{node.name}/{gpu.uuid}", (node, gpu)) for node in state.nodes for gpu in node.gpus]
    if view is TopView.PODS:
        return [(grant.uid, grant) for grant in state.grants]
    return [(each.uid, each) for each in state.waiting]


def table_of(view: TopView, state: ClusterState, now: float, *, sort: int = 0, down: bool = False) -> ViewTable:
    """All rows of a view, by the column ``sort``; ``down``: the other way round."""
    columns = columns_of(view, now)
    subjects = rows_of_view(view, state)
    order = columns[sort % len(columns)]
    subjects.sort(key=lambda keyed: order.key(keyed[1]), reverse=down)
    rows = [
        Row(key, tuple(_cell(column.read(subject)) for column in columns), _style(view, subject))
        for key, subject in subjects
    ]
    return ViewTable(
        heads=tuple(column.head for column in columns),
        right=tuple(column.right for column in columns),
        wide=tuple(column.wide for column in columns),
        rows=tuple(rows),
        widths=_widths([column.head for column in columns], rows),
        total=len(subjects),
    )


def filtered(table: ViewTable, find: str) -> ViewTable:
    """Those of its rows that have a text in them, in capitals or not."""
    if not find:
        return table
    words = find.lower()
    rows = tuple(row for row in table.rows if any(words in cell.lower() for cell in row.cells))
    return replace(table, rows=rows, widths=_widths(table.heads, rows))


def _cell(value: object) -> str:
    return clean(value) or "-"


def _widths(heads: Sequence[str], rows: Sequence[Row]) -> tuple[int, ...]:
    found = [len(head) for head in heads]
    for row in rows:
        for place, cell in enumerate(row.cells):
            if len(cell) > found[place] or not cell.isascii():
                found[place] = max(found[place], width(cell))
    return tuple(found)


def _style(view: TopView, subject: Any) -> Style:
    """How a row stands out: what is closed or full, and how long it waits says enough by itself."""
    if view is TopView.NODES:
        styles = {_HEALTH.get(gpu.health, Style.PLAIN) for gpu in subject.gpus}
        styles |= {Style.FAINT} if subject.cordoned else set()
        return next((style for style in (Style.BAD, Style.FAINT) if style in styles), Style.PLAIN)
    if view is TopView.GPUS:
        return _HEALTH.get(subject[1].health, Style.PLAIN)
    return Style.PLAIN


_HEALTH: Mapping[StateGpuHealth, Style] = {
    StateGpuHealth.UNHEALTHY: Style.BAD,
    StateGpuHealth.DISPUTED: Style.BAD,
    StateGpuHealth.CORDONED: Style.FAINT,
}


def counts_of(state: ClusterState) -> dict[TopView, int]:
    """How many rows each view has."""
    gpus = sum(len(node.gpus) for node in state.nodes)
    return dict(zip(TopView, (len(state.nodes), gpus, len(state.grants), len(state.waiting)), strict=True))


def headline(state: ClusterState) -> str:
    """How much is held of the whole cluster, and whether GPUs of it are closed."""
    gpus = [gpu for node in state.nodes for gpu in node.gpus]
    closed = sum(gpu.health is not StateGpuHealth.HEALTHY for gpu in gpus)
    memory = bar(sum(g.memory_held_mib for g in gpus), sum(g.memory_mib for g in gpus))
    cores = bar(sum(g.cores_held_percent for g in gpus), sum(g.cores_percent for g in gpus))
    parts = [f"memory {memory}", f"cores {cores}", *([f"{counted(closed, 'GPU')} closed"] if closed else [])]
    return "  ".join(parts)


def summary(state: ClusterState) -> str:
    """The cluster in one line."""
    nodes, gpus, pods, waiting = counts_of(state).values()
    return "  ".join(
        (counted(nodes, "node"), counted(gpus, "GPU"), headline(state), counted(pods, "pod"), f"{waiting} waiting")
    )
