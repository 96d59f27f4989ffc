"""The pages on migrating, followed command by command, there and back."""

import asyncio
import shutil

import pytest
import pytest_asyncio
import yaml

from purser.core.names import GRANT_ANNOTATION, SCHEDULER_NAME
from purser.kube.resources import PODS
from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests.contract.client import until
from tests.lab.pages import Page, Shell

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.gate,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl on this machine"),
]
NODES = ["t4-4-0", "t4-4-1"]


@pytest_asyncio.fixture(loop_scope="module")
async def shell():
    async with Lab(LabSettings(node_choices(["t4-4:2"]), probe_interval_s=0.5)) as lab, asyncio.timeout(150):
        await lab.ready()
        shell = Shell(lab)
        await shell.start()
        yield shell
        await shell.stop()


def chart(folder, name, *, selector, labels):
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
        workload("DaemonSet", f"{name}-device-plugin", labels, {}, {"nodeSelector": selector}),
    ]
    (templates / "all.yaml").write_text(yaml.safe_dump_all(parts))
    return folder / name


async def runs(shell, name, **fields):
    limits = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3001}
    main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
    await shell.client.create(PODS, {"metadata": {"name": name}, "spec": {"containers": [main], **fields}}, "default")

    async def running():
        pod = await shell.client.get(PODS, name, "default")
        assert pod.status.phase in ("Pending", "Running"), pod.status
        return pod if pod.status.phase == "Running" else None

    return await until(f"{name} runs", running, 30)


async def test_from_hami_and_back(shell, tmp_path):
    page = Page("migrating/hami.md")
    labels = {"app.kubernetes.io/component": "hami-device-plugin"}
    hami = chart(tmp_path, "hami", selector={"gpu": "on"}, labels=labels)
    await asyncio.to_thread(shell.install, hami, "hami", "kube-system")
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
    assert page.followed == page.blocks.keys()
    phases = {pod.metadata.name: pod.status.phase for pod in (await shell.client.list(PODS, "default")).items}
    assert set(phases.values()) == {"Running"}
