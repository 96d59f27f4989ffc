"""Addresses of the cluster and the bridge its pods hang on.

The node's address is the bridge's own: kubelet refuses a loopback address, and a test machine need not have any other.
The range is the one reserved for benchmarks (RFC 2544), which nobody routes.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from purser.lab.controlplane.commands import ADVERTISED_ADDRESS, LOOPBACK, SERVICE_CIDR

from .binaries import CNI_PLUGINS

BRIDGE = "purser0"
NODE_ADDRESS = ADVERTISED_ADDRESS
POD_CIDR = "198.19.53.0/24"
CLUSTER_DNS = "198.19.54.10"


def create_bridge() -> None:
    """Make the bridge with the node's address, and the way that Services' addresses take where kube-proxy runs."""
    delete_bridge()
    for command in (
        ["link", "add", BRIDGE, "type", "bridge"],
        ["address", "add", f"{NODE_ADDRESS}/{POD_CIDR.partition('/')[2]}", "dev", BRIDGE],
        ["link", "set", BRIDGE, "up"],
        ["route", "add", SERVICE_CIDR, "dev", BRIDGE],
    ):
        subprocess.run(["ip", *command], check=True, capture_output=True)


def delete_bridge() -> None:
    """Remove the bridge, also one that a crashed run left."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True, capture_output=True)


def write_cni_config(folder: Path) -> tuple[Path, Path]:
    """Write the plugin chain below `folder`; returns CNI's bin_dir and conf_dir.

    No masquerading and no port mapping: both need netfilter, which a small kernel lacks, and no test needs a way out of
    the machine.
    """
    conf_dir = folder / "net.d"
    conf_dir.mkdir(parents=True)
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": POD_CIDR}]], "dataDir": str(folder / "ipam")},
    }
    conflist = {"cniVersion": "0.4.0", "name": BRIDGE, "plugins": [bridge]}
    (conf_dir / "10-purser.conflist").write_text(json.dumps(conflist))
    return CNI_PLUGINS, conf_dir


def proxy_config(kubeconfig: Path, node_name: str, healthz_port: int, metrics_port: int) -> dict[str, Any]:
    """KubeProxyConfiguration: Services by iptables; what the machine itself has set of its kernel stays."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node_name,
        "clusterCIDR": POD_CIDR,
        "healthzBindAddress": f"{LOOPBACK}:{healthz_port}",
        "metricsBindAddress": f"{LOOPBACK}:{metrics_port}",
        "iptables": {"localhostNodePorts": False, "syncPeriod": "30s", "minSyncPeriod": "0s"},
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
            "udpTimeout": "0s",
            "udpStreamTimeout": "0s",
        },
    }
