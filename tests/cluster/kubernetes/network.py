"""Addresses of the cluster and the bridge its pods hang on.

The node's address is the bridge's own: kubelet refuses a loopback address, and a test machine need not have any other.
The range is the one reserved for benchmarks (RFC 2544), which nobody routes.
"""

import json
import subprocess
from pathlib import Path

from purser.lab.controlplane.commands import ADVERTISED_ADDRESS

from .binaries import CNI_PLUGINS

BRIDGE = "purser0"
NODE_ADDRESS = ADVERTISED_ADDRESS
POD_CIDR = "198.19.53.0/24"
CLUSTER_DNS = "198.19.54.10"


def create_bridge() -> None:
    """Make the bridge with the node's address."""
    delete_bridge()
    for command in (
        ["link", "add", BRIDGE, "type", "bridge"],
        ["address", "add", f"{NODE_ADDRESS}/{POD_CIDR.partition('/')[2]}", "dev", BRIDGE],
        ["link", "set", BRIDGE, "up"],
    ):
        subprocess.run(["ip", *command], check=True, capture_output=True)


def delete_bridge() -> None:
    """Remove the bridge, also one that a crashed run left."""
    if Path(f"/sys/class/net/{BRIDGE}").exists():
        subprocess.run(["ip", "link", "delete", BRIDGE], check=True, capture_output=True)


def write_cni_config(folder: Path) -> tuple[Path, Path]:
    """Write the plugin chain below `folder`; returns CNI's bin_dir and conf_dir.

    No masquerading and no port mapping: both need netfilter modules that a small kernel lacks, and no test needs a way
    out of the machine.
    """
    conf_dir = folder / "net.d"
    conf_dir.mkdir(parents=True)
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipMasq": False,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": POD_CIDR}]], "dataDir": str(folder / "ipam")},
    }
    conflist = {"cniVersion": "0.4.0", "name": BRIDGE, "plugins": [bridge]}
    (conf_dir / "10-purser.conflist").write_text(json.dumps(conflist))
    return CNI_PLUGINS, conf_dir
