"""Command line and configuration of kubelet, and the paths that are compiled into it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from purser.lab.controlplane.commands import SharedFiles, Version

from .manifests import PAUSE_IMAGE
from .network import CLUSTER_DNS

FOLDER = Path("/var/lib/kubelet")
"""On its node; the folder for device plugins below it is compiled in."""

POLICY_STATE = ("cpu_manager_state", "memory_manager_state")
"""SharedFiles below it."""


@dataclass(frozen=True)
class KubeletPorts:
    """Of its HTTPS API, and of its plain health check."""

    api: int
    healthz: int


def kubelet_arguments(
    version: Version, config: Path, kubeconfig: Path, node_name: str, address: str, runtime: Path, folder: Path
) -> list[str]:
    """Flags: what the configuration file of that generation cannot say."""
    arguments = [
        f"--config={config}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={node_name}",
        f"--node-ip={address}",
        f"--root-dir={FOLDER}",
        f"--cert-dir={folder / 'kubelet-certs'}",
        "--v=2",
    ]
    if version < (1, 27):
        arguments += [
            "--container-runtime=remote",
            f"--container-runtime-endpoint=unix://{runtime}",
            f"--pod-infra-container-image={PAUSE_IMAGE}",  # keeps image collection away from it
        ]
    return arguments


def kubelet_config(
    version: Version,
    files: SharedFiles,
    address: str,
    ports: KubeletPorts,
    runtime: Path,
    overrides: Mapping[str, Any],
) -> dict[str, Any]:
    """KubeletConfiguration; `overrides` replaces whole fields."""
    resolv_conf = files.folder / "resolv.conf"
    resolv_conf.touch()  # pods get no name service: there is none
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "port": ports.api,
        "readOnlyPort": 0,
        "healthzBindAddress": address,
        "healthzPort": ports.healthz,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(files.ca.cert)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(files.serving.cert),
        "tlsPrivateKeyFile": str(files.serving.key),
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "resolvConf": str(resolv_conf),
        "clusterDNS": [CLUSTER_DNS],  # nobody serves it; without it every pod gets a warning event
        "volumePluginDir": str(files.folder / "volume-plugins"),
        "makeIPTablesUtilChains": False,  # a small kernel has no netfilter
        # The disk belongs to the machine: its fill level must not evict test pods.
        "evictionHard": {"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
        # Devices that come or go show in the node's status within a second; an unchanged status is not sent again.
        "nodeStatusUpdateFrequency": "1s",
        "nodeStatusReportFrequency": "5m",
        "kubeAPIQPS": 200,
        "kubeAPIBurst": 400,
    }
    if version >= (1, 27):
        config["containerRuntimeEndpoint"] = f"unix://{runtime}"
    if version >= (1, 31):
        config["failCgroupV1"] = False
    return config | dict(overrides)
