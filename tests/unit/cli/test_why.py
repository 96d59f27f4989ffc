"""`purser why`: what it prints, from a cluster and from a file, and its exit codes."""

import json
import os
import threading

import pytest
from tests.unit.cli.typed import beside, here
from tests.unit.kube.servers import api_server
from tests.unit.scheduler.explained import dump, gpu, gpus, node, pod
from typer.testing import CliRunner

from purser.cli import app, plugin
from purser.kube import Client, ClusterConfig
from purser.kube.resources import EVENTS, NODES, PODS

WAITS = "default/p waits: it does not fit on the only node"


def test_a_file_is_explained(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(dump(node("n", gpus("n", 1, 8000)), pod("p", gpu(9000)), pod("q", gpu(8000))))
    code, out, err = here("why", "p", "--from", file)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == WAITS
    assert lines[2].split() == ["NODES", "GPUS", "REASON", "OF", "WHAT"]
    assert "CardInsufficientMemory" in lines[3]
    code, out, _ = here("why", "p", "--from", file, "-o", "json")
    assert (code, json.loads(out)["reasons"][0]["examples"]) == (0, ["n"])
    assert "fits on 1 of 1 node now (n)" in here("why", "q", "--from", file)[1]
    assert here("why", "r", "--from", file)[::2] == (1, "purser: namespace default has no pod r\n")


def test_a_pod_of_another_namespace_is_pointed_to(tmp_path):
    file = tmp_path / "cluster.json"
    there = pod("p", gpu(9))
    there["metadata"]["namespace"] = "team-a"
    file.write_bytes(dump(node("n", gpus("n", 1)), there))
    said = "purser: namespace default has no pod p, but namespace team-a does\n"
    assert here("why", "p", "--from", file)[::2] == (1, said)


@pytest.mark.parametrize(
    ("facts", "first"),
    [
        (
            {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
            "default/p waits: it is being deleted, so no scheduler places it",
        ),
        (
            {"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}},
            "default/p is on node n, but does not run: NotAdmittedYet (kubelet): "
            "kubelet has not acknowledged the pod yet.",
        ),
        (
            {
                "spec": {"nodeName": "n", "containers": [{"name": "c"}, {"name": "side"}]},
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "c", "state": {"running": {}}},
                        {"name": "side", "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}},
                    ],
                },
            },
            "default/p runs on node n, but container side does not: ErrImagePull: no such image",
        ),
        (
            {"status": {"phase": "Failed", "reason": "TopologyAffinityError", "message": "Pod was rejected"}},
            "default/p failed: TopologyAffinityError (kubelet): Pod was rejected",
        ),
    ],
)
def test_a_pod_that_nothing_would_place_is_offered_no_change(tmp_path, facts, first):
    file, made = tmp_path / "cluster.json", pod("p", gpu(9000))
    for part, more in facts.items():
        made[part] |= more
    file.write_bytes(dump(node("n", gpus("n", 1, 8000)), made))
    code, out, err = here("why", "p", "--from", file)
    assert (code, err, out.splitlines()[0], "change" in out) == (0, "", first, False)


@pytest.mark.parametrize(
    ("asks", "then"),
    [
        (gpu(8000), "Without its gates, the pod would fit on 1 of 2 nodes now (n)."),
        (gpu(9000), "Without its gates, the pod would still wait: it fits on none of 2 nodes."),
    ],
)
def test_of_a_pod_with_gates_it_says_what_holds_it_then(tmp_path, asks, then):
    file, made = tmp_path / "cluster.json", pod("p", asks, schedulingGates=[{"name": "a/b"}, {"name": "c/d"}])
    file.write_bytes(dump(node("n", gpus("n", 1, 8000)), node("m", gpus("m", 1, 4000)), made))
    code, out, _ = here("why", "p", "--from", file)
    first, second, *rest = out.splitlines()
    assert (code, first) == (0, "default/p waits: its scheduling gates have not been removed: a/b, c/d")
    assert second == then and "change" not in out
    assert "CardInsufficientMemory" in rest[2]


def test_an_object_without_a_name_is_left_out_and_named(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(dump(node("n", gpus("n", 1, 8000)), pod("p", gpu(9000)), {"kind": "Node"}))
    code, out, err = here("why", "p", "--from", file)
    said = "purser: object 3 of the file is skipped: the Node has no name\n"
    assert (code, err, out.splitlines()[0]) == (0, said, WAITS)


def test_resource_claims_are_said_not_to_be_looked_at(tmp_path):
    """Nothing else would tell why a pod that fits waits, or that one of a manifest may."""
    file = tmp_path / "cluster.json"
    file.write_bytes(dump(node("n", gpus("n", 1)), pod("p", gpu(9), resourceClaims=[{"name": "zebra"}])))
    assert "(DRA). ResourceClaims were not read, so Purser does not check them" in here("why", "p", "--from", file)[2]
    hidden = here("snapshot", "--anonymize", "--from", file)[1]
    assert ('"resourceClaims":[' in hidden, "zebra" in hidden) == (True, False)


def test_a_pipe_is_read_once(tmp_path):
    pipe, text = tmp_path / "pipe", dump(node("n", gpus("n", 1, 8000)), pod("p", gpu(9000)))
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(text,))
    writer.start()
    code, out, err = here("why", "p", "--from", pipe)
    writer.join()
    assert (code, err, out.splitlines()[0]) == (0, "", WAITS)


def test_a_pod_on_a_node_is_explained(tmp_path):
    file = tmp_path / "cluster.json"
    nodes = [node(name, gpus(name, 1, 8000)) for name in ("m", "n")]
    file.write_bytes(dump(*nodes, pod("p", gpu(9), on="n", share={"n-0": 9})))
    code, out, err = here("why", "p", "--from", file)
    assert (code, err) == (0, "")
    head, held, own, other, *_ = out.splitlines()
    assert (head, held) == ("default/p is on node n", "The pod holds GPU 0: 9 MiB.")
    assert own.startswith(
        "In the cluster as it is now without the pod, the pod would fit on 2 nodes. Policy purser ranks the pod's node"
    )
    assert other.startswith("The best other node is m: ")


def test_what_cannot_be_used_is_wrong_usage(tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text("items: []")
    code, _, err = here("why", "p", "--from", file)
    assert code == 2
    assert "use the output of kubectl get nodes,pods -A -o json" in err
    assert here("why", "p", "--from", file, "--context", "c")[0] == 2
    assert here("why", "p", "--from", tmp_path / "none")[0] == 2


async def test_a_cluster_is_explained(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig, tls=False) as (_, client):
        made = node("n", gpus("n", 1, 8000))
        await client.create(NODES, {"metadata": {**made["metadata"], "uid": None}})
        await client.patch_merge(NODES, "n", {"status": made["status"]}, subresource="status")
        body = pod("p", gpu(9000))
        await client.create(PODS, {**body, "metadata": {"name": "p", "namespace": "default"}})
        volume = {"name": "v", "persistentVolumeClaim": {"claimName": "gone"}}
        body = pod("claims", gpu(8000), volumes=[volume])
        await client.create(PODS, {**body, "metadata": {"name": "claims", "namespace": "default"}})
        code, out, err = await beside("why", "p", f"--kubeconfig={kubeconfig}")
        assert (code, err, out.splitlines()[0]) == (0, "", WAITS)
        code, out, _ = await beside("why", "claims", f"--kubeconfig={kubeconfig}")
        assert (code, out) == (0, "default/claims waits: PersistentVolumeClaim gone does not exist\n")
        async with Client(ClusterConfig.load(kubeconfig)) as client:
            body = pod("mounts", gpu(9), on="n")
            made = await client.create(PODS, {**body, "metadata": {"name": "mounts", "namespace": "default"}})
            for name, uid, type in (
                ("of-it", made.metadata.uid, "Warning"),
                ("of-former", "other", "Warning"),
                ("ok", made.metadata.uid, "Normal"),
            ):
                about = {"kind": "Pod", "name": "mounts", "namespace": "default", "uid": uid}
                event = {"reason": "FailedMount", "message": name, "type": type, "source": {"component": "kubelet"}}
                await client.create(
                    EVENTS, {"metadata": {"name": name, "namespace": "default"}, "involvedObject": about, **event}
                )
        code, out, err = await beside("why", "mounts", f"--kubeconfig={kubeconfig}")
        head = "default/mounts is on node n, but does not run: FailedMount (kubelet): of-it"
        assert (code, err, out.splitlines()[0]) == (0, "", head)
        code, _, err = await beside("why", "p", "-n", "other", f"--kubeconfig={kubeconfig}")
        assert (code, err) == (1, "purser: namespace other has no pod p, but namespace default does\n")


def test_of_a_pod_that_fits_it_says_what_its_scheduler_said_and_not_that_it_has_yet_to_try(tmp_path):
    file = tmp_path / "cluster.json"
    waiting = pod("p", gpu(8000))
    file.write_bytes(dump(node("n", gpus("n", 1, 8000)), waiting))
    fits = "default/p waits, and fits on 1 of 1 node now (n)"
    assert (
        here("why", "p", "--from", file)[1]
        == f"{fits}: scheduler purser-scheduler has not tried to place the pod yet\n"
    )
    message = "0/1 nodes are available: 1 node(s) exceed max volume count."
    waiting["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": message}]
    file.write_bytes(dump(node("n", gpus("n", 1, 8000)), waiting))
    assert here("why", "p", "--from", file)[1].splitlines() == [
        fits,
        f"Last message from scheduler purser-scheduler: {message}",
        "That message is out of date, or is about something that purser why does not check "
        '(see "Why a pod waits" in the documentation).',
    ]


def test_the_plugin_of_kubectl_has_commands_that_write_nothing():
    def names(typed):
        return {each.name for each in (*typed.registered_commands, *typed.registered_groups)}

    writing = {"cordon", "uncordon", "agent", "scheduler", "operator", "lab", "clean-up"}
    of_machines = {"discover", "mig-worker", "webhook", "conformance"}
    assert names(plugin) == names(app) - writing - of_machines - {"completion", "man-pages"}
    assert CliRunner().invoke(plugin, ["why", "--help"]).exit_code == 0
    helps = {words: CliRunner().invoke(each, ["plan", "free", "--help"]) for words, each in (("r", plugin), ("w", app))}
    assert {words: ("--yes" in each.stdout, "--gpus" in each.stdout) for words, each in helps.items()} == {
        "r": (False, True),
        "w": (True, True),
    }
    applied = CliRunner().invoke(plugin, ["plan", "free", "--gpus=1", "--apply"])
    assert (applied.exit_code, "No such option: --apply" in applied.output) == (2, True)


@pytest.mark.parametrize("output", ["table", "wide", "yaml"])
def test_no_text_of_others_commands_the_terminal(tmp_path, output):
    file = tmp_path / "cluster.json"
    taint = {"key": "\x1b[31m", "value": "a\nb", "effect": "NoSchedule"}
    file.write_bytes(dump(node("n", taints=[taint]), pod("p", {})))
    code, out, err = here("why", "p", "--from", file, "-o", output)
    assert code == 0
    assert "\x1b" not in out + err


@pytest.mark.parametrize(
    "words",
    [
        ["--scheduler=https://localhost:1"],
        ["--token-file=token"],
        ["--scheduler=https://localhost:1", "--token-file=token", "--from=file"],
        ["--scheduler=http://localhost:1", "--token-file=token"],
    ],
    ids=["no token", "no scheduler", "two sources", "not HTTPS"],
)
def test_a_scheduler_is_asked_by_https_with_a_token_and_instead_of_a_cluster(words):
    code, out, err = here("why", "p", *words)
    assert (code, out) == (2, "") and err
