"""`purser operator` and `purser discover`, against the lab's API server."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest
import yaml
from tests.tiers import IS_LONG
from tests.unit.cli.typed import here
from tests.unit.operator.crd_judge import refusals
from tests.unit.operator.embedded import eventually
from tests.unit.operator.embedded_cluster import POLICY, stack

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.kube import NotFoundError, untyped_resource
from purser.kube.resources import NODES
from purser.lab.ports import free_ports
from purser.operator.names import WORKLOAD_LABEL
from purser.operator.observing.kinds import DEFINITIONS, nvidia_objects
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.policy.importing import import_policy

pytestmark = pytest.mark.processes

PURSER = Path(sys.executable).with_name("purser")
NVIDIA_POLICY = {
    "apiVersion": "nvidia.com/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "cluster-policy"},
    "spec": {"driver": {"enabled": True, "version": "570.86.10"}, "sandboxWorkloads": {"enabled": True}},
}


@pytest.fixture
async def cluster(tmp_path):
    async with stack(tmp_path) as found:
        found.kubeconfig = tmp_path / "kubeconfig"
        yield found


async def operator(cluster, command, *arguments):
    """A process, for a command that ends leaves the closing of its connections to the end of its process."""
    return await process(cluster, command, *arguments)


async def process(cluster, command, *arguments):
    """The same, of commands that listen to signals: only a process of its own can."""
    running = await asyncio.create_subprocess_exec(
        PURSER,
        "operator",
        command,
        f"--kubeconfig={cluster.kubeconfig}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await running.communicate()
    return running.returncode, out.decode(), err.decode()


def write(path, obj):
    path.write_text(yaml.safe_dump(obj))
    return path


@pytest.mark.gate
async def test_it_runs_until_stopped_previews_and_goes_without_a_trace(cluster, tmp_path):
    await cluster.client.create(CLUSTER_POLICIES, POLICY)
    code, out, _ = await process(cluster, "run", "--dry-run", "--image=purser.test/purser:1")
    assert (code, cluster.cluster.writes) == (0, [])
    assert out == "finalizers of ClusterPolicy policy: purser.dev/operator-cleanup\n1 write\n"

    [port] = free_ports(1)
    running = await asyncio.create_subprocess_exec(
        PURSER,
        "operator",
        "run",
        f"--kubeconfig={cluster.kubeconfig}",
        "--image=purser.test/purser:1",
        f"--metrics-port={port}",
        "--metrics-address=127.0.0.1",
        "--log-level=error",
    )
    try:
        await cluster.settled(port)
    finally:
        running.send_signal(signal.SIGTERM)
        assert await running.wait() == 0

    code, out, _ = await process(cluster, "run", "--dry-run")
    assert (code, out) == (0, "nothing to write\n"), "the image is that of the live objects"
    spec = {"driver": {"version": "999.1"}}
    wanted = write(
        tmp_path / "wanted.yaml", {"apiVersion": "purser.dev/v1alpha1", "kind": "ClusterPolicy", **POLICY, "spec": spec}
    )
    code, out, _ = await process(cluster, "run", "--dry-run", "--image=purser.test/purser:1", f"--policy={wanted}")
    assert code == 0
    assert "999.1" in out
    code, out, err = await operator(cluster, "plan", f"--policy={wanted}", "--image=purser.test/purser:1")
    assert (code, err) == (0, "")
    assert "n0" in out
    code, out, _ = await process(cluster, "uninstall", "--dry-run", "--crd")
    assert code == 0
    assert "delete CustomResourceDefinition clusterpolicies.purser.dev" in out
    assert "delete DaemonSet " in out
    code, out, _ = await process(cluster, "uninstall", "--crd")
    assert code == 0
    assert out.endswith("ClusterPolicies and everything that was deployed for them have been removed\n")


@pytest.mark.gate
async def test_when_the_time_is_up_what_is_left_is_named_and_the_exit_code_says_so(cluster):
    kept = {"metadata": {"name": "policy", "finalizers": ["foreign.io/keep"]}, "spec": {}}
    await cluster.client.create(CLUSTER_POLICIES, kept)
    code, out, err = await process(cluster, "uninstall", "--timeout=5")
    assert (code, out) == (1, "ClusterPolicy policy: deletion requested\n")
    assert "not removed within 5 s: " in err
    assert "ClusterPolicy policy (deletion blocked by other finalizers: foreign.io/keep)" in err


def test_a_policy_of_the_gpu_operator_is_imported_and_what_is_lost_reported(tmp_path):
    file = write(tmp_path / "nvidia.yaml", NVIDIA_POLICY)
    code, out, err = here("operator", "import", file)
    assert code == 0
    policy = yaml.safe_load(out)
    assert policy["apiVersion"] == "purser.dev/v1alpha1"
    assert policy["spec"]["driver"]["version"] == "570.86.10"
    assert "not imported: spec.sandboxWorkloads" in err
    headlines = [line for line in err.splitlines() if line.startswith("purser: not imported, ")]
    assert headlines[0].endswith("these are no longer deployed to the affected nodes:")
    assert refusals(policy["spec"]) == []


DRIVER = {
    "apiVersion": "nvidia.com/v1alpha1",
    "kind": "NVIDIADriver",
    "metadata": {"name": "h100"},
    "spec": {"repository": "r.example", "image": "driver", "version": "580.1", "nodeSelector": {"gpu": "h100"}},
}
THEIR_KINDS = (("v1", "clusterpolicies", "ClusterPolicy"), ("v1alpha1", "nvidiadrivers", "NVIDIADriver"))


def with_drivers():
    spec = {**NVIDIA_POLICY["spec"], "driver": {"useNvidiaDriverCRD": True}}
    return {**NVIDIA_POLICY, "spec": spec}


def test_drivers_in_the_same_file_become_profiles(tmp_path):
    path = tmp_path / "nvidia.yaml"
    path.write_text(yaml.safe_dump_all([with_drivers(), None, DRIVER]))
    code, out, _ = here("operator", "import", path)
    assert code == 0
    assert [each["name"] for each in yaml.safe_load(out)["spec"]["driver"]["profiles"]] == ["h100"]


async def test_the_policy_of_nvidias_operator_is_read_from_the_cluster(cluster):
    for version, plural, kind in THEIR_KINDS:
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {"plural": plural, "kind": kind, "singular": kind.lower()}
        spec = {"group": "nvidia.com", "scope": "Cluster", "names": names, "versions": [served]}
        await cluster.client.create(DEFINITIONS, {"metadata": {"name": f"{plural}.nvidia.com"}, "spec": spec})
        theirs = untyped_resource("nvidia.com", version, plural, kind, namespaced=False)

        async def served_now(theirs=theirs):
            try:
                return await cluster.client.list(theirs) is not None
            except NotFoundError:
                return False

        await eventually(served_now, 10)
        await cluster.client.create(theirs, with_drivers() if kind == "ClusterPolicy" else DRIVER)
    ignored = {"metadata": {"name": "vm", "labels": {WORKLOAD_LABEL: "vm-vgpu"}}}
    await cluster.client.create(NODES.raw(), ignored)
    await cluster.client.create(NODES.raw(), {"metadata": {"name": "other"}})
    objects = await nvidia_objects(cluster.client)
    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Node"] == ["vm"]
    imported = import_policy(objects)
    assert [each["name"] for each in imported.policy["spec"]["driver"]["profiles"]] == ["h100"]


def test_a_policy_to_preview_is_one_object(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump_all([POLICY, POLICY]))
    code, _, err = here("operator", "plan", f"--policy={path}")
    assert code == 2
    assert "contains 2 objects" in err


@pytest.mark.gate
async def test_a_policy_with_a_field_that_nobody_knows_is_misuse(cluster, tmp_path):
    wrong = {"apiVersion": "purser.dev/v1alpha1", "kind": "ClusterPolicy", **POLICY}
    path = write(tmp_path / "wrong.yaml", wrong | {"spec": {"driver": {"versoin": "1"}}})
    for command in (("plan",), ("run", "--dry-run")):
        code, out, err = await process(cluster, *command, f"--policy={path}")
        assert (code, out) == (2, "")
        assert err == 'purser: ClusterPolicy policy: unknown field "spec.driver.versoin"\n'


@pytest.mark.gate
async def test_who_stops_reading_a_preview_gets_no_traceback(cluster, tmp_path):
    path = write(tmp_path / "policy.yaml", {"apiVersion": "purser.dev/v1alpha1", "kind": "ClusterPolicy", **POLICY})
    run = f"{PURSER} operator run --dry-run --kubeconfig={cluster.kubeconfig} --policy={path} | head -1"
    process = await asyncio.create_subprocess_shell(run, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert out
    assert err == b""


@pytest.mark.gate
async def test_what_would_change_of_the_definition_is_shown(cluster):
    assert (await operator(cluster, "crd", "--apply", "--dry-run"))[:2] == (0, "nothing to write\n")
    assert (await operator(cluster, "crd", "--dry-run"))[0] == 2


@pytest.mark.gate
async def test_without_a_policy_of_the_gpu_operator_import_says_what_to_do(cluster):
    code, out, err = await operator(cluster, "import")
    assert (code, out) == (1, "")
    assert err == "purser: this cluster has no ClusterPolicy of nvidia.com/v1: specify a file that contains one\n"


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("- a\n- b\n", "must contain an object"),
        ("a: [", "nvidia.yaml cannot be read"),
        ("[" * 5000, "nested deeper"),
        (None, "nvidia.yaml: No such file"),
    ],
    ids=["a list", "no YAML", "a deep one", "no file"],
)
def test_a_file_that_is_no_policy_is_refused(text, events, tmp_path):
    path = tmp_path / "nvidia.yaml"
    if text is not None:
        path.write_text(text)
    code, _, err = here("operator", "import", path)
    assert code == 2
    assert events in err
    assert "Traceback" not in err


@pytest.mark.gate
async def test_scripts_read_what_an_upgrade_would_do(cluster):
    await cluster.client.create(CLUSTER_POLICIES, POLICY)
    for form, load in (("json", json.loads), ("yaml", yaml.safe_load))[: 2 if IS_LONG else 1]:
        code, out, _ = await operator(cluster, "plan", "-o", form)
        assert code == 0
        assert {"target", "waves", "under_way", "skipped", "waiting"} <= load(out).keys()


def test_a_policy_to_act_on_is_applied_and_not_given_as_an_option(tmp_path):
    code, _, err = here("operator", "run", f"--policy={tmp_path / 'x.yaml'}")
    assert code == 2
    assert "--dry-run" in err


@pytest.mark.gate
async def test_discovery_writes_what_the_node_is(cluster, tmp_path):
    (tmp_path / "host/etc").mkdir(parents=True)
    (tmp_path / "host/etc/os-release").write_text("ID=debian\nVERSION_ID=12\n")
    process = await asyncio.create_subprocess_exec(
        PURSER,
        "discover",
        "--node-name=n0",
        f"--kubeconfig={cluster.kubeconfig}",
        f"--host-root={tmp_path / 'host'}",
        f"--sysfs-root={tmp_path / 'sys'}",
        "--log-level=error",
    )

    async def written():
        return (await cluster.client.get(NODES, "n0")).metadata.annotations.get(NODE_FACTS_ANNOTATION)

    try:
        assert '"os_id":"debian"' in await eventually(written)
    finally:
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
