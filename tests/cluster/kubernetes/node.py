"""One node: containerd and kubelet in mount and cgroup namespaces of their own, the first one's network aside.

kubelet and containerd have paths compiled in, such as /var/lib/kubelet/device-plugins: a node sees folders of its own
there, which others reach below the cluster's folder.
"""

import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from purser.agent.host.sockets import is_listening
from purser.lab.controlplane.commands import SharedFiles
from purser.lab.controlplane.process import Process, is_answering
from purser.lab.ports import free_ports

from . import cgroups, kubelet, network
from .binaries import Binaries
from .containers import Containerd
from .service import Service

_SHARED = tuple(map(Path, (kubelet.FOLDER, "/var/log/pods", "/var/log/containers", "/run/cdi", "/var/lib/purser")))
"""Folders of the node that others may look into."""
_PRIVATE = (Path("/run/netns"), Path("/run/containerd"), Path("/var/lib/cni"))
_LEAF = cgroups.ROOT / "system"
"""Of version 2: a cgroup has processes or hands controllers on, not both."""


class Node:
    """The nth node, from `start` to `stop`.

    run: what the names of its cgroups begin with.
    folder: of its own; configuration and state of containerd, kubelet's folder.

    `processes` has containerd and kubelet, and what holds the namespaces: node.
    """

    def __init__(self, number: int, name: str, run: str, folder: Path, logs: Path, binaries: Binaries) -> None:
        self.name = name
        self.address = network.node_address(number)
        self.folder = folder
        self.kubelet_config: Mapping[str, Any] = {}
        self._number = number
        self._cgroup = f"{run}{name}"
        self._logs = logs
        self._binaries = binaries
        self._suffix = f"-{name}" if number else ""
        self._prefix: tuple[str, ...] = ()
        self.processes: dict[str, Process] = {}
        self.containerd: Containerd

    # -- paths on this machine -----------------------------------------------------------------------------------------

    @property
    def kubelet_folder(self) -> Path:
        """What the node calls /var/lib/kubelet."""
        return self.path(kubelet.FOLDER)

    @property
    def device_plugin_dir(self) -> Path:
        """Where plugins put their sockets."""
        return self.kubelet_folder / "device-plugins"

    @property
    def kubelet_socket(self) -> Path:
        """Where plugins register."""
        return self.device_plugin_dir / "kubelet.sock"

    @property
    def device_checkpoint(self) -> Path:
        """What kubelet remembers of devices."""
        return self.device_plugin_dir / "kubelet_internal_checkpoint"

    @property
    def pod_resources_socket(self) -> Path:
        """Who has which devices."""
        return self.kubelet_folder / "pod-resources" / "kubelet.sock"

    def path(self, path: Path) -> Path:
        """Where a folder of `_SHARED` lies for everybody else."""
        return self.folder / "root" / path.relative_to("/")

    # -- life ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the node's namespaces, and start containerd in them; `run_kubelet` does the rest. Raises StartError."""
        made = cgroups.create(self._cgroup)
        for path in _SHARED:
            self.path(path).mkdir(parents=True)
        ready = self.folder / "ready"
        namespaces = ["--mount", "--cgroup", "--propagation=private", *(["--net"] if self._number else [])]
        script = self._script(ready)
        moved = "; ".join(f"echo 0 > {shlex.quote(str(path / 'cgroup.procs'))}" for path in made)
        argv = ["sh", "-ec", f'{moved}; exec "$@"', "sh", "unshare", *namespaces, "sh", "-ec", script]
        holder = self.processes["node"] = Process(f"node{self._suffix}", argv, self._logs)
        holder.start()
        holder.wait_ready(ready.exists)
        pid = holder.pid
        self._prefix = (
            *("nsenter", f"--target={pid}", "--mount", "--cgroup", *(["--net"] if self._number else [])),
            *("sh", "-ec", 'for each in $0; do echo 0 > "$each"/cgroup.procs; done; exec "$@"'),
            str(_LEAF) if self._unified() else " ".join(str(each.mount) for each in cgroups.hierarchies()),
        )
        assert pid is not None
        if self._number:
            network.create_bridge(self._number, self._prefix)
            network.plug_in(self._number, pid, self._prefix)
        cni = network.write_cni_config(self.folder / "cni", self._number)
        name = f"containerd{self._suffix}"
        self.containerd = Containerd(self._binaries, self.folder / "containerd", self._logs, cni, name, self.command)
        self.processes["containerd"] = self.containerd.process
        self.containerd.start()

    def stop(self) -> None:
        """Kill everything that runs on the node. Its mounts, and its network, go with that."""
        # kubelet first, or it would be started again.
        for process in reversed(self.processes.values()):
            process.kill()
        cgroups.remove(each.mount / self._cgroup for each in cgroups.hierarchies())
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, argv: Sequence[str]) -> list[str]:
        """A command line that runs on the node: with its files, its cgroup and, but for the first one, its network."""
        return [*self._prefix, *argv]

    def run_kubelet(self, version: tuple[int, int], files: SharedFiles, kubeconfig: Path, extra: Sequence[str]) -> None:
        """Start kubelet, with `kubelet_config`; it is not waited for."""
        api, healthz = free_ports(2)
        runtime = self.containerd.socket
        ports = kubelet.KubeletPorts(api, healthz)
        config = self.folder / "kubelet.json"
        config.write_text(
            json.dumps(kubelet.kubelet_config(version, files, self.address, ports, runtime, self.kubelet_config))
        )
        arguments = kubelet.kubelet_arguments(
            version, config, kubeconfig, self.name, self.address, runtime, self.folder
        )
        argv = self.command([self._binaries.path("kubelet"), *arguments, *extra])
        self.processes["kubelet"] = Service(f"kubelet{self._suffix}", argv, self._logs)
        self._healthz = f"http://{self.address}:{healthz}/healthz"
        self.processes["kubelet"].start()

    def wait_kubelet(self) -> None:
        """Until it is healthy and takes device plugins. Raises StartError."""
        self.processes["kubelet"].wait_ready(lambda: is_listening(self.kubelet_socket) and is_answering(self._healthz))

    def forget_policies(self) -> None:
        """Remove the state of CPU and memory manager: kubelet refuses to start when their policy has changed."""
        for name in kubelet.POLICY_STATE:
            (self.kubelet_folder / name).unlink(missing_ok=True)

    # -- how -----------------------------------------------------------------------------------------------------------

    def _unified(self) -> bool:
        return cgroups.hierarchies()[0].unified

    def _script(self, ready: Path) -> str:
        lines = [f"mkdir -p {path}; mount --bind {self.path(path)} {path}" for path in _SHARED]
        lines += [f"mkdir -p {path}; mount -t tmpfs tmpfs {path}" for path in _PRIVATE]
        # Pods' `mountPropagation` needs it; systemd does it on other machines.
        lines.append("mount --make-rshared /")
        if self._unified():
            lines += [
                f"mount -t cgroup2 cgroup {cgroups.ROOT}",
                f"mkdir {_LEAF}; echo 0 > {_LEAF}/cgroup.procs",
                f"for each in {' '.join(cgroups.V2)}",
                f"do echo +$each > {cgroups.ROOT}/cgroup.subtree_control || :; done",
            ]
        else:
            # Those of before show the whole machine.
            lines += [f"umount -l {cgroups.ROOT}; mount -t tmpfs -o mode=755 cgroup {cgroups.ROOT}"]
            for each in cgroups.hierarchies():
                lines.append(f"mkdir {each.mount}; mount -t cgroup -o {','.join(each.options)} cgroup {each.mount}")
                links = [name for name in each.options if name != each.mount.name]
                lines += [f"ln -s {each.mount.name} {cgroups.ROOT / name}" for name in links]
        return "\n".join([*lines, f"touch {ready}", "exec sleep infinity"])
