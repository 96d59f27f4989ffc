"""The states that packages draw in their docstrings, held against the machines: what every situation of a node leads to
is drawn, and nothing else is."""

import re
from collections.abc import Iterator
from itertools import product
from types import ModuleType
from typing import get_args

import msgspec
import pytest
from tests.unit.operator.upgrade.both_machines import BothMachines
from tests.unit.operator.upgrade.fleets import START, Cluster, advanced, pod_of, workload

from purser.core.names import (
    CORDONED_BY_ANNOTATION,
    MIG_CONFIG_LABEL,
    MIG_RESULT_ANNOTATION,
    MIG_WANTED_ANNOTATION,
    POOL_LABEL,
    UPGRADE_STATE_LABEL,
)
from purser.core.node.annotations import encode
from purser.core.node.mig_messages import MigRequest, MigResult
from purser.operator import gates, mig, upgrade
from purser.operator.gates import gate_patch
from purser.operator.gates.labels import PAUSES
from purser.operator.gates.progress import gate_blocker
from purser.operator.mig import advance as advance_mig
from purser.operator.mig.states import MigChange, MigFleet, StepName, current_change, record
from purser.operator.model import DriverRemoval, OperandOnNode, OperandState, patched
from purser.operator.names import (
    LABEL_TRUE,
    OPENED_BOOT_ANNOTATION,
    UPGRADE_RESTART_ONLY_ANNOTATION,
    UPGRADE_STEP_START_ANNOTATION,
    UPGRADE_TARGET_ANNOTATION,
)
from purser.operator.order import Operand
from purser.operator.policy.driver import Drain, UpgradePolicy, WaitForCompletion
from purser.operator.policy.sections import MigManagerSpec
from purser.operator.upgrade import State, state_of

NONE, ANY = "(none)", "(any)"
LONG_AGO = 0.0
NO = (False, True)
Transitions = set[tuple[str, str]]


def drawn(package: ModuleType) -> Transitions:
    """Lines ``state -> state, state`` of its docstring."""
    found = set()
    for line in (package.__doc__ or "").splitlines():
        if match := re.fullmatch(r" {4}(\S+) +-> +(.+)", line):
            found |= {(match[1], each.strip()) for each in match[2].split(",")}
    states = {each for pair in found for each in pair} - {ANY}
    anywhere = {after for before, after in found if before == ANY}
    return {pair for pair in found if pair[0] != ANY} | {(each, end) for end in anywhere for each in states - {end}}


def clusters() -> Iterator[Cluster]:
    """A node whose driver is current, has another template or configuration, does not come up, or is not there."""
    for driver, (jobs, drains) in product(range(5), ((False, False), (True, False), (False, True))):
        policy = UpgradePolicy(
            wait_for_completion=WaitForCompletion(pod_selector="app=job" if jobs else "", timeout_seconds=60),
            drain=Drain(enable=drains),
        )
        cluster = Cluster("a", policy=policy)
        for _ in range(8):
            cluster.live()
        cluster.release("new" if driver else "old", configuration="other" if driver == 1 else "old")
        pod = pod_of(cluster, "a", Operand.DRIVER)
        assert pod is not None
        if driver == 3:
            cluster.pods[pod.uid] = msgspec.structs.replace(pod, template="new", ready=False, restarts=99)
        if driver == 4:
            del cluster.pods[pod.uid]
        yield cluster


def upgrade_transitions() -> Transitions:
    found = set()
    for cluster, state in product(clusters(), State):
        found |= {(state.value or NONE, each.value or NONE) for each in _following(cluster, state)}
    return found


def _following(cluster: Cluster, state: State) -> Iterator[State]:
    """Where the node goes from a state, in whatever situation it is."""
    restarts = ("", "old", "other") if state is State.RESTART else ("",)
    situations = product(restarts, NO, NO, NO, (START, LONG_AGO), NO)
    for kept, ready, obstacle, cordoned, since, used in situations:
        annotations = {
            UPGRADE_STEP_START_ANNOTATION: f"{since:.3f}",
            UPGRADE_TARGET_ANNOTATION: cluster.progress("a").target,
            **({CORDONED_BY_ANNOTATION: "driver-upgrade"} if cordoned else {}),
            **({UPGRADE_RESTART_ONLY_ANNOTATION: kept} if kept else {}),
        }
        labels = {POOL_LABEL: "p", UPGRADE_STATE_LABEL: state.value}
        cluster.change("a", labels=labels, annotations=annotations, unschedulable=cordoned, ready=ready)
        cluster.obstacles = {"a": "no driver"} if obstacle else {}
        cluster.workloads = [workload("w", "a", controller="", labels={"app": "job"})] if used else []
        fleet = cluster.fleet()
        for taint, is_off in product(NO, (False,) if used else NO):
            progress = msgspec.structs.replace(fleet.node_progress[0], untolerated="a taint" if taint else "")
            policy = msgspec.structs.replace(fleet.policy, auto_upgrade=not is_off)
            tried = msgspec.structs.replace(fleet, policy=policy, node_progress=(progress,))
            after = state_of(patched(progress.node, advanced(tried).patches.get("a")))
            if after is not state:
                yield after


def mig_transitions() -> Transitions:
    found = set()
    cluster = BothMachines("a")
    for _ in range(6):
        cluster.live()
    (progress,) = cluster.fleet().node_progress
    begun = MigChange.begun(progress, "all-balanced", START)
    asked = encode(MigRequest("all-balanced", begun.apply_attempt))
    answers = [
        MigResult("all-balanced", attempt, error, differs)
        for attempt, error, differs in product((begun.check_attempt, begun.apply_attempt), ("", "no"), NO)
    ]
    steps = (None, *get_args(StepName))
    for step, answer, since, enabled, wanted, lost in product(steps, (None, *answers), (START, LONG_AGO), NO, NO, NO):
        annotations = {MIG_WANTED_ANNOTATION: asked} if lost else {}
        if step is not None:
            pods = tuple(pod.uid for pod in progress.pods if pod.operand == Operand.MIG_MANAGER)
            annotations |= record(msgspec.structs.replace(begun, step=step, since=since, why="why", pods=pods))
        if answer is not None:
            annotations[MIG_RESULT_ANNOTATION] = encode(answer)
        node = msgspec.structs.replace(
            progress.node,
            labels=progress.node.labels | ({MIG_CONFIG_LABEL: "all-balanced"} if wanted else {}),
            annotations=annotations,
            unschedulable=step == "draining",
        )
        here = [pod for pod in progress.pods if step != "draining" or pod.operand in ("driver", "mig-manager")]
        fleet = MigFleet(
            now=START,
            spec=MigManagerSpec(enabled=enabled),
            policy=UpgradePolicy(),
            node_progress=(msgspec.structs.replace(progress, node=node, pods=tuple(here)),),
            workloads={"a": ()},
        )
        before, after = current_change(node), current_change(patched(node, advance_mig(fleet).patches.get("a")))
        names = tuple(each.step if each is not None else NONE for each in (before, after))
        if names[0] != names[1]:
            found.add(names)
    return found


def gate_transitions() -> Transitions:
    found = set()
    cluster = BothMachines("a")
    (whole,) = cluster.fleet().node_progress
    removals = (None, DriverRemoval(users=("team/w",)), DriverRemoval(users=()))
    for operand, ready, boot, excluded, removal in product(whole.operands, NO, ("", "one", "two"), NO, removals):
        for label, pause in product((None, LABEL_TRUE, *PAUSES), (None, *PAUSES)):
            labels = {operand.deploy_label: label} if label is not None else {}
            opened = {OPENED_BOOT_ANNOTATION: "one"} if boot else {}
            node = msgspec.structs.replace(whole.node, labels=labels, annotations=opened, boot_id=boot)
            progress = msgspec.structs.replace(whole, node=node, excluded=excluded, driver_removal=removal, pods=())
            operands: dict[Operand, OperandOnNode] = {}
            for each in whole.operands:
                state: OperandState = "excluded" if excluded else "ready" if ready else "progressing"
                blocker = gate_blocker(progress, each, tuple(whole.operands), operands)
                operands[each] = OperandOnNode(operand=each, state=state, blocker=blocker)
            progress = msgspec.structs.replace(progress, operands=operands)
            after = gate_patch(progress, pause, (), START).labels.get(operand.deploy_label, label)
            if boot and after != label:  # without it the label is another operator's
                found.add(tuple({None: "closed", LABEL_TRUE: "open"}.get(each, each) for each in (label, after)))
    return found


@pytest.mark.parametrize(
    ("package", "made"), [(upgrade, upgrade_transitions), (mig, mig_transitions), (gates, gate_transitions)]
)
def test_what_is_drawn_is_what_the_machine_does(package, made):
    assert drawn(package) == made()


def test_every_state_is_drawn() -> None:
    assert {each for pair in drawn(upgrade) for each in pair} == {each.value or NONE for each in State}
    assert {each for pair in drawn(mig) for each in pair} == {NONE, *get_args(StepName)}
