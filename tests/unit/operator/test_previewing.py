"""What is shown is what would be done; what makes no sense to ask is refused."""

import asyncio
import re

import pytest
import pytest_asyncio
from tests.tiers import IS_LONG
from tests.unit.kube.servers import port_of_nobody
from tests.unit.operator.embedded import IMAGE, NAMESPACE, create_pod, eventually, pod
from tests.unit.operator.embedded_cluster import POLICY, SMALL, stack

from purser.core.names import INVENTORY_ANNOTATION
from purser.kube import Client, ClusterConfig, KubeError
from purser.kube.resources import NAMESPACES, NODES, PODS
from purser.operator import previewing
from purser.operator.chart_hooks import apply_definition, preview_definition
from purser.operator.manifests.objects import OWNED_KINDS
from purser.operator.observing.kinds import DEFINITIONS
from purser.operator.policy import CLUSTER_POLICIES
from purser.operator.previewing import MisusedError, PreviewError, planned, preview, preview_uninstall
from purser.operator.settings import OperatorSettings
from purser.operator.uninstalling import uninstall

OURS = "app.kubernetes.io/managed-by=purser-operator"
DEFINITION = "clusterpolicies.purser.dev"
pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("quiet")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare(tmp_path_factory):
    """A cluster without a policy, for all tests that leave it as it was."""
    async with stack(tmp_path_factory.mktemp("bare")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def installed(tmp_path):
    async with stack(tmp_path) as found:
        await found.client.create(CLUSTER_POLICIES, POLICY if IS_LONG else POLICY | {"spec": SMALL})
        async with found.operator() as port:
            await found.ready()
            await found.at_rest(port)
        yield found


def policy(name="policy", **spec):
    return {"apiVersion": "purser.dev/v1alpha1", "kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("wanted", "events"),
    [
        (
            policy(driver={"profiles": [{"name": "a", "nodeSelector": {"x": "y"}, "verison": "1"}]}),
            'unknown field "spec.driver.profiles[0].verison"',
        ),
        (policy() | {"sepc": {}}, 'unknown field "sepc"'),
        (policy() | {"kind": "Policy"}, "but found apiVersion: purser.dev/v1alpha1 and kind: Policy"),
        (policy() | {"metadata": "foo"}, "the ClusterPolicy has no name"),
        (policy("Gpus_ü"), "ClusterPolicy Gpus_ü: invalid name: use lowercase letters"),
        (policy(5), "ClusterPolicy 5: invalid name"),
        (policy(devicePlugin={"slots": 0}), "spec.devicePlugin.slots is 0"),
    ],
)
async def test_a_policy_with_a_mistake_in_it_is_refused_before_anything_is_shown(wanted, events):
    async with Client(ClusterConfig.insecure("http://127.0.0.1:1")) as nobody:
        with pytest.raises(MisusedError) as refused:
            await preview(nobody, NAMESPACE, IMAGE, print, wanted)
        assert events in str(refused.value)
        with pytest.raises(MisusedError):
            await planned(nobody, NAMESPACE, IMAGE, wanted)


async def test_without_the_definition_the_message_says_what_makes_it(bare):
    await bare.client.delete(DEFINITIONS, DEFINITION)
    with pytest.raises(PreviewError, match="purser operator crd --apply"):
        await planned(bare.client, NAMESPACE, IMAGE)
    lines = []
    await preview(bare.client, NAMESPACE, IMAGE, lines.append, policy())
    assert "purser operator crd --apply" in lines[0]
    await apply_definition(bare.client)


async def test_a_namespace_that_is_not_there_is_named(bare):
    lines, events = [], "namespace nowhere does not exist: use --namespace"
    await preview(bare.client, "nowhere", IMAGE, lines.append, policy())
    assert events in lines[0]
    await preview_uninstall(bare.client, "nowhere", lines.append)
    assert events in lines[-1]
    with pytest.raises(PreviewError, match=events):
        await planned(bare.client, "nowhere", IMAGE, policy())


async def test_a_server_that_cannot_be_reached_or_lets_nobody_in_is_named_with_the_reason(bare):
    with port_of_nobody() as port:
        await assert_told(ClusterConfig.insecure(f"http://127.0.0.1:{port}"), "Connection refused")
    await assert_told(ClusterConfig.insecure(bare.cluster.config.server, "wrong"), "401 Unauthorized")


async def assert_told(config, why):
    """Within seconds, and not after the minute that a cluster may take to be listed."""
    async with asyncio.timeout(previewing.SNAPSHOT_TIMEOUT_S / 2), Client(config) as client:
        told = await asyncio.gather(
            preview(client, NAMESPACE, IMAGE, print),
            planned(client, NAMESPACE, IMAGE),
            preview_uninstall(client, NAMESPACE, print),
            uninstall(config, NAMESPACE, say=print),
            return_exceptions=True,
        )
        for each in told:
            assert isinstance(each, KubeError)
            assert why in str(each)
            assert config.server in str(each)


async def test_nothing_is_shown_of_a_policy_in_the_cluster_that_cannot_be_read(bare):
    profiles = [{"name": "a", "nodeSelector": {"purser.dev/runtime": "crio"}}]
    await bare.client.create(CLUSTER_POLICIES, {**POLICY, "spec": {"driver": {"profiles": profiles}}})
    for show in (preview(bare.client, NAMESPACE, IMAGE, print), planned(bare.client, NAMESPACE, IMAGE)):
        with pytest.raises(PreviewError, match=r"^ClusterPolicy policy: spec\.driver\.profiles") as refused:
            await show
        assert not isinstance(refused.value, MisusedError)
    await bare.client.delete(CLUSTER_POLICIES, "policy")


@pytest.mark.gate
async def test_what_an_operator_in_another_namespace_does_is_shown_from_there(installed):
    await installed.client.create(NAMESPACES, {"metadata": {"name": "theirs"}})
    for show in (
        preview(installed.client, "theirs", IMAGE, print),
        planned(installed.client, "theirs", IMAGE),
        preview_uninstall(installed.client, "theirs", print),
    ):
        with pytest.raises(KubeError, match=f"use --namespace {NAMESPACE}"):
            await show


async def test_no_upgrade_is_planned_for_a_policy_that_would_be_ignored(installed):
    with pytest.raises(MisusedError, match="ClusterPolicy policy is active, so other would be Ignored"):
        await planned(installed.client, NAMESPACE, IMAGE, policy("other", driver={"version": "999.1"}))
    found = await planned(installed.client, NAMESPACE, IMAGE, policy(driver={"version": "999.1"}))
    assert [[node.name for node in wave] for wave in found.waves] == [["n0"]]


@pytest.mark.gate
async def test_without_an_image_that_of_the_live_objects_is_taken(installed):
    lines = []
    assert await preview(installed.client, NAMESPACE, "", lines.append) == 0, lines
    await preview(installed.client, NAMESPACE, "another:1", lines.append)
    assert "another:1" in "\n".join(lines)


async def test_without_an_image_and_objects_the_shown_one_is_named(bare):
    lines = []
    assert await preview(bare.client, NAMESPACE, "", lines.append, policy())
    assert (
        lines[0]
        == "found no Purser image in the cluster, so purser:latest is shown: use --image to choose another image"
    )


@pytest.mark.gate
async def test_everything_that_goes_on_the_way_out_is_shown_also_what_goes_last(installed):
    client = installed.client
    user = pod("user", "n0")
    user["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    await create_pod(client, user)
    await client.patch_merge(NODES, "n0", {"metadata": {"annotations": {INVENTORY_ANNOTATION: "{}"}}})
    await eventually(lambda: client.get(PODS, "user", "default"))
    installed.cluster.writes.clear()
    lines = []
    count = await preview_uninstall(client, NAMESPACE, lines.append, definition=True)
    heads = [line.splitlines()[0] for line in lines]
    for resource in OWNED_KINDS:
        for each in (await client.list(resource, label_selector=OURS)).items:
            assert any(
                head.startswith(f"delete {resource.kind} ") and each["metadata"]["name"] in head for head in heads
            )
    assert "delete ClusterPolicy policy" in heads
    assert f"delete CustomResourceDefinition {DEFINITION}" in heads
    assert "delete Lease purser-system/purser-operator, unless an operator is running" in heads
    assert f"patch Node n0: remove what agents wrote: {INVENTORY_ANNOTATION}" in heads
    assert heads[-1] == "waits for node n0: pod default/user still uses a GPU"
    assert count == len(lines) - 1
    assert installed.cluster.writes == []


@pytest.mark.gate
async def test_without_the_option_the_definition_stays(installed):
    lines = []
    await preview_uninstall(installed.client, NAMESPACE, lines.append)
    assert not any("CustomResourceDefinition" in line for line in lines)
    assert not any(line.startswith("waits for ") for line in lines), "operands go by themselves"


async def test_of_the_definition_is_shown_what_would_change(bare):
    assert await preview_definition(bare.client) == ""
    live = await bare.client.get(DEFINITIONS, DEFINITION)
    fields = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["former"] = {"type": "string"}
    del fields["toolkit"]
    await bare.client.replace(DEFINITIONS, live)
    bare.cluster.writes.clear()
    text = await preview_definition(bare.client)
    assert re.search(r"^- +former:$", text, re.MULTILINE)
    assert re.search(r"^\+ +toolkit:$", text, re.MULTILINE)
    assert bare.cluster.writes == []
    await apply_definition(bare.client)
    assert await preview_definition(bare.client) == ""


async def test_a_definition_that_is_not_there_is_shown_whole(bare):
    await bare.client.delete(DEFINITIONS, DEFINITION)
    text = await preview_definition(bare.client)
    assert text.startswith("--- /dev/null")
    assert "+kind: CustomResourceDefinition" in text
    await apply_definition(bare.client)


@pytest.mark.parametrize(("said", "runs"), [("", "purser:latest"), ("mirror/purser:1", "mirror/purser:1")])
async def test_where_no_running_image_is_looked_for_there_is_a_default(said: str, runs: str) -> None:
    assert OperatorSettings(purser_image=said).image_to_run == runs
