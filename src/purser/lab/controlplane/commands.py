"""Command lines and configuration of etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

Pure text: what runs where is decided by the caller. Written for 1.20 and for the newest generation; what differs is
asked of the version, at the one line concerned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from purser.lab.controlplane.credentials import PemFiles

Version = tuple[int, int]

LOOPBACK = "127.0.0.1"
ADVERTISED_ADDRESS = "198.18.0.1"
"""kube-apiserver's advertise address: it must not be loopback, and need not exist.

In the range reserved for benchmarks (RFC 2544), which is not routed.
"""
SERVICE_CIDR = "198.19.54.0/24"
SERVICE_ADDRESS = "198.19.54.1"
"""First address of the service range: what `kubernetes.default` resolves to in a cluster with DNS."""


@dataclass(frozen=True)
class SharedFiles:
    """Files that several processes share."""

    folder: Path
    ca: PemFiles
    serving: PemFiles
    kubelet_client: PemFiles
    signing: PemFiles
    token_file: Path


@dataclass(frozen=True)
class Ports:
    """One port per server, chosen free when the cluster is made."""

    etcd: int
    etcd_peer: int
    apiserver: int
    controller_manager: int
    scheduler: int
    scheduler_http: int


def etcd_arguments(files: SharedFiles, ports: Ports) -> list[str]:
    """etcd on loopback; fsync is off because the data does not outlive the run and CI disks are slow."""
    client, peer = f"http://{LOOPBACK}:{ports.etcd}", f"http://{LOOPBACK}:{ports.etcd_peer}"
    return [
        "--name=purser",
        f"--data-dir={files.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=purser={peer}",
        "--unsafe-no-fsync",
    ]


def apiserver_arguments(files: SharedFiles, ports: Ports, disabled_admission: Sequence[str]) -> list[str]:
    """kube-apiserver with RBAC, the node authorizer and every admission plugin of a stock cluster."""
    arguments = [
        f"--etcd-servers=http://{LOOPBACK}:{ports.etcd}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.apiserver}",
        # The endpoints that the address would be published in are not used.
        f"--advertise-address={ADVERTISED_ADDRESS}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        f"--cert-dir={files.folder / 'apiserver'}",
        f"--tls-cert-file={files.serving.cert}",
        f"--tls-private-key-file={files.serving.key}",
        f"--client-ca-file={files.ca.cert}",
        f"--kubelet-certificate-authority={files.ca.cert}",
        f"--kubelet-client-certificate={files.kubelet_client.cert}",
        f"--kubelet-client-key={files.kubelet_client.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.signing.cert}",
        f"--service-account-signing-key-file={files.signing.key}",
        f"--token-auth-file={files.token_file}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
    ]
    if disabled_admission:
        arguments.append(f"--disable-admission-plugins={','.join(disabled_admission)}")
    return arguments


def controller_manager_arguments(
    files: SharedFiles, ports: Ports, kubeconfig: Path, version: Version, disabled: Sequence[str], node_grace: str
) -> list[str]:
    """kube-controller-manager, each controller with its own service account as in a stock cluster."""
    # There are no pod CIDRs here, and there is no cloud. Kubernetes 1.37 refuses the names of cloud controllers.
    absent = ["-nodeipam", *(["-cloud-node-lifecycle"] if version < (1, 37) else [])]
    controllers = ["*", *absent, *(f"-{name}" for name in disabled)]
    arguments = [
        f"--kubeconfig={kubeconfig}",
        f"--controllers={','.join(controllers)}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={files.signing.key}",
        f"--root-ca-file={files.ca.cert}",
        f"--cluster-signing-cert-file={files.ca.cert}",
        f"--cluster-signing-key-file={files.ca.key}",
        f"--node-monitor-grace-period={node_grace}",
        f"--node-startup-grace-period={node_grace}",
        "--leader-elect=false",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.controller_manager}",
        f"--tls-cert-file={files.serving.cert}",
        f"--tls-private-key-file={files.serving.key}",
    ]
    if version < (1, 24):
        arguments.append("--port=0")  # no plain HTTP on the fixed port 10252
    return arguments


def scheduler_arguments(files: SharedFiles, ports: Ports, config: Path) -> list[str]:
    """kube-scheduler; everything else is in its configuration file."""
    return [
        f"--config={config}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.scheduler}",
        f"--tls-cert-file={files.serving.cert}",
        f"--tls-private-key-file={files.serving.key}",
    ]


def scheduler_config(version: Version, ports: Ports, kubeconfig: Path, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration file: what the caller wants (profiles, extenders ...) plus what every run needs."""
    config: dict[str, Any] = {
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 500, "burst": 1000},
        "leaderElection": {"leaderElect": False},
    }
    if version < (1, 22):
        config["apiVersion"] = "kubescheduler.config.k8s.io/v1beta1"
        # These two exist in v1beta1 only, and default to a fixed port on every address.
        address = f"{LOOPBACK}:{ports.scheduler_http}"
        config |= {"healthzBindAddress": address, "metricsBindAddress": address}
        # As in deploy/helm/purser: 1.20 crashes where it finds two nodes without victims.
        one = {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}}
        profiles = [{**each, "pluginConfig": [one]} for each in wanted.get("profiles", ())]
        wanted = {**wanted, **({"profiles": profiles} if profiles else {})}
    else:
        config["apiVersion"] = (
            "kubescheduler.config.k8s.io/v1" if version >= (1, 25) else "kubescheduler.config.k8s.io/v1beta2"
        )
    return config | dict(wanted)
