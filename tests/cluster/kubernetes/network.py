"""Addresses of the cluster, and the bridges its nodes and pods hang on.

Every node has a bridge with the node's address, for its pods. The first node's lies in the network of the control
plane; those of the others lie in networks of their own and are plugged into it. All is one range, and nothing is
routed. The range is part of the one reserved for benchmarks (RFC 2544), which nobody routes.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from purser.lab.controlplane.commands import ADVERTISED_ADDRESS, LOOPBACK, SERVICE_CIDR

from .binaries import CNI_PLUGINS

BRIDGE = "purser0"
MOST_NODES = 8
POD_CIDR = "198.18.0.0/16"
CLUSTER_DNS = "198.19.54.10"


def node_address(number: int) -> str:
    """Address of the nth node; the API server's as well, for the first."""
    return f"198.18.{number}.1"


NODE_ADDRESS = node_address(0)
assert NODE_ADDRESS == ADVERTISED_ADDRESS


def create_bridge(number: int, command: tuple[str, ...] = ()) -> None:
    """Make a node's bridge; `command` runs what follows it in the node's network."""
    # A bridge without an address of its own takes that of a port, another one with every pod that comes.
    hardware = f"02:00:c6:12:{number:02x}:01"
    for arguments in (
        ["link", "add", BRIDGE, "address", hardware, "type", "bridge"],
        ["address", "add", f"{node_address(number)}/{POD_CIDR.partition('/')[2]}", "dev", BRIDGE],
        ["link", "set", BRIDGE, "up"],
        # The way that Services' addresses take: kube-proxy runs beside the control plane.
        ["route", "add", SERVICE_CIDR, *(["via", NODE_ADDRESS] if number else ["dev", BRIDGE])],
    ):
        subprocess.run([*command, "ip", *arguments], check=True, capture_output=True)


def plug_in(number: int, pid: int, command: tuple[str, ...]) -> None:
    """Connect the bridge in the network of a process to the one here."""
    port = f"node{number}"
    for prefix, arguments in (
        ((), ["link", "add", port, "type", "veth", "peer", "name", "uplink", "netns", str(pid)]),
        ((), ["link", "set", port, "master", BRIDGE, "up"]),
        (command, ["link", "set", "uplink", "master", BRIDGE, "up"]),
        (command, ["link", "set", "lo", "up"]),
    ):
        subprocess.run([*prefix, "ip", *arguments], check=True, capture_output=True)


def delete_bridge() -> None:
    """Remove the first node's bridge."""
    subprocess.run(["ip", "link", "delete", BRIDGE], check=True, capture_output=True)


def write_cni_config(folder: Path, number: int) -> tuple[Path, Path]:
    """Write the nth node's plugin chain below `folder`; returns CNI's bin_dir and conf_dir.

    No masquerading and no port mapping: both need netfilter, which a small kernel lacks, and no test needs a way out of
    the machine.
    """
    conf_dir = folder / "net.d"
    conf_dir.mkdir(parents=True)
    gateway = node_address(number)
    first, last = (f"{gateway.rpartition('.')[0]}.{host}" for host in (2, 254))
    pods = {"subnet": POD_CIDR, "rangeStart": first, "rangeEnd": last, "gateway": gateway}
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isDefaultGateway": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[pods]], "dataDir": str(folder / "ipam")},
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
