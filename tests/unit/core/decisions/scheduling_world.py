"""A scheduler's decisions on a fleet in memory, logged as the live scheduler logs them, for the tests beside this."""

import io
from collections.abc import Iterable, Sequence

import msgspec

from purser.core.decisions import DecisionDifference, Reader, Replayer, encode
from purser.core.decisions.framing import MAGIC
from purser.core.decisions.naming import LoggedNames
from purser.core.decisions.notes import DecisionInputs, Held, Note
from purser.core.decisions.recording import Recording
from purser.core.decisions.records import Record
from purser.core.decisions.transcript import Transcript
from purser.core.fleet import NO_NOMINATED_USAGE, Fleet, FreeResources, NominatedUsage
from purser.core.grant.quota import UNLIMITED, QuotaLimits
from purser.core.ledger import Usage
from purser.core.model import ContainerKind, ContainerRequest, Device, DeviceRequest, NodeInventory, PodRequest
from purser.core.placement import Evaluator, Placement, PolicySettings, Refusal, best, to_grant
from purser.core.placement.mix import LearnedMix
from purser.core.placement.shape import largest_shape
from purser.core.placement.yielding import without_kept_nodes

NOTHING_HELD: Held = {}


class LoggedScheduler:
    """Decides, and has each decision in its log. Records are made at the end only, so that whatever a note refers to
    has had time to change."""

    def __init__(self, policy: PolicySettings, names: LoggedNames | None = None, fleet: Fleet | None = None) -> None:
        self.fleet = Fleet() if fleet is None else fleet  # one without nodes is falsy
        self.mix, self.at = LearnedMix(), 1000.0
        self.evaluator = Evaluator(self.fleet, policy, self.mix)
        self.names = names or LoggedNames()
        self.notes: list[list[Note]] = []
        """By file."""
        self.decisions = 0
        self.evaluator.planner.on_plan = lambda: self.notes[-1].extend(self.recording.planned(self.at))

    def new_file(self) -> None:
        """As at rotation."""
        self.recording = Recording(self.fleet, self.evaluator, self.mix)
        self.notes.append([])
        self.notes[-1] += self.recording.start(self.at, is_anonymous=self.names.are_hashed)

    def arrived(self, request: PodRequest) -> None:
        self.mix.arrived(largest_shape(request))

    def schedule(
        self,
        request: PodRequest,
        names: Sequence[str],
        left: QuotaLimits = UNLIMITED,
        held: Held = NOTHING_HELD,
    ) -> Placement | Refusal | None:
        """Filter, and bind to the best node; None where none fits."""
        return self._entered(request, self.judge(request, names, left, held))

    def judge(
        self,
        request: PodRequest,
        names: Sequence[str],
        left: QuotaLimits = UNLIMITED,
        held: Held = NOTHING_HELD,
    ) -> Placement | Refusal | None:
        """The same, and nothing is bound yet."""
        own = self.fleet.ledger.grant(request.uid)
        found = self.evaluator.evaluate(request, names, left, own)
        found = without_kept_nodes(found, self.fleet, request, self.evaluator.policy, left, held)
        asked = DecisionInputs(request, left, held, "1970-01-01T00:16:39Z")
        self.notes[-1] += self.recording.judged(self.at, asked, found, "filter")
        self.decisions += 1
        node = best(found)
        return None if node is None else self._place(node, request, left, held)

    def place(
        self, node: str, request: PodRequest, left: QuotaLimits = UNLIMITED, held: Held = NOTHING_HELD
    ) -> Placement | Refusal | None:
        """Bind to a node."""
        return self._entered(request, self._place(node, request, left, held))

    def _entered(self, request: PodRequest, placed: Placement | Refusal | None) -> Placement | Refusal | None:
        state = self.fleet.node(placed.node) if isinstance(placed, Placement) else None
        if isinstance(placed, Placement) and state is not None:
            self.fleet.ledger.release(request.uid)
            self.fleet.ledger.adopt(to_grant(placed, request, state.inventory))
        return placed

    def _place(self, node: str, request: PodRequest, left: QuotaLimits, held: Held) -> Placement | Refusal:
        placed = self.evaluator.place(node, request, left, held.get(node, NO_NOMINATED_USAGE))
        self.notes[-1] += self.recording.placed(self.at, DecisionInputs(request, left, held), node, placed)
        self.decisions += 1
        return placed

    @property
    def files(self) -> list[list[Record]]:
        """The records of each."""
        return [list(Transcript(self.names).records(notes)) for notes in self.notes]

    def written(self) -> list[bytes]:
        """The files."""
        return [as_file(records) for records in self.files]


def as_file(records: Iterable[Record]) -> bytes:
    return MAGIC + b"".join(map(encode, records))


def replayed(files: Iterable[bytes], policy: str | None = None) -> tuple[int, list[DecisionDifference]]:
    replayer = Replayer(policy)
    found = []
    for file in files:
        reader = Reader(io.BytesIO(file).read)
        found += [replayer.take(reader, record) for record in reader]
    return replayer.decisions, [each for each in found if each is not None]


def named(request: PodRequest, number: int) -> PodRequest:
    return msgspec.structs.replace(request, uid=f"uid-{number}", name=f"pod-{number}")


def logged_records() -> list[Record]:
    """A small log with every kind of record that JSON can hold: kubelet's state has pairs as keys."""
    scheduler = LoggedScheduler(PolicySettings(), LoggedNames(b"key"))
    fleet = scheduler.fleet
    for name in ("a", "b"):
        devices = tuple(Device(f"{name}-{n}", n, "NVIDIA A100", 40960, slots=10) for n in range(2))
        fleet.set_inventory(NodeInventory(name, devices))
        fleet.set_free_resources(name, FreeResources(64_000, 1 << 18, 100))
    scheduler.new_file()
    asked = ContainerRequest("c", ContainerKind.APP, DeviceRequest(1, 4000, None, 10))
    for number in range(4):
        request = PodRequest(f"u{number}", "ns", f"p{number}", (asked,), cpu_milli=1000)
        scheduler.arrived(request)
        scheduler.schedule(
            request,
            ["a", "b"],
            QuotaLimits(100_000),
            {"a": NominatedUsage({"a-1": Usage(1, 1000, 0, 1)}, {("x/vf", "s"): 1})},
        )
    fleet.set_disputes("a", {"a-0": "a pod"})
    fleet.ledger.release("u0")
    scheduler.schedule(named(request, 9), ["a", "b"])
    fleet.remove_node("b")
    scheduler.schedule(named(request, 10), ["a"])
    scheduler.notes[0] += scheduler.recording.bound(scheduler.at, "u1")
    scheduler.notes[0] += scheduler.recording.gone(scheduler.at, "u2")
    return scheduler.files[0]
