"""`purser plan free --apply` on two real nodes: the API server evicts, Kubernetes' own controllers count budgets and
recreate pods, and kubelets end and start them."""

import json
import math
import re
import subprocess
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from purser.core.kubernetes.times import parsed
from purser.core.names import CORDONED_GPUS_ANNOTATION, GPU_POLICY_ANNOTATION
from tests.scenarios.actions import cards
from tests.scenarios.pods import share, whole

from .kubernetes import RealCluster, busybox_pod
from .purser_processes import PURSER, Purser

NAMESPACE = "planned"
OTHER = "real-1"
GPUS = 6
"""Of the eight of the first node: two hold pods that stay. Of the other node's, three do."""
ENDS_WHEN_TOLD = "trap 'until [ -e /tmp/end ]; do sleep 0.1; done; exit' TERM; sleep 3600 & wait"
RIGHTS = (
    ("nodes", "get,list,watch,patch"),
    ("pods", "get,list,watch"),
    ("poddisruptionbudgets.policy", "get,list,watch"),
    ("pods/eviction", "create"),
    ("events", "create"),
)
"""What docs/plan.md says that it needs."""


class Fleet:
    """Two nodes with eight GPUs each, and pods on them."""

    def __init__(self, purser: Purser, planner: Path) -> None:
        self.cluster = purser.cluster
        self.first = self.cluster.node_name
        self.uuids = {each.node.name: each.driver.uuids for each in purser.agents}
        self._planner = planner

    def purser(self, *words: object) -> str:
        """What a command says that does what it should, by the administrator."""
        command = [str(PURSER), *map(str, words), f"--kubeconfig={self.cluster.kubeconfig}"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def planning(self, *words: str) -> subprocess.Popen[str]:
        """A plan that is being carried out, with the rights that it needs and no others."""
        command = [
            PURSER,
            "plan",
            "free",
            f"--gpus={GPUS}",
            "--apply",
            "--yes",
            f"--kubeconfig={self._planner}",
            *words,
        ]
        return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def pod(self, name: str, limits: dict[str, str], node: str) -> None:
        """A pod that no controller recreates; it runs."""
        selector = {"kubernetes.io/hostname": node}
        self.cluster.create(busybox_pod(name, namespace=NAMESPACE, resources=limits, nodeSelector=selector))
        self.cluster.wait_pod(name, NAMESPACE)

    def set(self, name: str, limits: dict[str, str], replicas: int = 1) -> None:
        """A ReplicaSet whose pods run, on different GPUs of the first node; asked to leave they end when `may_end` says
        so."""
        spread = {GPU_POLICY_ANNOTATION: "spread"}
        pod = busybox_pod(name, command=("sh", "-c", ENDS_WHEN_TOLD), resources=limits)
        spec = {**pod["spec"], "restartPolicy": "Always", "terminationGracePeriodSeconds": 120}
        template = {"metadata": {"labels": {"app": name}, "annotations": spread}, "spec": spec}
        asked = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
        metadata = {"name": name, "namespace": NAMESPACE}
        self.cluster.create({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": asked})
        self.cluster.wait_until(f"{name} runs", lambda: len(self.running(name)) == replicas)

    def may_end(self, pods: Iterable[Any]) -> None:
        """Once they are asked to, be it now."""
        for pod in pods:
            self.cluster.kubectl("exec", f"-n{NAMESPACE}", pod["metadata"]["name"], "--", "touch", "/tmp/end")

    def budget(self, name: str, allowed: int) -> None:
        """A PodDisruptionBudget of a ReplicaSet's pods, once it has counted them."""
        metadata, selector = {"name": name, "namespace": NAMESPACE}, {"matchLabels": {"app": name}}
        spec = {"selector": selector, "maxUnavailable": allowed}
        self.cluster.create(
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}
        )

        def has_counted() -> bool:
            status = self.cluster.get("poddisruptionbudgets", name, NAMESPACE).get("status", {})
            return bool(status.get("currentHealthy")) and status["disruptionsAllowed"] == allowed

        self.cluster.wait_until("the budget has counted", has_counted)

    def running(self, name: str) -> list[Any]:
        """The pods of a ReplicaSet that run and are to stay."""
        found = self.cluster.get("pods", namespace=NAMESPACE, selector=f"app={name}")["items"]
        return [
            pod
            for pod in found
            if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"] and is_ready(pod)
        ]

    def only(self, name: str) -> Any:
        """The one pod of a ReplicaSet."""
        [pod] = self.running(name)
        return pod

    def cordoned(self) -> str:
        """Which GPUs of the first node are."""
        annotations = self.cluster.get("node", self.first)["metadata"]["annotations"]
        return str(annotations.get(CORDONED_GPUS_ANNOTATION, ""))

    def evicted(self, name: str) -> list[Any]:
        """A ReplicaSet's pods that were asked to leave, and have not ended."""
        found = self.cluster.get("pods", namespace=NAMESPACE, selector=f"app={name}")["items"]
        return [pod for pod in found if "deletionTimestamp" in pod["metadata"]]


def is_ready(pod: Any) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"]["conditions"])


def nodes_of(pods: Iterable[Any]) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in pods}


@pytest.fixture(scope="module")
def second(real_cluster: RealCluster) -> Iterator[RealCluster]:
    added = real_cluster.add_node()
    assert added.name == OTHER
    yield real_cluster
    real_cluster.remove_node(added)


@pytest.fixture(scope="module")
def agents(second: RealCluster, purser: Purser) -> Purser:
    purser.add_agent(second.nodes[OTHER])
    return purser


@pytest.fixture(scope="module")
def planner(agents: Purser) -> Iterator[Path]:
    """The kubeconfig of one who may carry out plans."""
    cluster, account = agents.cluster, "planner"
    cluster.create_namespace(NAMESPACE)
    cluster.kubectl("create", "serviceaccount", account, f"-n{NAMESPACE}")
    for number, (resource, verbs) in enumerate(RIGHTS):
        role = f"{account}-{number}"
        cluster.kubectl("create", "clusterrole", role, f"--verb={verbs}", f"--resource={resource}")
        whose = f"--serviceaccount={NAMESPACE}:{account}"
        cluster.kubectl("create", "clusterrolebinding", role, f"--clusterrole={role}", whose)
    yield cluster.service_account_kubeconfig(NAMESPACE, account)
    for number in range(len(RIGHTS)):
        cluster.delete("clusterrole,clusterrolebinding", f"{account}-{number}")
    cluster.delete("namespace", NAMESPACE)


@pytest.fixture
def fleet(agents: Purser, planner: Path) -> Iterator[Fleet]:
    """Five GPUs of the first node hold a pod each, two of them one that stays; so do three of the other node's."""
    fleet = Fleet(agents, planner)
    fleet.pod("blocker", whole(3), OTHER)
    fleet.purser("cordon", "gpu", OTHER, *fleet.uuids[OTHER])
    fleet.pod("bare", whole(), fleet.first)
    fleet.set("guarded", whole())
    fleet.budget("guarded", 0)
    fleet.set("first", share(20000))
    fleet.set("twice", share(20000), replicas=2)
    fleet.budget("twice", 1)
    fleet.purser("uncordon", "gpu", OTHER, *fleet.uuids[OTHER])
    yield fleet
    fleet.purser("uncordon", "gpu", fleet.first, *fleet.uuids[fleet.first])
    fleet.cluster.delete("replicasets,poddisruptionbudgets", "--all", "--cascade=orphan", f"-n{NAMESPACE}")
    fleet.cluster.delete("pods", "--all", "--grace-period=1", f"-n{NAMESPACE}")


def test_a_plan_by_real_evictions_ends_with_its_room_for_the_pod_that_waits(fleet: Fleet) -> None:
    cluster = fleet.cluster
    cluster.create(busybox_pod("wanted", namespace=NAMESPACE, resources=whole(GPUS)))
    guarded = fleet.only("guarded")["metadata"]["uid"]
    movable = [*fleet.running("first"), *fleet.running("twice")]
    before = {pod["metadata"]["name"] for pod in movable}
    fleet.may_end(movable)
    running = fleet.planning("-o", "json")
    out, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    plan = json.loads(out)
    assert (plan["cost"], plan["least_cost"]) == (3, 3)
    [room] = plan["rooms"]
    assert (room["node"], len(room["uuids"])) == (fleet.first, GPUS)
    said = re.findall(rf"(\d)/3: {NAMESPACE}/(\S+) evicted; {NAMESPACE}/(\S+) runs on node (\S+)", err)
    assert [number for number, *_ in said] == ["1", "2", "3"]
    assert {name for _, name, *_ in said} == before == {step["pod"].partition("/")[2] for step in plan["steps"]}
    assert {node for *_, node in said} == {OTHER}
    wanted = cluster.wait_pod("wanted", NAMESPACE, timeout_seconds=60)
    assert (wanted["spec"]["nodeName"], set(cards(wanted))) == (fleet.first, set(room["uuids"]))
    assert fleet.only("guarded")["metadata"]["uid"] == guarded
    assert cluster.get("pod", "bare", NAMESPACE)["status"]["phase"] == "Running"
    assert nodes_of([*fleet.running("first"), *fleet.running("twice")]) == {OTHER}
    assert fleet.cordoned() == ""
    events = cluster.get("events", namespace=NAMESPACE)["items"]
    told = {each["involvedObject"]["name"] for each in events if each["reason"] == "EvictedByPlan"}
    assert told == before
    for (_, _, landed, _), (_, evicted, _, _) in pairwise(said):
        assert when(events, "Started", landed) < when(events, "Killing", evicted)


def when(events: Iterable[Any], reason: str, pod: str) -> float:
    """By kubelet: to the nanosecond in the event's name, which is of the second that it says (`purser backtest` reads
    events so)."""
    [found] = [each for each in events if (each["reason"], each["involvedObject"].get("name")) == (reason, pod)]
    named_s = int(found["metadata"]["name"].rpartition(".")[2], 16) / 1e9
    assert math.floor(named_s) == parsed(found["firstTimestamp"]) and named_s != math.floor(named_s)
    return named_s


def asked_first(fleet: Fleet) -> list[Any]:
    """The pods that the first step asked to leave, one, which still ends."""
    return fleet.cluster.wait_until("a pod is asked to leave", lambda: fleet.evicted("first") or fleet.evicted("twice"))


def test_it_stops_where_others_take_the_places_of_replacements(fleet: Fleet) -> None:
    """While the first pod still ends. Its replacement has a place; the pods of the steps behind it stay."""
    running = fleet.planning()
    ending = asked_first(fleet)
    fleet.pod("foreign", whole(4), OTHER)
    fleet.pod("foreign-share", share(20000), OTHER)
    fleet.may_end(ending)
    out, err = running.communicate(timeout=180)
    assert running.returncode == 1, (out, err)
    assert "no longer has room" in err
    [name] = [pod["metadata"]["name"] for pod in ending]
    assert f"Of 3 steps: {NAMESPACE}/{name} was evicted. Not evicted: " in err
    left = [*fleet.running("first"), *fleet.running("twice")]
    assert sorted(pod["spec"]["nodeName"] for pod in left) == [fleet.first, fleet.first, OTHER]
    assert fleet.cordoned() == ""


def test_it_stops_where_a_foreign_pod_takes_the_room(fleet: Fleet) -> None:
    """Somebody uncordons the GPUs, and a pod comes to one that is idle."""
    running = fleet.planning()
    ending = asked_first(fleet)
    fleet.purser("uncordon", "gpu", fleet.first, *fleet.cordoned().split(","))
    fleet.pod("foreign", whole(), fleet.first)
    out, err = running.communicate(timeout=180)
    assert running.returncode == 1, (out, err)
    [name] = [pod["metadata"]["name"] for pod in ending]
    assert f"another client uncordoned GPUs on node {fleet.first}" in err
    assert f"Of 3 steps: {NAMESPACE}/{name} is being evicted, but the eviction is not complete. Not evicted: " in err
    left = [*fleet.running("first"), *fleet.running("twice")]  # and the replacement, be it already there
    assert [pod["spec"]["nodeName"] for pod in left].count(fleet.first) == 2
    assert fleet.cordoned() == ""
    fleet.may_end(ending)


def test_a_pod_that_its_budget_keeps_is_not_asked_to_leave(fleet: Fleet) -> None:
    """By Kubernetes' own count; and the API server would refuse, as the plan takes for granted."""
    command = [PURSER, "plan", "free", "--gpus=8", f"--kubeconfig={fleet.cluster.kubeconfig}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"{NAMESPACE}/bare has no controller" in done.stderr
    name = fleet.only("guarded")["metadata"]["name"]
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction"
    with pytest.raises(RuntimeError, match="violate the pod's disruption budget"):
        fleet.cluster.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(body))
