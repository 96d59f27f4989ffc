"""A page of the documentation, followed in a lab: kubectl, Helm and `purser` are the real ones.

What a pod's image would do is done by the lab's own parts: an agent runs on a node while a pod of the chart's DaemonSet
does, HAMi's and NVIDIA's device plugins while a pod of theirs does, and Jobs of the chart are carried out. Purser's
scheduler is the lab's, also before it is installed and after; its webhooks stay the lab's.
"""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import helm_python
import yaml

from purser.adapters.nodes import hami_inventory, inventory_of
from purser.agent.settings import SriovSettings
from purser.core.names import DEFAULT_NAMESPACE
from purser.kube import untyped_resource
from purser.kube.resources import NODES, PODS
from purser.lab.cluster import Lab
from purser.lab.folders import node_folders
from purser.operator.chart_hooks import clean_up, nodes_to_strip, strip_node
from tests import waiting
from tests.contract.client import until
from tests.lab.hami import REGISTER, HamiPlugin
from tests.lab.nvidia import NvidiaPlugin

ROOT = Path(__file__).parents[2]
JOBS = untyped_resource("batch", "v1", "jobs", "Job")
DEFINITIONS = untyped_resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
UNSERVED = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
"""Kinds of the chart that the lab's API server does not have: there they are objects, and no more."""
_PURSER = "from purser.cli import app; app()"
HOSTS = ("lsmod", "sudo")
"""Programs on nodes, which the lab's do not have."""
AGENTS = {"app.kubernetes.io/component": "agent"}
_SELECTOR = ",".join(f"{key}={value}" for key, value in AGENTS.items())
HAMIS = {"app.kubernetes.io/component": "hami-device-plugin"}
NVIDIAS = {"app": "nvidia-device-plugin-daemonset"}
"""Of the plugin that NVIDIA's operator installs."""


EVENTS_S = 0.5
"""Until events that Purser writes beside a Binding are there."""


class Page:
    """The commands of a page, by heading and block."""

    def __init__(self, name: str) -> None:
        text = (ROOT / "docs" / name).read_text()
        sections = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
        self.blocks = {
            (heading, place): [line[2:] for line in block.splitlines() if line.startswith("$ ")]
            for heading, section in zip(sections[1::2], sections[2::2], strict=True)
            for place, block in enumerate(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
        }
        self._yaml = {
            heading: re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)
            for heading, section in zip(sections[1::2], sections[2::2], strict=True)
        }
        self.followed: set[tuple[str, int]] = set()

    def yaml(self, heading: str) -> dict[str, Any]:
        """The first YAML of a section."""
        return dict(yaml.safe_load(self._yaml[heading][0]))

    def take(self, heading: str, place: int, **words: str) -> list[str]:
        """The commands of a block, with words such as NODE put in."""
        self.followed.add((heading, place))
        commands = self.blocks[heading, place]
        for word, value in {"REGISTRY": "registry.test", **words}.items():
            commands = [re.sub(rf"\b{word}\b", value, command) for command in commands]
        return commands


class Shell:
    """Somebody with kubectl, Helm and `purser`, and what their commands start."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """``folder``: where commands are typed; it has the repository's examples and charts."""
        self.lab, self.client, self._folder = lab, lab.client, folder
        for name in ("examples", "deploy"):
            (folder / name).symlink_to(ROOT / name)
        self.plugins = {
            name: HamiPlugin(node, node_folders(lab.folder, place).kubelet, lab.client)
            for place, (name, node) in enumerate(lab.nodes.items())
        }
        self.nvidia_strategy = {
            name: NvidiaPlugin(node, node_folders(lab.folder, place).kubelet)
            for place, (name, node) in enumerate(lab.nodes.items())
        }
        self._serving: set[tuple[str, str]] = set()
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """The lab without agents, and what they wrote."""
        for kind, plural in UNSERVED.items():
            await self.client.create(DEFINITIONS, definition_of("admissionregistration.k8s.io", kind, plural))
        if not self.lab.settings.operator:
            await asyncio.gather(*(node.agent.stop() for node in self.lab.nodes.values()))
        for node in await nodes_to_strip(self.client, DEFAULT_NAMESPACE):
            await strip_node(self.client, node)
        self._following = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
        await asyncio.gather(*(each.stop() for each in (*self.plugins.values(), *self.nvidia_strategy.values())))

    async def run(
        self, page: Page, heading: str, place: int = 0, *, after: Mapping[str, str] | None = None, **words: str
    ) -> str:
        """Carry out a block; all that its commands printed. ``after``: for which pod a person waits after a command of
        kubectl's."""
        said = ""
        for command in page.take(heading, place, **words):
            said += await self.type(command)
            if after and (pod := after.get(command.split()[1])):
                await self._kubectl("wait", "--for=condition=Ready", f"pod/{pod}")
                await asyncio.sleep(EVENTS_S)
        return said

    async def type(self, command: str) -> str:
        command, _, file = command.partition(" > ")
        program, *rest = shlex.split(command)
        if program in HOSTS:
            return ""
        if program == "kubectl" and rest[0] == "exec":
            program, *rest = self._in_agent(rest[rest.index("--") + 1 :])
        if program == "kubectl":
            said = await self._kubectl(*rest)
            if file:
                (self._folder / file).write_text(said)
            if rest[0] == "rollout":
                await until("who serves the nodes is ready", self._is_served)
            return said
        if program == "helm":
            await asyncio.to_thread(self._helm, rest)
            return await self._adopt()
        assert program == "purser", command
        if rest[0] != "agent":
            rest.append(f"--kubeconfig={self.lab.kubeconfig}")
        out = await self._process(sys.executable, "-c", _PURSER, *rest)
        if file:
            (self._folder / file).write_text(out)
        return out

    async def _kubectl(self, *words: str) -> str:
        return await self._process("kubectl", f"--kubeconfig={self.lab.kubeconfig}", *words)

    async def _process(self, *words: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *words,
            cwd=self._folder,
            env={**os.environ, "HOME": str(self.lab.folder)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with waiting.limit():
            out, err = await process.communicate()
        is_there = "namespace" in words and b"AlreadyExists" in err
        lacks_driver = "check" in words and process.returncode == 1  # of this machine; a lab's node has a simulated one
        assert process.returncode == 0 or is_there or lacks_driver, (words, err.decode())
        return out.decode()

    async def _is_served(self) -> bool:
        """What readiness of the DaemonSets' pods would say: the lab's kubelets take every container for ready."""
        agents, hamis, _ = await self._who()
        for node in (await self.client.list(NODES)).items:
            name, inventory = node.metadata.name, inventory_of(node)
            healthy = inventory is not None and all(device.healthy for device in inventory.devices)
            if (name in agents or name in hamis) and not (
                healthy and (hami_inventory(node) is None) == (name in agents)
            ):
                return False
        return True

    # --- Helm

    def _config(self, namespace: str) -> helm_python.Config:
        return helm_python.Config(kubeconfig_path=str(self.lab.kubeconfig), namespace=namespace)

    async def install(self, chart: Path, namespace: str = "kube-system") -> None:
        """A chart under its own name."""
        install = self._config(namespace).install
        await asyncio.to_thread(install, str(chart), chart.name, {}, namespace=namespace)

    def _helm(self, words: list[str]) -> None:
        verb, name, *rest = words
        rest = [part for word in rest for part in (word.split("=", 1) if word.startswith("--") else [word])]
        flags, values, charts = set[str](), dict[str, Any](), list[str]()
        namespace = ""
        while rest:
            word = rest.pop(0)
            if word in ("-n", "--namespace"):
                namespace = rest.pop(0)
            elif word == "--set":
                values = _merged(values, _typed(helm_python.parse_set_string(rest.pop(0))))
            elif word.startswith("-"):
                flags.add(word)
            else:
                charts.append(str(ROOT / word))
        config = self._config(namespace)
        values = _merged(values, {"webhook": {"enabled": False}}) if verb != "uninstall" else values
        if verb == "install":
            config.install(*charts, name, values, namespace=namespace, create_namespace="--create-namespace" in flags)
        elif verb == "upgrade":
            config.upgrade(*charts, name, values, reuse_values="--reset-then-reuse-values" in flags)
        else:
            assert verb == "uninstall", words
            config.uninstall(name, wait="legacy" if "--wait" in flags else None)

    async def _adopt(self) -> str:
        """The scheduler starts again where its options have changed, as its Deployment's pods do."""
        found = await self._kubectl("get", "deployments", "-Aojson")
        text = json.dumps(
            [each for each in json.loads(found)["items"] if each["metadata"]["name"] == "purser-scheduler"]
        )
        names = tuple(re.findall(r"--adopt-scheduler-name=([a-z-]+)", text))
        if names != self.lab.settings.adopted_scheduler_names:
            await self.lab.kill_scheduler()
            self.lab.settings = replace(self.lab.settings, adopted_scheduler_names=names)
            await self.lab.start_scheduler()
        await self._mount_pools()
        return ""

    async def _mount_pools(self) -> None:
        """Agents start again where the ConfigMap of SR-IOV pools is another, as their DaemonSet's pods do."""
        found = json.loads(await self._kubectl("get", "daemonsets", "-Aojson", f"--selector={_SELECTOR}"))["items"]
        volumes = [each for part in found for each in part["spec"]["template"]["spec"]["volumes"]]
        name = next((each["configMap"]["name"] for each in volumes if each["name"] == "sriov"), "")
        files = (
            json.loads(await self._kubectl("get", "configmap", name, "-n", DEFAULT_NAMESPACE, "-ojson")) if name else {}
        )
        wanted = SriovSettings(config=self._folder / name) if name else SriovSettings()
        for key, text in files.get("data", {}).items():
            (self._folder / name).mkdir(exist_ok=True)
            (self._folder / name / key).write_text(text)
        for node in self.lab.nodes.values():
            if node.sriov != wanted:
                node.sriov = wanted
                await node.agent.stop()

    def _in_agent(self, words: list[str]) -> list[str]:
        """A command in an agent's container, which has the first node's root at /host."""
        root = node_folders(self.lab.folder, 0).host_root
        return [re.sub(r"=/host\b", f"={root}", word) for word in words]

    # --- what pods of the cluster would do

    async def _follow(self) -> None:
        while True:
            if not self.lab.settings.operator:  # its kubelets start agents by themselves
                await self._serve()
            for job in (await self.client.list(JOBS, DEFAULT_NAMESPACE)).items:
                if not (job.get("status") or {}).get("conditions"):
                    await self._finish(job)
            await asyncio.sleep(0.1)

    async def _who(self) -> tuple[set[str], set[str], set[str]]:
        """The nodes on which agents, HAMi's plugins and NVIDIA's have a pod."""
        pods = [pod for pod in (await self.client.list(PODS)).items if not pod.metadata.deletion_timestamp]
        agents, hamis, nvidia_strategy = (
            {pod.spec.node_name for pod in pods if pod.metadata.labels.items() >= wanted.items()}
            for wanted in (AGENTS, HAMIS, NVIDIAS)
        )
        return agents, hamis, nvidia_strategy

    async def _serve(self) -> None:
        agents, hamis, nvidia_strategy = await self._who()
        others = (("hami", hamis, self.plugins), ("nvidia", nvidia_strategy, self.nvidia_strategy))
        for name, node in self.lab.nodes.items():
            for whose, there, plugins in others:
                if name not in there and (whose, name) in self._serving:
                    self._serving.discard((whose, name))
                    await plugins[name].stop()
            if name not in agents and node.agent.is_running:
                await node.agent.stop()
            elif name in agents:
                node.agent.start()
            for whose, there, plugins in others:
                if name in there and (whose, name) not in self._serving:
                    self._serving.add((whose, name))
                    await plugins[name].start()

    async def _finish(self, job: dict[str, Any]) -> None:
        if job["metadata"]["name"] == "purser-clean-up":
            await self._serve()  # a pod is gone once its process has ended, and here before
            await clean_up(self.client, DEFAULT_NAMESPACE, timeout_s=30, say=lambda _: None)
        done = {"type": "Complete", "status": "True"}
        status = {"status": {"succeeded": 1, "conditions": [done]}}
        await self.client.patch_merge(JOBS, job["metadata"]["name"], status, DEFAULT_NAMESPACE, subresource="status")

    async def registered(self, name: str) -> str:
        return (await self.client.get(NODES, name)).metadata.annotations.get(REGISTER, "")


def _merged(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    both = {key: _merged(values[key], more[key]) for key in values.keys() & more if isinstance(values[key], dict)}
    return {**values, **more, **both}


def _typed(value: Any) -> Any:
    """As ``--set`` reads it, and ``--set-string`` does not."""
    if isinstance(value, dict):
        return {key: _typed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_typed(each) for each in value if each]
    return {"true": True, "false": False}.get(value, value)


def definition_of(group: str, kind: str, plural: str) -> dict[str, Any]:
    """A CustomResourceDefinition of objects with any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**head, "metadata": {"name": f"{plural}.{group}"}, "spec": spec}
