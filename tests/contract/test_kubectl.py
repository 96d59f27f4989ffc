"""The commands people type, with the kubectl on this machine; in the fast tier one of each kind, for each is 50 ms."""

import asyncio
import json
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from purser.lab.apiserver import ApiServer, LogOptions
from tests.tiers import IS_LONG, some

from .client import Api, until
from .objects import binding, deployment, pod

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


@dataclass(frozen=True)
class Printed:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def ok(self) -> str:
        assert self.code == 0, self
        return self.out


NEEDING_A_PROCESS = (("exec", "a", "--", "ls"), ("attach", "a"), ("port-forward", "a", "8080:80"))

Kubectl = Callable[..., Awaitable[Printed]]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where kubectl keeps what it has discovered."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(api: Api, ns: str, home: Path) -> Kubectl:
    """Runs kubectl in the test's namespace."""

    async def run(*arguments: str, stdin: Any = None, env: dict[str, str] | None = None) -> Printed:
        process = await asyncio.create_subprocess_exec(
            "kubectl", f"--kubeconfig={api.kubeconfig}", f"--namespace={ns.rsplit('/', 1)[1]}", *arguments,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "HOME": str(home), "GOGC": "off", **(env or {})},  # so short a life needs no collector
        )  # fmt: skip
        text = stdin if isinstance(stdin, str) else json.dumps(stdin) if stdin else ""
        out, err = await asyncio.wait_for(process.communicate(text.encode()), 60)
        return Printed(process.returncode or 0, out.decode(), err.decode())

    return run


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


async def test_get_prints_tables_and_objects(kubectl: Kubectl, api: Api, ns: str) -> None:
    (await api.post(f"{ns}/pods", pod("a", labels={"app": "x"}))).ok()
    rows = table((await kubectl("get", "pods")).ok())
    assert rows[0] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert rows[1][:4] == ["a", "0/1", "Pending", "0"]
    assert "No resources found" in (await kubectl("get", "pods", "--field-selector", "spec.nodeName=n")).err
    if IS_LONG:  # the same answer, printed otherwise
        wide = (await kubectl("get", "po", "-o", "wide", "-l", "app=x")).ok()
        assert "NODE" in wide and "<none>" in wide
        assert (await kubectl("get", "pod", "a", "-o", "jsonpath={.status.phase}")).ok() == "Pending"
        assert json.loads((await kubectl("get", "pod", "a", "-o", "json")).ok())["kind"] == "Pod"
        assert "kind: Pod" in (await kubectl("get", "pod", "a", "-o", "yaml")).ok()
        assert ns.rsplit("/", 1)[1] in (await kubectl("get", "pods", "-A")).ok()
    assert "not found" in (await kubectl("get", "pod", "none")).err


async def test_nodes_are_listed_cordoned_and_described(kubectl: Kubectl, api: Api, unique: str) -> None:
    status = {
        "capacity": {"cpu": "8", "nvidia.com/gpu": "8"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        "nodeInfo": {"kubeletVersion": "v1.32.0"},
    }
    (await api.post("/api/v1/nodes", {"metadata": {"name": unique}, "status": status})).ok()
    await kubectl("label", "node", unique, "node-role.kubernetes.io/gpu=")
    assert "cordoned" in (await kubectl("cordon", unique)).ok()
    rows = table((await kubectl("get", "node", unique)).ok())
    assert rows[0] == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    shown = [rows[1][0], rows[1][1], rows[1][2], rows[1][4]]
    assert shown == [unique, "Ready,SchedulingDisabled", "gpu", "v1.32.0"]
    if IS_LONG:
        assert "uncordoned" in (await kubectl("uncordon", unique)).ok()
        (await kubectl("taint", "node", unique, "a=b:NoSchedule")).ok()
        waited = await kubectl("wait", "--for=condition=Ready", f"node/{unique}", "--timeout=5s")
        assert "condition met" in waited.ok()
    described = (await kubectl("describe", "node", unique)).ok()
    assert "nvidia.com/gpu" in described
    assert not IS_LONG or "a=b:NoSchedule" in described
    await api.delete(f"/api/v1/nodes/{unique}")


async def test_describe_pod_shows_its_events(kubectl: Kubectl, api: Api, ns: str) -> None:
    made = (await api.post(f"{ns}/pods", pod("a"))).ok().body["metadata"]
    event = {
        "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Pod", "namespace": made["namespace"], "name": "a", "uid": made["uid"]},
        "reason": "FailedScheduling", "message": "no card is free", "type": "Warning", "count": 1,
        "firstTimestamp": made["creationTimestamp"], "lastTimestamp": made["creationTimestamp"],
        "source": {"component": "contract"},
    }  # fmt: skip
    (await api.post(f"{ns}/events", event)).ok()
    described = (await kubectl("describe", "pod", "a")).ok()
    assert "FailedScheduling" in described and "no card is free" in described
    for command in (["get", "events"], ["events"])[: 2 if IS_LONG else 1]:
        printed = (await kubectl(*command)).ok()
        assert "FailedScheduling" in printed and "pod/a" in printed.lower()


async def test_client_side_apply_creates_changes_and_removes(kubectl: Kubectl, api: Api, ns: str) -> None:
    body = deployment("d", replicas=0)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    assert "created" in (await kubectl("apply", "-f", "-", stdin=body)).ok()
    if IS_LONG:
        assert "unchanged" in (await kubectl("apply", "-f", "-", stdin=body)).ok()
    container["env"] = [{"name": "B", "value": "3"}]
    assert "configured" in (await kubectl("apply", "-f", "-", stdin=body)).ok()
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments/d"
    live = (await api.get(path)).body["spec"]["template"]["spec"]["containers"][0]
    assert live["env"] == [{"name": "B", "value": "3"}]
    if IS_LONG:
        assert "+" in (await kubectl("diff", "-f", "-", stdin=deployment("d", replicas=0, image="other:1"))).out


async def test_server_side_apply_reports_conflicts(kubectl: Kubectl) -> None:
    body = deployment("d", replicas=0)
    first = await kubectl("apply", "--server-side", "-f", "-", "--field-manager=one", stdin=body)
    assert "serverside-applied" in first.ok()
    other = deployment("d", replicas=0, image="registry.example/app:2")
    refused = await kubectl("apply", "--server-side", "-f", "-", "--field-manager=two", stdin=other)
    assert refused.code != 0
    assert 'conflict with "one": .spec.template.spec.containers[name="main"].image' in refused.err
    forced = await kubectl("apply", "--server-side", "-f", "-", "--field-manager=two", "--force-conflicts", stdin=other)
    forced.ok()


@pytest.mark.gate
async def test_client_side_apply_can_move_to_server_side(kubectl: Kubectl, api: Api, ns: str) -> None:
    (await kubectl("apply", "-f", "-", stdin=deployment("d", replicas=0))).ok()
    changed = deployment("d", replicas=0, image="registry.example/app:2")
    (await kubectl("apply", "--server-side", "-f", "-", stdin=changed)).ok()
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments/d"
    live = (await api.get(path)).body["spec"]["template"]["spec"]["containers"][0]
    assert live["image"] == "registry.example/app:2"


async def test_a_misspelt_field_is_refused_with_its_path(kubectl: Kubectl) -> None:
    body = pod("a")
    body["spec"]["containers"][0]["imagge"] = "x"
    refused = await kubectl("apply", "-f", "-", stdin=body)
    assert refused.code != 0
    assert "imagge" in refused.err and "unknown field" in refused.err


async def test_create_replace_edit_and_patch(kubectl: Kubectl, api: Api, ns: str) -> None:
    assert "created" in (await kubectl("create", "configmap", "c", "--from-literal=x=1")).ok()
    if IS_LONG:
        assert "already exists" in (await kubectl("create", "configmap", "c")).err
        assert "created" in (await kubectl("create", "-f", "-", stdin=pod("a"))).ok()
        (await kubectl("create", "secret", "generic", "s", "--from-literal=x=1")).ok()
        refused = await kubectl("patch", "pod", "a", "-p", '{"spec":{"hostname":"x"}}')
        assert "pod updates may not change fields other than" in refused.err
    replaced = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"y": "two"}}
    assert "replaced" in (await kubectl("replace", "-f", "-", stdin=replaced)).ok()
    assert "edited" in (await kubectl("edit", "cm", "c", env={"KUBE_EDITOR": "sed -i s/two/three/"})).ok()
    assert (await api.get(f"{ns}/configmaps/c")).body["data"] == {"y": "three"}
    changes = {
        "json": [{"op": "add", "path": "/data/json", "value": "1"}],
        "merge": {"data": {"merge": "1"}},
        "strategic": {"data": {"strategic": "1"}},
    }
    kinds = some(tuple(changes), 2)
    for kind in kinds:
        assert "patched" in (await kubectl("patch", "cm", "c", f"--type={kind}", "-p", json.dumps(changes[kind]))).ok()
    assert set((await api.get(f"{ns}/configmaps/c")).body["data"]) == {"y", *kinds}


async def test_label_annotate_scale_and_can_i(kubectl: Kubectl, api: Api, ns: str) -> None:
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    (await api.post(ns.replace("/api/v1", "/apis/apps/v1") + "/deployments", deployment("d", replicas=0))).ok()
    assert "scaled" in (await kubectl("scale", "deployment", "d", "--replicas=0")).ok()
    assert (await kubectl("auth", "can-i", "create", "pods")).ok().strip() == "yes"
    if IS_LONG:
        assert "labeled" in (await kubectl("label", "pod", "a", "x=y")).ok()
        assert "x=y" in (await kubectl("get", "pods", "--show-labels")).ok()
        assert "annotated" in (await kubectl("annotate", "pod", "a", "x=y")).ok()
        assert "deployments" in (await kubectl("api-resources")).ok()


async def test_delete_waits_by_name_label_and_file(kubectl: Kubectl, api: Api, ns: str) -> None:
    ways = {"a": ("pod", "a"), "b": ("-f", "-"), "c": ("pods", "-l", "app=c")}
    for name in some(tuple(ways), 2):
        (await api.post(f"{ns}/pods", pod(name, labels={"app": name}))).ok()
        assert f'pod "{name}" deleted' in (await kubectl("delete", *ways[name], stdin=pod(name))).ok()
    assert (await api.get(f"{ns}/pods")).body["items"] == []


async def test_wait_sees_deletion_and_json_paths(kubectl: Kubectl, api: Api, ns: str) -> None:
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    phase = asyncio.create_task(kubectl("wait", "pod/a", "--for=jsonpath={.status.phase}=Running", "--timeout=20s"))
    end = asyncio.create_task(kubectl("wait", "pod/a", "--for=delete", "--timeout=20s"))
    (await api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Running"}})).ok()
    assert "condition met" in (await phase).ok()
    (await api.delete(f"{ns}/pods/a")).ok()
    assert (await end).code == 0


async def test_get_watch_prints_changes_as_they_come(kubectl: Kubectl, api: Api, ns: str, home: Path) -> None:
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    process = await asyncio.create_subprocess_exec(
        "kubectl", f"--kubeconfig={api.kubeconfig}", "-n", ns.rsplit("/", 1)[1], "get", "pods", "-w",
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "HOME": str(home)},
    )  # fmt: skip
    assert process.stdout
    try:
        lines = [await asyncio.wait_for(process.stdout.readline(), 20) for _ in range(2)]
        (await api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Failed", "reason": "Evicted"}})).ok()
        lines.append(await asyncio.wait_for(process.stdout.readline(), 20))
    finally:
        process.terminate()
        await process.wait()
    text = [line.decode().split() for line in lines]
    assert text[0][0] == "NAME" and text[1][:3] == ["a", "0/1", "Pending"] and text[2][:3] == ["a", "0/1", "Evicted"]


async def test_drain_evicts_and_waits(kubectl: Kubectl, api: Api, ns: str, unique: str) -> None:
    (await api.post("/api/v1/nodes", {"metadata": {"name": unique}})).ok()
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    (await api.post(f"{ns}/pods/a/binding", binding("a", unique))).ok()
    drain = asyncio.create_task(kubectl("drain", unique, "--force", "--timeout=20s"))

    async def evicted() -> bool:
        return "deletionTimestamp" in (await api.get(f"{ns}/pods/a")).body["metadata"]

    await until("the pod is evicted", evicted)
    (await api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 0})).ok()
    assert "drained" in (await drain).ok()
    await api.delete(f"/api/v1/nodes/{unique}")


async def test_logs_come_from_their_server(kubectl: Kubectl, api: Api, ns: str, server: ApiServer | None) -> None:
    if server is None:
        pytest.skip("a real cluster needs a kubelet for this")

    async def logs(body: dict[str, Any], options: LogOptions) -> Any:
        for line in ("one", "two", "three")[-(options.tail_lines or 3) :]:
            yield f"{body['metadata']['name']}/{options.container}: {line}\n".encode()

    (await api.post(f"{ns}/pods", pod("a"))).ok()
    (await api.post(f"{ns}/pods/a/binding", binding("a", "n1"))).ok()
    server.serve_logs(logs)
    assert (await kubectl("logs", "a", "--tail=2")).ok() == "a/main: two\na/main: three\n"
    assert "container other is not valid for pod a" in (await kubectl("logs", "a", "-c", "other")).err


@pytest.mark.gate
async def test_debug_adds_a_container(kubectl: Kubectl, api: Api, ns: str) -> None:
    if api.minor < 25:
        pytest.skip("ephemeral containers came with 1.25")
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    (await kubectl("debug", "--image=busybox", "a", "-c", "look")).ok()
    (added,) = (await api.get(f"{ns}/pods/a")).body["spec"]["ephemeralContainers"]
    assert (added["name"], added["image"]) == ("look", "busybox")


@pytest.mark.parametrize("command", NEEDING_A_PROCESS if IS_LONG else NEEDING_A_PROCESS[:1])
async def test_what_needs_a_process_says_that_there_is_none(
    kubectl: Kubectl, api: Api, ns: str, server: ApiServer | None, command: tuple[str, ...]
) -> None:
    if server is None:
        pytest.skip("a real cluster needs a kubelet for this")
    body = pod("a")
    body["status"] = {"phase": "Running"}
    (await api.post(f"{ns}/pods", body)).ok()
    (await api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Running"}})).ok()
    early = await kubectl(*command)
    assert (early.code != 0, "pod a does not have a host assigned" in early.err) == (True, True), early
    (await api.post(f"{ns}/pods/a/binding", binding("a", "n1"))).ok()
    said = await kubectl(*command)
    assert (said.code != 0, "the lab does not run containers" in said.err) == (True, True), said
    if IS_LONG and command[0] == "exec":
        other = await kubectl("exec", "a", "-c", "other", "--", "ls")
        assert "container other is not valid for pod a" in other.err or "container other not found" in other.err
