"""The pages on migrating, followed command by command, there and back."""

import json
import shutil

import pytest
import pytest_asyncio
import yaml

from purser.core.names import DISPUTED_CONDITION, GRANT_ANNOTATION, SCHEDULER_NAME
from purser.kube.resources import EVENTS, PODS
from purser.kube.resources import NODES as NODES_OF_CLUSTER
from purser.lab.cluster import Lab
from purser.lab.folders import node_folders
from purser.lab.hollow import HollowNodes
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.contract.client import until
from tests.lab.pages import NVIDIAS, Page, Shell, definition_of
from tests.unit.agent.sriov.sysfs_tree import HostTree

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.gate,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]
NODES = ["t4-4-0", "t4-4-1"]


@pytest_asyncio.fixture(loop_scope="module")
async def shell(request, tmp_path):
    with_operator, count = getattr(request, "param", (False, len(NODES)))
    hollow = (HollowNodes(name="plain", gpus=0),) if with_operator else ()  # for what a drain of all GPU nodes moves
    settings = LabSettings(node_choices([f"t4-4:{count}"]), operator=with_operator, hollow=hollow, probe_interval_s=0.5)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        shell = Shell(lab, tmp_path)
        await shell.start()
        yield shell
        await shell.stop()


def chart(folder, name, labels, **where):
    """Of another system, as far as the pages name its parts: a scheduler and a device plugin."""
    templates = folder / name / "templates"
    templates.mkdir(parents=True)
    (folder / name / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": name, "version": "2.10.0"}))

    def workload(kind, called, labels, more, pod):
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], **pod}}
        spec = {"selector": {"matchLabels": labels}, "template": template, **more}
        return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": called}, "spec": spec}

    parts = [
        workload("Deployment", f"{name}-scheduler", {"app": name}, {"replicas": 1}, {}),
        workload("DaemonSet", f"{name}-device-plugin", labels, {}, where),
    ]
    (templates / "all.yaml").write_text(yaml.safe_dump_all(parts))
    return folder / name


SHARE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3001}


async def runs(shell, name, limits=SHARE, annotations=None, **fields):
    main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    head = {"name": name, "annotations": annotations or {}}
    await shell.client.create(PODS, {"metadata": head, "spec": {"containers": [main], **fields}}, "default")
    return await is_running(shell, name)


async def is_running(shell, name):
    async def running():
        pod = await shell.client.get(PODS, name, "default")
        assert pod.status.phase in ("Pending", "Running"), pod.status
        return pod if pod.status.phase == "Running" else None

    return await until(f"{name} runs", running)


async def plugins_on(shell, labels):
    """The nodes with a pod of another system's device plugin."""
    pods = (await shell.client.list(PODS)).items
    return sorted(
        pod.spec.node_name
        for pod in pods
        if pod.metadata.labels.items() >= labels.items() and not pod.metadata.deletion_timestamp
    )


async def test_from_volcano_and_back(shell, tmp_path):
    page, labels = Page("migrating/volcano.md"), {"app": "volcano-plugin"}
    await shell.install(chart(tmp_path, "volcano", labels, **page.yaml("1. Move the first nodes")))
    first, second = NODES
    await shell.run(page, "1. Move the first nodes", NODE=first)
    await until("the plugin has left", lambda: equals(plugins_on(shell, labels), [second]))
    assert first in await shell.run(page, "2. Install Purser there", 0, NODE=first)
    assert "Granted" in await shell.run(page, "2. Install Purser there", 1, after={"apply": "volcano"})
    await shell.run(page, "1. Move the first nodes", NODE=second)
    await shell.type(f"kubectl uncordon {second}")
    await shell.run(page, "3. Move the other nodes, then the pods")
    limits = {"volcano.sh/gpu-memory": 1001}
    pod = await runs(shell, "theirs", limits, schedulerName="volcano")
    assert (pod.spec.scheduler_name, GRANT_ANNOTATION in pod.metadata.annotations) == (SCHEDULER_NAME, True)
    await shell.type("kubectl delete pod theirs")
    await shell.run(page, "Or let Volcano keep placing them")  # how that goes: test_beside_volcano.py
    for node in NODES:
        await shell.run(page, "Go back", 0, NODE=node)
    await until("the plugin is back", lambda: equals(plugins_on(shell, labels), NODES))
    await shell.run(page, "Go back", 1)
    await check_end(shell, page)


async def test_from_gpushare_and_back(shell, tmp_path):
    page, labels = Page("migrating/gpushare.md"), {"app": "gpushare-plugin"}
    await shell.install(chart(tmp_path, "gpushare", labels, nodeSelector={"gpushare": "true"}))
    await shell.type(f"kubectl label nodes {' '.join(NODES)} gpushare=true")
    await until("the plugin is there", lambda: equals(plugins_on(shell, labels), NODES))
    node = NODES[0]
    await shell.run(page, "1. Take gpushare off", NODE=node)
    await until("the plugin has left", lambda: equals(plugins_on(shell, labels), NODES[1:]))
    await shell.run(page, "2. Install Purser", 0, NODE=node)
    assert "Granted" in await shell.run(page, "2. Install Purser", 2, after={"apply": "gpushare"})
    await runs(shell, "theirs", {"aliyun.com/gpu-mem": 3})
    assert "3/60" in (await shell.run(page, "3. Look")).replace(" ", "")
    await shell.run(page, "2. Install Purser", 1)  # units are the chart's: the lab's own parts go on in GiB
    await shell.type("kubectl delete pod theirs")
    await shell.run(page, "Go back", NODE=node)
    await until("the plugin is back", lambda: equals(plugins_on(shell, labels), NODES))
    await check_end(shell, page)


async def test_from_kai_and_back(shell, tmp_path):
    page, labels = Page("migrating/kai.md"), {"app": "nvidia-plugin"}
    await shell.install(chart(tmp_path, "nvidia", labels, **page.yaml("1. Take the first nodes from KAI")))
    theirs = chart(tmp_path, "kai-scheduler", {"app": "reservations"}, nodeSelector={"kai-shares-gpus": "true"})
    await shell.type("kubectl create namespace kai-scheduler")
    await shell.install(theirs, "kai-scheduler")
    reservation = {"name": "gpu-reservation", "labels": {"app": "kai-resource-reservation"}}
    first, second = NODES
    spec = {"nodeName": first, "containers": [{"name": "c", "image": "busybox"}]}  # it has no controller
    await shell.client.create(PODS, {"metadata": reservation, "spec": spec}, "default")
    await until("the plugin is there", lambda: equals(plugins_on(shell, labels), NODES))
    await shell.run(page, "1. Take the first nodes from KAI", NODE=first)
    await until("the plugin has left", lambda: equals(plugins_on(shell, labels), [second]))
    assert first in await shell.run(page, "2. Install Purser there", 0, NODE=first, CHART=str(theirs))
    assert "Granted" in await shell.run(page, "2. Install Purser there", 1, after={"apply": "kai"})
    pod = await runs(shell, "theirs", {}, schedulerName="kai-scheduler", annotations={"gpu-fraction": "0.5"})
    assert (pod.spec.node_name, pod.spec.scheduler_name) == (first, SCHEDULER_NAME)
    assert GRANT_ANNOTATION in pod.metadata.annotations
    await shell.type("kubectl delete pod theirs gpu-reservation")
    await shell.run(page, "1. Take the first nodes from KAI", NODE=second)
    await shell.run(page, "3. Move the other nodes", 0, NODE=second)
    selector = {"kubernetes.io/hostname": second}
    moved = {"schedulerName": "kai-scheduler", "annotations": {"gpu-memory": "2000"}, "nodeSelector": selector}
    assert (await runs(shell, "on-second", {}, **moved)).spec.node_name == second
    await shell.type("kubectl delete pod on-second")
    await shell.run(page, "Go back", 0, CHART=str(theirs))
    for node in NODES:
        await shell.run(page, "Go back", 1, NODE=node)
    await until("the plugin is back", lambda: equals(plugins_on(shell, labels), NODES))
    await shell.run(page, "3. Move the other nodes", 1)
    assert "kai-scheduler" not in await shell.type("kubectl get deployments -A")
    await check_end(shell, page)


async def test_from_nvidias_device_plugin_and_back(shell, tmp_path):
    page, labels = Page("migrating/nvidia-device-plugin.md"), {"app": "nvidia-plugin"}
    await shell.install(chart(tmp_path, "nvidia", labels, **page.yaml("1. Take the plugin off the first node")))
    first, second = NODES
    await until("the plugin is there", lambda: equals(plugins_on(shell, labels), NODES))
    await shell.run(page, "1. Take the plugin off the first node", NODE=first)
    await until("the plugin has left", lambda: equals(plugins_on(shell, labels), [second]))
    assert first in await shell.run(page, "2. Install Purser there", NODE=first)
    pod = await runs(shell, "theirs", {"nvidia.com/gpu": 1})
    assert (pod.spec.node_name, GRANT_ANNOTATION in pod.metadata.annotations) == (first, True)
    await shell.run(page, "3. Move the other nodes", NODE=second)
    await runs(shell, "second", nodeSelector={"kubernetes.io/hostname": second})
    for node in NODES:
        await shell.run(page, "Go back", 0, NODE=node)
    await until("the plugin is back", lambda: equals(plugins_on(shell, labels), NODES))
    await shell.run(page, "Go back", 1)
    await check_end(shell, page)


async def test_from_the_sriov_device_plugin_and_back(shell, tmp_path):
    page, labels = Page("migrating/sriov-network-device-plugin.md"), {"app": "sriovdp"}
    host = HostTree(node_folders(shell.lab.folder, 0).host_root)
    host.pf("0000:18:00.0", "ens1f0", 2)
    pools = [{"resourceName": "net", "selectors": {"pfNames": ["ens1f0"]}}, {"resourceName": "none", "selectors": {}}]
    text = json.dumps({"resourceList": pools})
    (host.root / "root").mkdir()
    (host.root / "root/config.json").write_text(text)
    head = {"name": "sriovdp-config", "namespace": "kube-system"}
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": {"config.json": text}}
    (tmp_path / "configmap.yaml").write_text(yaml.safe_dump(theirs))
    parts = yaml.safe_load_all((chart(tmp_path, "sriov", labels) / "templates/all.yaml").read_text())
    [plugin] = [each for each in parts if each["kind"] == "DaemonSet"]
    plugin["metadata"] = {"name": "kube-sriov-device-plugin", "namespace": "kube-system"}
    (tmp_path / "sriovdp-daemonset.yaml").write_text(yaml.safe_dump(plugin))
    for each in ("configmap.yaml", "sriovdp-daemonset.yaml"):
        await shell.type(f"kubectl apply -f {each}")
    await shell.type("helm install purser deploy/helm/purser --namespace purser-system --create-namespace")
    await shell.type("kubectl rollout status daemonset purser-agent --namespace purser-system")
    await until("the plugin is there", lambda: equals(plugins_on(shell, labels), NODES))
    await shell.run(page, "1. Copy the configuration")
    assert (tmp_path / "config.json").read_text() == text
    said = await shell.run(page, "2. Check it", **{"NAME-OF-AGENT": "purser-agent-1", "PATH": "root"})
    assert "intel.com/net has 2 devices" in said
    assert "intel.com/none has no devices" in said
    await shell.run(page, "3. Switch", 0)
    assert not await plugins_on(shell, labels)
    pod = await runs(shell, "theirs", {"intel.com/net": 1})
    assert pod.spec.node_name == NODES[0]
    assert "SriovPoolEmpty" in await shell.run(page, "3. Switch", 1, NODE=NODES[0])
    await shell.run(page, "Go back")
    await until("the plugin is back", lambda: equals(plugins_on(shell, labels), NODES))
    assert page.followed == page.blocks.keys()


async def equals(found, wanted):
    return await found == wanted


async def check_end(shell, page):
    """Everything on the page was followed, and nothing of Purser is left on nodes."""
    assert page.followed == page.blocks.keys()
    assert "purser" not in await shell.type("kubectl get daemonsets,deployments -A")
    for node in (await shell.client.list(NODES_OF_CLUSTER)).items:
        assert not any(key.startswith("purser.dev/") for key in node.metadata.annotations)
        assert not node.spec.unschedulable


async def test_from_hami_and_back(shell, tmp_path):
    page = Page("migrating/hami.md")
    labels = {"app.kubernetes.io/component": "hami-device-plugin"}
    await shell.install(chart(tmp_path, "hami", labels, nodeSelector={"gpu": "on"}))
    for node in NODES:
        await shell.type(f"kubectl label node {node} gpu=on")

    async def registered():
        return all([await shell.registered(node) for node in NODES])

    await until("HAMi's plugin has registered the nodes", registered)
    await shell.run(page, "1. Let Purser's scheduler place pods", 0)
    await shell.run(page, "1. Let Purser's scheduler place pods", 1)
    pod = await runs(shell, "hamis", schedulerName="hami-scheduler")
    assert pod.spec.scheduler_name == SCHEDULER_NAME
    assert pod.metadata.annotations["hami.io/bind-phase"] == "success"
    for node in NODES:
        table = await shell.run(page, "2. Move the nodes", NODE=node)
        assert node in table
        there = await runs(shell, f"on-{node}", nodeSelector={"kubernetes.io/hostname": node})
        assert GRANT_ANNOTATION in there.metadata.annotations
        assert "hami.io/bind-phase" not in there.metadata.annotations
    for node in NODES:
        await shell.run(page, "Go back", 0, NODE=node)
        back = await runs(shell, f"back-{node}", nodeSelector={"kubernetes.io/hostname": node})
        assert back.metadata.annotations["hami.io/bind-phase"] == "success"
    await shell.run(page, "Go back", 1)
    assert "purser-agent" not in await shell.type("kubectl get daemonsets -A")
    assert "1/1" in await shell.type("kubectl get deployment hami-scheduler -n kube-system")
    await shell.run(page, "3. Remove HAMi")
    assert not await registered()
    await check_end(shell, page)
    phases = {pod.metadata.name: pod.status.phase for pod in (await shell.client.list(PODS, "default")).items}
    assert set(phases.values()) == {"Running"}


@pytest.mark.parametrize("shell", [pytest.param((False, 10), id="ten nodes")], indirect=True)
async def test_from_nvidias_operator_node_by_node_with_pods_running(shell, tmp_path):
    """NVIDIA's operator keeps the label as people write it; what its plugin served goes on, and nobody gets its GPU.
    Pods arrive all the while."""
    page, plugin = Page("migrating/beside-gpu-operator.md"), "nvidia.com/gpu.deploy.device-plugin"
    first, *others = nodes = list(shell.lab.nodes)
    await shell.type(f"kubectl label nodes {' '.join(nodes)} {plugin}=true")
    await shell.install(chart(tmp_path, "gpu-operator", NVIDIAS, nodeSelector={plugin: "true"}))
    old = [await of_plugin(shell, f"old-{node}", node) for node in nodes]
    old += [await of_plugin(shell, f"older-{node}", node) for node in others[::2]]
    await shell.run(page, "1. Take NVIDIA's plugin off the first node", NODE=first)
    await until("the plugin has left", lambda: equals(plugins_on(shell, NVIDIAS), others))
    assert first in await shell.run(page, "2. Install Purser there", NODE=first)
    new = [await runs(shell, f"new-{number}", {"nvidia.com/gpu": 1}) for number in range(3)]
    assert [pod.spec.node_name for pod in new] == [first] * 3
    waiting_pod = await shell.client.create(PODS, pod_of("fourth", {"nvidia.com/gpu": 1}), "default")
    await until("it is said why", lambda: is_disputed(shell, "fourth", first, f"default/old-{first}"))
    free = 4 * len(nodes) - len(old) - len(new)
    arriving = [pod_of(f"arriving-{number}", {"nvidia.com/gpu": 1}) for number in range(free - 1)]
    for place, node in enumerate(others):
        for body in arriving[place :: len(others)]:
            await shell.client.create(PODS, body, "default")
        await shell.run(page, "3. Move the other nodes", NODE=node)
    new += [await is_running(shell, pod["metadata"]["name"]) for pod in arriving]
    new.append(await is_running(shell, waiting_pod.metadata.name))
    assert not any(node.rejections for node in shell.lab.nodes.values())
    held = [await uuids_of(shell, pod.metadata.name, pod.spec.node_name) for pod in (*old, *new)]
    assert len(set(held)) == len(held)
    pods = {each["metadata"]["uid"]: each["status"] for each in (await shell.client.list(PODS.raw(), "default")).items}
    assert {each["phase"] for each in pods.values()} == {"Running"}
    for pod in (*old, *new):
        assert [each["restartCount"] for each in pods[pod.metadata.uid]["containerStatuses"]] == [0]
    for node in nodes:
        await shell.run(page, "Go back", 0, NODE=node)
    await until("the plugin is back", lambda: equals(plugins_on(shell, NVIDIAS), nodes))
    await of_plugin(shell, "last", first)
    await shell.run(page, "Replace the operator, too")
    await shell.run(page, "Go back", 1)
    await check_end(shell, page)


def pod_of(name, limits, labels=None, **fields):
    main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": {"containers": [main], **fields}}


async def of_plugin(shell, name, node):
    """A pod that somebody else than Purser's scheduler binds."""

    async def listed():
        amounts = (await shell.client.get(NODES_OF_CLUSTER, node)).status.allocatable
        return int(amounts.get("nvidia.com/gpu", 0)) == 4

    await until("the plugin serves the node", listed)
    body = pod_of(name, {"nvidia.com/gpu": 1}, {"purser.dev/webhook": "ignore"}, nodeName=node)
    await shell.client.create(PODS, body, "default")
    return await is_running(shell, name)


async def is_disputed(shell, pod, node, holder):
    """Whether the scheduler says that a pod waits for a disputed GPU, and the node which pod holds that."""
    events = (await shell.client.list(EVENTS.raw(), "default")).items
    about = [each["message"] for each in events if each["involvedObject"]["name"] == pod]
    conditions = (await shell.client.get(NODES_OF_CLUSTER.raw(), node))["status"]["conditions"]
    named = [each["message"] for each in conditions if each["type"] == DISPUTED_CONDITION]
    sent = any("disputed" in each and DISPUTED_CONDITION in each for each in about)
    return sent and any(holder in each for each in named)


async def uuids_of(shell, name, node):
    listed = await shell.lab.nodes[node].pod_resources()
    (ids,) = [each["nvidia.com/gpu"] for (_, pod, _), each in listed.items() if pod == name]
    return tuple(each.partition("::")[0] for each in ids)


@pytest.mark.parametrize("shell", [pytest.param((True, len(NODES)), id="with the operator")], indirect=True)
async def test_from_nvidias_operator(shell, tmp_path):
    page = Page("migrating/gpu-operator.md")
    theirs = chart(tmp_path, "gpu-operator", {"app": "nvidia-device-plugin-daemonset"})
    for kind, plural in (("ClusterPolicy", "clusterpolicies"), ("NVIDIADriver", "nvidiadrivers")):
        definition = definition_of("nvidia.com", kind, plural)
        (theirs / "crds").mkdir(exist_ok=True)
        (theirs / "crds" / f"{plural}.yaml").write_text(yaml.safe_dump(definition))
    policy = {
        "apiVersion": "nvidia.com/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "cluster-policy"},
        "spec": {"driver": {"enabled": False}, "toolkit": {"enabled": False}, "mig": {"strategy": "single"}},
    }
    (theirs / "templates" / "policy.yaml").write_text(yaml.safe_dump(policy))
    await shell.lab.kill_operator()
    await shell.type("kubectl create namespace gpu-operator")
    await shell.install(theirs, "gpu-operator")
    await shell.type(f"kubectl label nodes {' '.join(NODES)} nvidia.com/gpu.present=true")
    await shell.lab.start_operator()
    await shell.run(page, "1. Import the policy")
    await shell.run(page, "2. Prepare the namespace")
    await shell.run(page, "3. Install Purser's operator beside NVIDIA's")

    async def waits():
        return "AnotherOperator" in await shell.type("kubectl describe clusterpolicies.purser.dev")

    await until("Purser's operator waits for NVIDIA's", waits)
    await shell.run(page, "4. Empty the GPU nodes, and remove NVIDIA's operator", 0)
    await shell.run(page, "4. Empty the GPU nodes, and remove NVIDIA's operator", 1)
    await shell.run(page, "5. Unload modules that stayed")
    await shell.run(page, "6. Labels and cordons")
    flavor = '{"spec":{"devicePlugin":{"flavor":"purser"}}}'
    await shell.type(f"kubectl patch clusterpolicies.purser.dev cluster-policy --type=merge --patch='{flavor}'")
    await shell.run(page, "7. Switch to Purser's agent and scheduler")
    pod = await runs(shell, "share")
    assert GRANT_ANNOTATION in pod.metadata.annotations
    assert page.followed == page.blocks.keys()
