"""What the page on the use of GPUs shows of the past: curves, GPU-hours by namespace, and idle GPUs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from purser.core.state import ClusterState
from purser.usage import ModelHours, PodHours, UsageCurves, sample_step_s
from purser.web.charts import Chart, chart, time_text
from purser.web.history import WINDOWS_S, WindowUsage, less, sum_curves
from purser.web.tables import GpuPlace, HeldAmount, gpu_places

MAX_PODS = 50
MAX_IDLE_GPUS = 100
"""Shown; the page says how many there are."""
_GIB = 2**30


@dataclass(frozen=True)
class NamespaceHours:
    """GPU-hours of a namespace."""

    namespace: str
    held: float
    busy: float
    memory: HeldAmount
    """Of the memory that it held, the part that its processes used; in thousandths of GPU-hours."""

    @property
    def unused(self) -> float:
        """Held while nothing computed."""
        return max(self.held - self.busy, 0.0)

    @property
    def busy_part(self) -> HeldAmount:
        """Of the hours held, those with something computing, in thousandths."""
        return HeldAmount(round(1000 * self.busy), round(1000 * self.held))


@dataclass(frozen=True)
class SinglePast:
    """How one GPU, one node or one pod was used over one window of time."""

    window: str
    problem: str
    """Why the newest is missing, in a sentence."""
    is_read: bool = False
    busy: Chart | None = None
    """Of a GPU the part of the time in which kernels ran, of a node the sum of these, of a pod its compute in GPUs.
    None, as below: there are no metrics, or not yet."""
    memory: Chart | None = None
    """In GiB."""
    windows: Sequence[str] = tuple(WINDOWS_S)


@dataclass(frozen=True)
class IdlePlace:
    """A GPU that is held and idle."""

    place: GpuPlace
    idle_s: int


@dataclass(frozen=True)
class PastUse:
    """The use over one window of time."""

    window: str
    problem: str
    """Why the newest is missing, in a sentence."""
    shows_all: bool
    """Whether the viewer may see all namespaces."""
    as_of: str = ""
    """Up to when, in UTC."""
    gap: str = ""
    """That hours are missing because metrics are, in a clause; empty: none are."""
    picture: Chart | None = None
    """None: there are no metrics, or not yet."""
    namespaces: Sequence[NamespaceHours] = ()
    """Those that held most without use come first."""
    models: Sequence[ModelHours] = ()
    pods: Sequence[PodHours] = ()
    """With most unused hours first."""
    pods_total: int = 0
    sampled_every_s: int = 0
    """What took less time is counted by chance, in `pods` and `models`."""
    breakdown_problem: str = ""
    """Why these are missing, in a sentence."""
    with_pages: Collection[tuple[str, str]] = ()
    """Namespace and name of those that hold GPUs now."""
    idle: Sequence[IdlePlace] = ()
    """Idle for longest first."""
    idle_total: int = 0
    is_read: bool = False
    """Whether there is anything to show."""
    windows: Sequence[str] = tuple(WINDOWS_S)


def past_use(
    window: str, history: WindowUsage | None, problem: str, state: ClusterState, *, shows_all: bool
) -> PastUse:
    """The page's part on the past. ``history``: as far as the viewer may see it; None: it is not known."""
    if history is None:
        return PastUse(window, problem, shows_all)
    idle = _idle_places(history, state)
    return PastUse(
        window=window,
        problem=problem,
        shows_all=shows_all,
        as_of=time_text(history.end_s),
        gap=history.usage.gap,
        picture=_usage_chart(history, shows_all),
        namespaces=_hours(history),
        models=history.models,
        pods=history.pods[:MAX_PODS],
        pods_total=len(history.pods),
        sampled_every_s=sample_step_s(WINDOWS_S[window]),
        breakdown_problem=history.breakdown_problem,
        with_pages={(grant.namespace, grant.pod) for grant in state.grants},
        idle=idle[:MAX_IDLE_GPUS],
        idle_total=len(idle),
        is_read=True,
    )


def single_past(window: str, curves: UsageCurves | None, problem: str) -> SinglePast:
    """The part on the past of the page of a GPU, a node or a pod. ``curves``: None: they are not known."""
    if curves is None:
        return SinglePast(window, problem)
    memory = [("Held", curves.held_bytes), ("Used", curves.used_bytes)]
    return SinglePast(
        window=window,
        problem=problem,
        is_read=True,
        busy=chart(curves.times_s, [("Busy", curves.busy_gpus)]),
        memory=chart(curves.times_s, [(label, [each / _GIB for each in values]) for label, values in memory]),
    )


def _usage_chart(history: WindowUsage, shows_all: bool) -> Chart | None:
    curves = history.curves
    points = len(curves.times_s)
    own = [("Held", sum_curves(curves.held, points)), ("Busy", sum_curves(curves.busy, points))]
    fleet = [("All GPUs", curves.gpus), ("Usable (without fragments)", less(curves.gpus, curves.unusable))]
    return chart(curves.times_s, [*fleet, *own] if shows_all else own)


def _hours(history: WindowUsage) -> list[NamespaceHours]:
    rows = [
        NamespaceHours(
            each.namespace, each.granted, each.busy, HeldAmount(round(1000 * each.used), round(1000 * each.granted))
        )
        for each in history.usage.namespaces
    ]
    return sorted(rows, key=lambda row: (-row.unused, row.namespace))


def _idle_places(history: WindowUsage, state: ClusterState) -> list[IdlePlace]:
    """Of the GPUs that are still held: metrics are older than the state."""
    idle = {(each.node, each.uuid): each.idle_s for each in history.idle}
    places = gpu_places(state, lambda node, gpu: (node.name, gpu.uuid) in idle and gpu.pods > 0)
    found = [IdlePlace(each, idle[each.node.name, each.gpu.uuid]) for each in places]
    return sorted(found, key=lambda each: -each.idle_s)
