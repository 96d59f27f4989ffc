"""Whatever happens to nodes, labels and pods, in whatever order: no operand is let in before its time, no driver goes
from under its users, and when all is quiet again every node has what it should have.

Of what gates wait for, this reaches the operands that one needs, reboots, drivers that leave, and what fields of a node
close (`entry_causes.FIELDS`): a new field has its line there, and fleets begin with it, join with it and change it.
Drivers that do not fit, and models that are not known, are in `test_entry` alone. What labels do and what the status
says is compared wherever `Fleet.work` ends."""

from typing import Any

from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.tiers import examples
from tests.unit.operator.gates.entry_causes import (
    ANY_FIELDS,
    WELL,
    closed_by_fields,
    disagreements,
    is_let_in_now,
    seen,
)
from tests.unit.operator.world import Died, World

from purser.core.names import GPU_PRESENT_LABEL, POOL_LABEL
from purser.operator.gates.facts import user_override
from purser.operator.model import Action, Delete, NodeWorkload, PatchNode, SetFinalizer, WriteStatus
from purser.operator.names import DEPLOY_OPERANDS_LABEL, OPENED_BOOT_ANNOTATION, WORKLOAD_LABEL
from purser.operator.order import Operand, dependents, prerequisites
from purser.operator.policy.decoding import choose

NAMES = st.sampled_from(["a", "b", "c"])
OPERANDS = st.sampled_from(list(Operand))
MACHINES = st.fixed_dictionaries(
    {"nfd": st.booleans(), "gpus": st.sampled_from([1, 1, 0]), "os": st.sampled_from(["22.04", "24.04"])}
)
VERSIONS = st.sampled_from(["595.91.07", "600.1", "601.1"])


class Fleet(RuleBasedStateMachine):
    """Three nodes that people, machines and the operator work on, each in its own time."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.world.add_policy()
        self.world.watchers += [self.judge, self.judge_departure, self.judge_rivals]
        self.cordoned: set[str] = set()
        """By people."""
        self.met_a_rival = False

    @initialize(
        machines=st.fixed_dictionaries({}, optional={"a": MACHINES, "b": MACHINES, "c": MACHINES}),
        fields=st.lists(ANY_FIELDS, min_size=3, max_size=3),
        rounds=st.sampled_from([0, 3, 5, 7, 9, 20]),
    )
    def begin(self, machines: dict[str, Any], fields: list[dict[str, Any]], rounds: int) -> None:
        """Nodes of any kind, at any stage of their first rollout."""
        for (name, machine), each in zip(machines.items(), fields, strict=False):
            self.join(name, machine, each)
        self.work(rounds, None)

    def judge(self, action: Action) -> None:
        """At each write of a node: what is let in had everything that it needs ready since the node started."""
        if not isinstance(action, PatchNode) or action.node not in self.world.nodes:
            return
        node = self.world.nodes[action.node]
        own = tuple(each for each in self.enabled() if not user_override(node, each))
        was_ready = self.world.ready_in_boot.get(action.node, set())
        for operand in Operand:
            if action.labels.get(operand.deploy_label) == "true":
                assert {each.value for each in prerequisites(operand, own)} <= was_ready, f"{operand} on {action.node}"
            if is_let_in_now(node, dict(action.labels), operand):
                assert operand not in closed_by_fields(node), f"{operand} on {action.node}"
        boot = action.annotations.get(OPENED_BOOT_ANNOTATION)
        assert boot is None or boot == node.boot_id

    def judge_departure(self, action: Action) -> None:
        """At each write: no driver is taken away from under those that use it, as long as its node has a GPU."""
        if isinstance(action, PatchNode) and action.labels.get(Operand.DRIVER.deploy_label, "true") is None:
            gone = action.labels.get(GPU_PRESENT_LABEL) == "false"
            assert gone or not self.users(action.node), f"{self.users(action.node)} on {action.node}"
        if isinstance(action, Delete) and action.key.name.startswith("purser-driver-"):
            for name, node in self.world.nodes.items():
                if action.key.name == f"purser-driver-{node.labels.get(POOL_LABEL)}":
                    assert not self.users(name), f"{self.users(name)} on {name}"

    def users(self, name: str) -> set[str]:
        """Who uses the driver of a node that can be asked, and that people have not taken away."""
        node, driver = self.world.nodes.get(name), self.world.pod(name, Operand.DRIVER)
        if node is None or driver is None or not node.ready:
            return set()
        if node.labels.get(Operand.DRIVER.deploy_label) != "true" or node.labels.get(GPU_PRESENT_LABEL) != "true":
            return set()
        needing = {each.value for each in dependents(Operand.DRIVER)}
        jobs = {each.uid for each in self.world.workloads.values() if each.node == name}
        return jobs | ({pod.operand for pod in self.world.on(name)} & needing)

    def judge_rivals(self, action: Action) -> None:
        """While another operator is there, nothing is written but what people read, unless all is taken away."""
        staying = any("deletionTimestamp" not in raw["metadata"] for raw in self.world.policies.values())
        if self.world.rivals and staying:
            assert isinstance(action, WriteStatus | SetFinalizer)

    @rule(there=st.booleans())
    def meet_a_rival(self, there: bool) -> None:
        self.world.rivals = ("theirs",) if there else ()
        self.met_a_rival |= there

    @rule(name=NAMES, machine=MACHINES, fields=ANY_FIELDS)
    def join(self, name: str, machine: dict[str, Any], fields: dict[str, Any]) -> None:
        if name not in self.world.nodes:
            self.world.add_node(name, **machine, **fields)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        self.world.nodes.pop(name, None)
        self.cordoned.discard(name)
        self.world.ready_in_boot.pop(name, None)

    @rule(name=NAMES, comes=st.booleans())
    def flap(self, name: str, comes: bool) -> None:
        if name in self.world.nodes:
            (self.world.nfd_comes if comes else self.world.nfd_leaves)(name)

    @rule(name=NAMES, kernel=st.sampled_from([{}, {"kernel": "6.9"}]))
    def reboot(self, name: str, kernel: dict[str, Any]) -> None:
        if name in self.world.nodes:
            self.world.reboot(name, **kernel)

    @rule(name=NAMES, fields=ANY_FIELDS)
    def change_node(self, name: str, fields: dict[str, Any]) -> None:
        if name in self.world.nodes:
            self.world.set_node(name, **fields)

    @rule(name=NAMES, operand=OPERANDS, breaks=st.booleans())
    def trouble(self, name: str, operand: Operand, breaks: bool) -> None:
        if breaks:
            self.world.crash(name, operand)
        else:
            self.world.troubles.pop((name, operand), None)

    @rule(name=NAMES, operand=OPERANDS, value=st.sampled_from([None, "", "false"]))
    def label(self, name: str, operand: Operand, value: str | None) -> None:
        if name in self.world.nodes:
            self.world.label(name, **{operand.deploy_label: value})

    @rule(name=NAMES, operands=st.sampled_from([None, "false"]), workload=st.sampled_from([None, "odd", "vm-vgpu"]))
    def exclude(self, name: str, operands: str | None, workload: str | None) -> None:
        if name in self.world.nodes:
            self.world.label(name, **{DEPLOY_OPERANDS_LABEL: operands, WORKLOAD_LABEL: workload})

    @rule(version=VERSIONS, off=st.sampled_from([None, "driver", "toolkit", "validator", "migManager", "dcgmExporter"]))
    def change_policy(self, version: str, off: str | None) -> None:
        spec: dict[str, Any] = {"driver": {"version": version}}
        if off is not None:
            spec[off] = {"enabled": False}
        if "gpus" in self.world.policies:
            self.world.change_policy(spec)

    @rule(name=NAMES, profile=st.sampled_from([None, "all-1g.5gb", "all-disabled"]), fails=st.booleans())
    def change_mig(self, name: str, profile: str | None, fails: bool) -> None:
        self.world.mig_errors = {name: "it does not"} if fails else {}
        if name in self.world.nodes:
            self.world.label(name, **{"nvidia.com/mig.capable": "true", "nvidia.com/mig.config": profile})

    @rule(second=st.booleans())
    def delete_policy(self, second: bool) -> None:
        if "gpus" in self.world.policies:
            self.world.delete_policy()
        if second and "second" not in self.world.policies:
            self.world.add_policy("second")
        elif not second and "second" in self.world.policies:
            self.world.delete_policy("second")

    @rule()
    def add_policy(self) -> None:
        if "gpus" not in self.world.policies:
            self.world.add_policy()

    @rule(name=NAMES)
    def restart_driver(self, name: str) -> None:
        self.world.restart_driver(name)

    @rule(name=NAMES)
    def cordon(self, name: str) -> None:
        if name in self.world.nodes and not self.world.nodes[name].unschedulable:
            self.world.set_node(name, unschedulable=True)
            self.cordoned.add(name)

    @rule(name=NAMES)
    def uncordon(self, name: str) -> None:
        if name in self.cordoned:
            self.world.set_node(name, unschedulable=False)
            self.cordoned.discard(name)

    @rule(name=NAMES, count=st.integers(1, 2), controller=st.sampled_from(["Job", ""]))
    def run_job(self, name: str, count: int, controller: str) -> None:
        for number in range(count):
            uid = f"{name}-{number}"
            self.world.workloads[uid] = NodeWorkload(
                namespace="ml", name=uid, uid=uid, node=name, uses_gpu=True, controller=controller
            )

    @rule(rounds=st.sampled_from([1, 2, 4, 20]), dies_after=st.one_of(st.none(), st.integers(0, 8)))
    def work(self, rounds: int, dies_after: int | None) -> None:
        self.world.writes_left = dies_after
        for _ in range(rounds):
            try:
                self.world.round()
            except Died:
                return
            self.world.tick()
        self.world.writes_left = None
        assert not disagreements(seen(self.world.snapshot()))

    @precondition(lambda self: self.world.nodes)
    @rule(name=NAMES)
    def everything_is_mended(self, name: str) -> None:
        self.world.writes_left = None
        self.world.troubles.clear()
        for node in self.world.nodes:
            self.world.set_node(node, **WELL)
        self.world.rivals = ()
        self.world.workloads.clear()
        self.world.wait(3600)
        self.world.settle()
        self.world.wait(3600)
        self.world.settle()
        for node in self.world.nodes:
            self.is_complete(node)
        self.world.settled = {}
        assert self.world.round().actions == ()

    def enabled(self) -> list[Operand]:
        """Operands of the active policy; of all that are there, none is leaving once the operator writes labels."""
        active = choose(list(self.world.policies.values())).policy
        return list(active.spec.enabled) if active is not None else []

    def is_complete(self, name: str) -> None:
        node = self.world.nodes[name]
        if not self.world.policies:
            left = {operand for operand, value in self.world.deployed(name).items() if value}
            theirs = {each.value for each in Operand if user_override(node, each)}
            # labels of nvidia.com that stood when the policy left may have been a rival's
            assert left == theirs or (self.met_a_rival and theirs <= left)
            assert not [key for key in (*node.labels, *node.annotations) if key.startswith("purser.dev")]
            return
        is_excluded = node.labels.get(DEPLOY_OPERANDS_LABEL) == "false" or node.labels.get(WORKLOAD_LABEL) == "vm-vgpu"
        if self.world.gpus[name] and not is_excluded:
            for operand in self.enabled():
                if operand is Operand.MIG_MANAGER and "nvidia.com/mig.capable" not in node.labels:
                    continue
                assert user_override(node, operand) or node.labels.get(operand.deploy_label) == "true", (name, operand)
            assert node.unschedulable == (name in self.cordoned)
            active = choose(list(self.world.policies.values())).raw
            assert active is not None and self.is_ready_or_waits_for_people(active["status"])

    def is_ready_or_waits_for_people(self, status: Any) -> bool:
        """Nodes that people have cordoned are unavailable: meanwhile others may have to wait for their driver."""
        waits = bool(self.cordoned) and "no upgrade can start" in status["upgrade"]["message"]
        return status["state"] == "ready" or waits

    @invariant()
    def a_cordon_of_people_stays(self) -> None:
        assert all(self.world.nodes[name].unschedulable for name in self.cordoned)

    @invariant()
    def no_operand_is_paused_for_nothing(self) -> None:
        for node in self.world.nodes.values():
            paused = {value for value in node.labels.values() if value.startswith("paused-for-")}
            if "paused-for-driver-upgrade" in paused:
                assert "nvidia.com/gpu-driver-upgrade-state" in node.labels
            if "paused-for-mig-change" in paused:
                assert "purser.dev/mig-step" in node.annotations


TestFleet = Fleet.TestCase
TestFleet.settings = examples(40, stateful_step_count=30, suppress_health_check=list(HealthCheck))
