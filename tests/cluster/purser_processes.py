"""Purser on the real cluster, as its chart installs it, but as processes of this machine.

Each part runs with the service account, and so the RBAC, that the chart gives it. kube-scheduler runs twice, as in
production: the cluster's own with its default profile, and Purser's with the configuration out of the chart.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import helm_python
import yaml

from purser.core.names import DEFAULT_NAMESPACE
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.driver.node import SimulatedDriver
from purser.lab.ports import free_ports

from .kubernetes.cluster import RealCluster
from .kubernetes.node import Node
from .kubernetes.service import Service

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "purser"
PURSER = Path(sys.executable).with_name("purser")
PROFILE = "a100-40gb-8"
LOOPBACK = "127.0.0.1"
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


class Agent:
    """The agent of one node, with eight simulated cards."""

    def __init__(
        self, cluster: RealCluster, node: Node, folder: Path, kubeconfig: Path, options: Sequence[str] = ()
    ) -> None:
        self.node = node
        self.driver = SimulatedDriver.create(folder / "driver", node.name, PROFILE)
        [self.metrics_port] = free_ports(1)
        arguments = [
            f"--node-name={node.name}",
            f"--kubeconfig={kubeconfig}",
            f"--driver-library={self.driver.library}",
            f"--sysfs-root={self.driver.sysfs_root}",
            f"--state-dir={folder / 'agent'}",
            f"--metrics-port={self.metrics_port}",
            f"--metrics-address={node.address}",
            *options,
        ]
        name = "purser-agent" if node is cluster.node else f"purser-agent-{node.name}"
        self.process = Process(
            name, node.command([str(PURSER), "agent", "run", *arguments]), cluster.logs, env=UNBUFFERED
        )
        self._ready = f"http://{node.address}:{self.metrics_port}/readyz"

    def wait(self) -> None:
        """Until it is ready: kubelet knows its devices."""
        self.process.wait_ready(lambda: is_answering(self._ready))


class Purser:
    """One agent on the cluster's first node, one scheduler, and a kube-scheduler beside it."""

    def __init__(
        self,
        cluster: RealCluster,
        agent_options: Sequence[str] = (),
        scheduler_options: Sequence[str] = (),
        agent_values: Mapping[str, Any] | None = None,
    ) -> None:
        """``agent_options``: further ones of every agent; ``scheduler_options``: of the scheduler; ``agent_values``:
        below `agent` in the chart, where they bring permissions."""
        self.cluster = cluster
        self._agent_options = agent_options
        self.folder = Path(tempfile.mkdtemp(prefix="purser-", dir="/tmp"))
        self.webhook_port, self.extender_port, self.scheduler_metrics, self.read_api_port = free_ports(4)
        kube_port, kube_http = free_ports(2)
        self._objects = _render(cluster.version, agent_values)
        self._install()
        first = self._agent(cluster.node)
        self.agents = [first]
        self.agent, self.driver = first.process, first.driver
        scheduler = [str(PURSER), *self._scheduler_arguments(), *scheduler_options]
        self.scheduler = Process("purser-scheduler", scheduler, cluster.logs, env=UNBUFFERED)
        self._kube_scheduler_http = kube_http
        self._kube_scheduler_account = str(self._account("purser-scheduler"))
        self._kube_scheduler_config = self.folder / "kube-scheduler.json"
        self.configure_kube_scheduler()
        self.kube_scheduler = Service("purser-kube-scheduler", self._kube_scheduler_argv(kube_port), cluster.logs)
        self._kube_scheduler_health = f"https://{LOOPBACK}:{kube_port}/healthz"

    def start(self) -> None:
        """Start all three; returns when they are ready."""
        self.scheduler.start()
        self.agent.start()
        self.kube_scheduler.start()
        self.wait_kube_scheduler()
        self.wait_scheduler()
        self.wait_agent()

    def stop(self) -> None:
        """Stop what runs, and leave nothing in the cluster nor on the machine."""
        for process in (self.kube_scheduler, *(each.process for each in self.agents), self.scheduler):
            process.stop()
        shutil.rmtree(self.folder)
        installed = json.dumps({"apiVersion": "v1", "kind": "List", "items": self._installed})
        self.cluster.kubectl("delete", "--ignore-not-found", "-f", "-", stdin=installed)
        self.cluster.delete("namespace", DEFAULT_NAMESPACE)

    def add_agent(self, node: Node) -> Agent:
        """Start an agent on another node; returns when it is ready."""
        agent = self._agent(node)
        self.agents.append(agent)
        agent.process.start()
        agent.wait()
        return agent

    def wait_kube_scheduler(self) -> None:
        """Until the kube-scheduler beside it answers."""
        self.kube_scheduler.wait_ready(lambda: is_answering(self._kube_scheduler_health, self.cluster.ca_file))

    def wait_scheduler(self) -> None:
        """Until the scheduler is ready: it knows the cluster, and its webhook is registered."""
        ready = f"http://{self.cluster.node.address}:{self.scheduler_metrics}/readyz"
        # Where it never ran before it compiles its kernels first.
        self.scheduler.wait_ready(lambda: is_answering(ready), 180)

    def wait_agent(self) -> None:
        """Until the first agent is ready."""
        self.agents[0].wait()

    def renew_agent_account(self) -> None:
        """A token for the node as it is now: one for a Node that was deleted is worth nothing."""
        self._account("purser-agent", self.cluster.node_name)

    def _install(self) -> None:
        self.cluster.create_namespace(DEFAULT_NAMESPACE)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", *POLICIES)
        webhooks = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        self._installed = [
            *(each for each in self._objects if each["kind"] in kinds),
            *(self._reached(each) for each in self._objects if each["kind"] in webhooks),
        ]
        self.cluster.apply(*self._installed)

    def _reached(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """A webhook configuration for a process of this machine, where no Service leads."""
        where = {each["name"]: each["clientConfig"]["service"]["path"] for each in configuration["webhooks"]}
        urls = {name: {"url": f"https://{LOOPBACK}:{self.webhook_port}{path}"} for name, path in where.items()}
        webhooks = [{**each, "clientConfig": urls[each["name"]]} for each in configuration["webhooks"]]
        return {**configuration, "webhooks": webhooks}

    def _agent(self, node: Node) -> Agent:
        account = self._account("purser-agent", node.name)
        return Agent(self.cluster, node, self.folder / node.name, account, self._agent_options)

    def _scheduler_arguments(self) -> list[str]:
        return [
            "scheduler",
            f"--kubeconfig={self._account('purser-scheduler')}",
            f"--webhook-address={LOOPBACK}",
            f"--webhook-port={self.webhook_port}",
            f"--extender-port={self.extender_port}",
            f"--metrics-address={self.cluster.node.address}",
            f"--metrics-port={self.scheduler_metrics}",
            f"--read-api-address={LOOPBACK}",
            f"--read-api-port={self.read_api_port}",
            f"--follow-lease={DEFAULT_NAMESPACE}/purser-kube-scheduler",
            f"--webhook-url={LOOPBACK}:{self.webhook_port}",
            f"--webhook-scheduler-user=system:serviceaccount:{DEFAULT_NAMESPACE}:purser-scheduler",
        ]

    def configure_kube_scheduler(self, **values: Any) -> None:
        """Write its configuration as the chart has it with these values of `scheduler.kubeScheduler`."""
        [found] = [
            each
            for each in _render(self.cluster.version, None, **values)
            if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "purser-kube-scheduler"
        ]
        config = yaml.safe_load(found["data"]["config.yaml"])
        config["clientConnection"] = {"kubeconfig": self._kube_scheduler_account, "qps": 500, "burst": 1000}
        config["extenders"][-1]["urlPrefix"] = f"https://{LOOPBACK}:{self.extender_port}"
        if self.cluster.version < (1, 22):
            address = f"{LOOPBACK}:{self._kube_scheduler_http}"
            config |= {"healthzBindAddress": address, "metricsBindAddress": address}
        self._kube_scheduler_config.write_text(json.dumps(config))

    def _kube_scheduler_argv(self, port: int) -> list[str]:
        account = self._kube_scheduler_account
        serving = self.cluster.files.serving
        return [
            self.cluster.binaries.path("kube-scheduler"),
            f"--config={self._kube_scheduler_config}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.cert}",
            f"--tls-private-key-file={serving.key}",
            f"--authentication-kubeconfig={account}",
            f"--authorization-kubeconfig={account}",
        ]

    def _account(self, name: str, node: str = "") -> Path:
        return self.cluster.service_account_kubeconfig(DEFAULT_NAMESPACE, name, node)


def _render(version: tuple[int, int], agent: Mapping[str, Any] | None, **kube_scheduler: Any) -> list[dict[str, Any]]:
    values = {
        "agent": dict(agent or {}),
        "scheduler": {"kubeScheduler": {"tag": f"v{version[0]}.{version[1]}.0", **kube_scheduler}},
        "readAPI": {"enabled": True},
    }
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="purser", namespace=DEFAULT_NAMESPACE)
    return [one for name, text in files.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]
