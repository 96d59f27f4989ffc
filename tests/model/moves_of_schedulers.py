"""What schedulers do, and what becomes of their Bindings."""

from collections.abc import Iterator

from purser.core.model import GrantState
from tests.model.cluster import (
    Binding,
    Move,
    NodeState,
    Objects,
    Outcome,
    SchedulerState,
    Settled,
    Size,
    View,
    in_order,
    is_last,
    told,
)
from tests.model.parts import grant
from tests.model.scheduler import Knowledge, Schedulers

_Net = tuple[Binding, ...]
_Leads = frozenset[str]


class MovesOfScheduler:
    """One scheduler's."""

    def __init__(self, name: str, size: Size, nodes: tuple[str, ...], schedulers: Schedulers) -> None:
        self._name, self._size, self._nodes, self._schedulers = name, size, nodes, schedulers

    def moves(self) -> Iterator[Move]:
        me = self._name
        runs = View((me,), lambda state: state.known >= 0)
        leads = View(("leads",), lambda leads: me in leads)
        waits = View((me,), lambda state: state.known >= 0 and bool(self._schedulers.known[state.known].unsettled))
        yield Move((me, "objects"), self._hears)
        yield Move((me, "net"), self._decides, when=(leads, runs))
        yield Move((me, "objects", "net"), self._asks, when=(waits,))
        if self._size.allows("scheduler"):
            yield Move(("net", "faults"), self._crashes, when=("faults", runs))
        if self._size.allows("lease"):
            follows = View(("leads",), lambda leads: me not in leads)
            yield Move((me, "objects", "leads", "faults"), self._wins, when=("faults", follows, runs))
            rivals = View(("leads",), lambda leads: me in leads and len(leads) > 1)
            yield Move(("leads",), self._loses, when=(rivals, runs))

    def settled(self) -> Settled:
        """It hears at once of what is the last of a pod; while it follows, of all that no user can change any more."""
        return Settled(self._name, (self._name, "objects", "leads", "faults"), self._settles)

    def _settles(self, state: SchedulerState, objects: Objects, leads: _Leads, faults: int) -> SchedulerState:
        if state.known < 0:
            return state
        number, users_may_act = state.known, self._size.users_may_act(faults)
        follows = self._name not in leads and not users_may_act
        known = self._schedulers.known[number]
        for name in sorted({each.name for each in (*objects.pods, *known.heard)}):
            version = objects.pod(name)
            if follows or is_last(version, users_may_act=users_may_act):
                number = self._schedulers.heard(number, name, version)
        return state._replace(known=number)

    def _is(self, number: int) -> dict[str, SchedulerState]:
        return {self._name: SchedulerState(self._name, number)}

    def _hears(self, state: SchedulerState, objects: Objects) -> Iterator[Outcome]:
        if state.known < 0:
            for number in sorted(self._schedulers.relisted(0, objects.pods)):
                yield f"{self._name} starts and lists all pods", self._is(number)
            return
        known = self._schedulers.known[state.known]
        for name in sorted({each.name for each in (*objects.pods, *known.heard)}):
            version = objects.pod(name)
            if known.of(name) != version:
                number = self._schedulers.heard(state.known, name, version)
                yield f"{self._name} hears of {name}: {told(version)}", self._is(number)

    def _decides(self, state: SchedulerState, net: _Net) -> Iterator[Outcome]:
        known = self._schedulers.known[state.known]
        busy = {each.grant.pod_uid for each in net if each.sender == self._name}
        for version in known.heard:
            held = known.granted(version.uid)
            if version.node or version.phase != "Pending" or version.uid in busy:
                continue
            if held is not None:
                if held.state is GrantState.RESERVED:
                    again = in_order((*net, Binding(held.grant, self._name)))
                    yield f"{self._name} posts the Binding of {version.name} again", {"net": again}
                continue
            yield from self._grants(state, known, net, version.name, version.uid)

    def _grants(self, state: SchedulerState, known: Knowledge, net: _Net, pod: str, uid: str) -> Iterator[Outcome]:
        for node in self._nodes:
            for gpu in (f"{node}-gpu{i}" for i in range(self._size.gpus)):
                wanted = grant(uid, node, gpu)
                number = None if gpu in known.closed else self._schedulers.step(state.known, "reserve", wanted)
                if number is not None:
                    posted = in_order((*net, Binding(wanted, self._name)))
                    text = f"{self._name} grants {gpu} to {pod} and posts the Binding"
                    yield text, {**self._is(number), "net": posted}

    def _asks(self, state: SchedulerState, objects: Objects, net: _Net) -> Iterator[Outcome]:
        for unsettled in self._schedulers.known[state.known].unsettled:
            late = not any(each.grant == unsettled for each in net)
            now = objects.pod(unsettled.pod)
            number = self._schedulers.step(state.known, "resolve", unsettled.pod_uid, now, late)
            if number is not None and number != state.known:
                yield f"{self._name} asks what became of the Binding of {unsettled.pod}", self._is(number)

    def _crashes(self, net: _Net, faults: int) -> Iterator[Outcome]:
        orphaned = in_order(each._replace(sender="") if each.sender == self._name else each for each in net)
        yield f"{self._name} crashes", {**self._is(-1), "net": orphaned, "faults": faults - 1}

    def _wins(self, state: SchedulerState, objects: Objects, leads: _Leads, faults: int) -> Iterator[Outcome]:
        for number in sorted(self._schedulers.relisted(state.known, objects.pods)):
            text = f"{self._name} wins the lease and lists all pods"
            yield text, {**self._is(number), "leads": leads | {self._name}, "faults": faults - 1}

    def _loses(self, leads: _Leads) -> Iterator[Outcome]:
        yield f"{self._name} hears that it lost the lease", {"leads": leads - {self._name}}


class MovesOfNet:
    """Between scheduler and API server: of the Bindings that one scheduler, or nobody any more, posted for one node."""

    def __init__(self, sender: str, node: str, size: Size, schedulers: Schedulers) -> None:
        self._sender, self._node, self._size, self._schedulers = sender, node, size, schedulers

    def moves(self) -> Iterator[Move]:
        posted = View(("net",), lambda net: any(map(self._is_mine, net)))
        ended = View((self._node, "objects"), _ended)
        sender = (self._sender,) if self._sender else ()
        yield Move(("objects", "net", ended, *sender), self._answers, when=(posted,))
        if self._size.allows("net"):
            yield Move(("objects", "net", "faults", ended, *sender), self._loses, when=(posted, "faults"))

    def _is_mine(self, binding: Binding) -> bool:
        return binding.sender == self._sender and binding.grant.node == self._node

    def _bindings(self, net: _Net) -> Iterator[tuple[Binding, _Net]]:
        """And what else is on its way."""
        for place, each in enumerate(net):
            if self._is_mine(each) and each not in net[:place]:
                yield each, net[:place] + net[place + 1 :]

    def _answers(
        self, objects: Objects, net: _Net, ended: frozenset[str], sender: SchedulerState | None = None
    ) -> Iterator[Outcome]:
        for binding, rest in self._bindings(net):
            after, ending, outcome = _carried_out(objects, binding, ended)
            answered = self._answered(sender, binding, outcome, after)
            yield f"the Binding of {binding.grant.pod} {ending}", {"objects": after, "net": rest, **answered}

    def _loses(
        self, objects: Objects, net: _Net, faults: int, ended: frozenset[str], sender: SchedulerState | None = None
    ) -> Iterator[Outcome]:
        paid = {"faults": faults - 1}
        for binding, rest in self._bindings(net):
            name = binding.grant.pod
            if sender is None:
                yield f"the Binding of {name} is lost", {"net": rest, **paid}
                continue
            after, ending, _ = _carried_out(objects, binding, ended)
            answered = self._answered(sender, binding, "lost", after)
            lost = f"the Binding of {name} {ending}, and the answer is lost"
            yield lost, {"objects": after, "net": rest, **answered, **paid}
            late = {"net": in_order((*rest, binding._replace(sender="")))}
            late |= self._answered(sender, binding, "lost", objects)
            yield f"the Binding of {name} gets no answer, and is still on its way", {**late, **paid}

    def _answered(
        self, sender: SchedulerState | None, binding: Binding, outcome: str, objects: Objects
    ) -> dict[str, SchedulerState]:
        if sender is None:
            return {}
        now = objects.pod(binding.grant.pod)
        number = self._schedulers.step(sender.known, "answered", binding.grant, outcome, now)
        assert number is not None
        return {sender.name: sender._replace(known=number)}


def _ended(node: NodeState, objects: Objects) -> frozenset[str]:
    """Of the pods that kubelet lists: it hears of their ends before it hears of what is bound from now on."""
    return frozenset(each.uid for each in node.listed if objects.has_ended(each))


def _carried_out(objects: Objects, binding: Binding, ended: frozenset[str]) -> tuple[Objects, str, str]:
    now = objects.pod(binding.grant.pod)
    if now is None or (now.uid, now.node) != (binding.grant.pod_uid, ""):
        return objects, "is refused", "refused"
    bound = now._replace(node=binding.grant.node, grant=binding.grant, after=tuple(sorted(ended)))
    return objects.put(bound).granted(binding.grant), "is carried out", "ok"
