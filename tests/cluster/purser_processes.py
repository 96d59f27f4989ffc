"""Purser on the real cluster, as its chart installs it, but as processes of this machine.

Each part runs with the service account, and so the RBAC, that the chart gives it. kube-scheduler runs twice, as in
production: the cluster's own with its default profile, and Purser's with the configuration out of the chart.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import helm_python
import yaml

from purser.core.names import DEFAULT_NAMESPACE
from purser.lab.controlplane.process import Process, answers_ok
from purser.lab.driver.node import SimulatedDriver
from purser.lab.ports import free_ports

from .kubernetes.cluster import RealCluster

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "purser"
PURSER = Path(sys.executable).with_name("purser")
PROFILE = "a100-40gb-8"
LOOPBACK = "127.0.0.1"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")


class Purser:
    """One agent with eight simulated cards on the cluster's node, one scheduler, and a kube-scheduler beside it."""

    def __init__(self, cluster: RealCluster) -> None:
        self.cluster = cluster
        self.folder = Path(tempfile.mkdtemp(prefix="purser-", dir="/tmp"))
        self.driver = SimulatedDriver.create(self.folder / "driver", cluster.node_name, PROFILE)
        self.webhook_port, self.extender_port, *metrics, kube_port, kube_http = free_ports(6)
        self.scheduler_metrics, self.agent_metrics = metrics
        self._objects = _render(cluster.version)
        self._install()
        self.agent = self._process("purser-agent", self._agent_arguments())
        self.scheduler = self._process("purser-scheduler", self._scheduler_arguments())
        self.kube_scheduler = Process(
            "purser-kube-scheduler", self._kube_scheduler_argv(kube_port, kube_http), cluster.logs
        )
        self._kube_scheduler_health = f"https://{LOOPBACK}:{kube_port}/healthz"

    def start(self) -> None:
        """Start all three; returns when they are ready."""
        self.scheduler.start()
        self.agent.start()
        self.kube_scheduler.start()
        self.kube_scheduler.wait_ready(lambda: answers_ok(self._kube_scheduler_health, self.cluster.ca_file))
        self.wait_scheduler()
        self.wait_agent()

    def stop(self) -> None:
        """Stop what runs and remove the folder with the simulated driver and the agent's checkpoint."""
        for process in (self.kube_scheduler, self.agent, self.scheduler):
            process.stop()
        shutil.rmtree(self.folder)

    def wait_scheduler(self) -> None:
        """Until the scheduler is ready: it knows the cluster, and its webhook is registered."""
        self.scheduler.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{self.scheduler_metrics}/readyz"))

    def wait_agent(self) -> None:
        """Until the agent is ready: kubelet knows its devices."""
        self.agent.wait_ready(lambda: answers_ok(f"http://{LOOPBACK}:{self.agent_metrics}/readyz"))

    def _install(self) -> None:
        self.cluster.create_namespace(DEFAULT_NAMESPACE)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", *POLICIES)
        self.cluster.apply(*(each for each in self._objects if each["kind"] in kinds))
        webhooks = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
        self.cluster.apply(*(self._reached(each) for each in self._objects if each["kind"] in webhooks))

    def _reached(self, configuration: dict[str, Any]) -> dict[str, Any]:
        """A webhook configuration for a process of this machine, where no Service leads."""
        where = {each["name"]: each["clientConfig"]["service"]["path"] for each in configuration["webhooks"]}
        urls = {name: {"url": f"https://{LOOPBACK}:{self.webhook_port}{path}"} for name, path in where.items()}
        webhooks = [{**each, "clientConfig": urls[each["name"]]} for each in configuration["webhooks"]]
        return {**configuration, "webhooks": webhooks}

    def _process(self, name: str, arguments: list[str]) -> Process:
        command = [str(PURSER), *arguments]
        on_node = self.cluster.node.command(command) if name == "purser-agent" else command
        return Process(name, on_node, self.cluster.logs, env={"PYTHONUNBUFFERED": "1"})

    def _agent_arguments(self) -> list[str]:
        return [
            "agent",
            f"--node-name={self.cluster.node_name}",
            f"--kubeconfig={self._account('purser-agent', self.cluster.node_name)}",
            f"--driver-library={self.driver.library}",
            f"--sysfs-root={self.driver.sysfs_root}",
            f"--state-dir={self.folder / 'agent'}",
            f"--metrics-port={self.agent_metrics}",
            f"--metrics-address={LOOPBACK}",
        ]

    def _scheduler_arguments(self) -> list[str]:
        return [
            "scheduler",
            f"--kubeconfig={self._account('purser-scheduler')}",
            f"--webhook-address={LOOPBACK}",
            f"--webhook-port={self.webhook_port}",
            f"--extender-port={self.extender_port}",
            f"--metrics-address={LOOPBACK}",
            f"--metrics-port={self.scheduler_metrics}",
            f"--follow-lease={DEFAULT_NAMESPACE}/purser-kube-scheduler",
            f"--webhook-url={LOOPBACK}:{self.webhook_port}",
            f"--webhook-scheduler-user=system:serviceaccount:{DEFAULT_NAMESPACE}:purser-scheduler",
        ]

    def _kube_scheduler_argv(self, port: int, http_port: int) -> list[str]:
        [found] = [
            each
            for each in self._objects
            if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "purser-kube-scheduler"
        ]
        config = yaml.safe_load(found["data"]["config.yaml"])
        account = str(self._account("purser-scheduler"))
        config["clientConnection"] = {"kubeconfig": account, "qps": 500, "burst": 1000}
        [extender] = config["extenders"]
        extender["urlPrefix"] = f"https://{LOOPBACK}:{self.extender_port}"
        if self.cluster.version < (1, 22):
            address = f"{LOOPBACK}:{http_port}"
            config |= {"healthzBindAddress": address, "metricsBindAddress": address}
        path = self.folder / "kube-scheduler.json"
        path.write_text(json.dumps(config))
        serving = self.cluster.files.serving
        return [
            self.cluster.binaries.path("kube-scheduler"),
            f"--config={path}",
            f"--bind-address={LOOPBACK}",
            f"--secure-port={port}",
            f"--tls-cert-file={serving.cert}",
            f"--tls-private-key-file={serving.key}",
            f"--authentication-kubeconfig={account}",
            f"--authorization-kubeconfig={account}",
        ]

    def _account(self, name: str, node: str = "") -> Path:
        return self.cluster.service_account_kubeconfig(DEFAULT_NAMESPACE, name, node)


def _render(version: tuple[int, int]) -> list[dict[str, Any]]:
    values = {"scheduler": {"kubeScheduler": {"tag": f"v{version[0]}.{version[1]}.0"}}}
    with helm_python.Chart.load(CHART) as chart:
        files = chart.render(values, name="purser", namespace=DEFAULT_NAMESPACE)
    return [one for name, text in files.items() if name.endswith(".yaml") for one in yaml.safe_load_all(text) if one]
