"""containerd as kubelet's runtime: its configuration, its images, and what it knows of a container."""

import json
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from purser.agent.host.sockets import is_listening
from purser.lab.controlplane.process import Process

from .binaries import Binaries
from .image import write_busybox
from .manifests import BUSYBOX_IMAGE, PAUSE_IMAGE

_COMMON = """\
root = "{folder}/root"
state = "{folder}/state"
# There is no systemd to hand the score to, and nothing may be taken from the tests' own process.
oom_score = 0

[grpc]
  address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"

"""
_CONFIG_1 = """\
version = 2
{common}
[plugins."io.containerd.grpc.v1.cri"]
  # Nothing can be pulled: the sandbox runs the image that was imported.
  sandbox_image = "{pause}"
  # Without CAP_SYS_RESOURCE a process cannot lower its oom score, and runc ends with
  # "can't get final child's PID from pipe: EOF".
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_bin}"
    conf_dir = "{cni_conf}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "{runc}"
        Root = "{folder}/runc"
"""
"""Of containerd 1.6."""

_CONFIG_2 = """\
version = 3
{common}
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{snapshotter}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{pause}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{folder}/cdi", "/var/run/cdi"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{cni_bin}"]
    conf_dir = "{cni_conf}"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    # Another containerd's shim may be on the PATH.
    runtime_path = "{shim}"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{folder}/runc"

# Its socket is one for the whole machine: of two that start at once one ends with "address already in use".
[plugins."io.containerd.nri.v1.nri"]
  disable = true
"""
"""Of containerd 2, for the same reasons."""

_POD = "io.kubernetes.pod.name"
_NAMESPACE = "io.kubernetes.pod.namespace"
_CONTAINER = "io.kubernetes.container.name"
_KIND = "io.cri-containerd.kind"


class Containerd:
    """A containerd with folders of its own; pods outlive it, as they do on a real node.

    name: of its log file.
    command: makes of a command line one that runs on the node.
    """

    def __init__(
        self,
        binaries: Binaries,
        folder: Path,
        logs: Path,
        cni: tuple[Path, Path],
        name: str,
        command: Callable[[Sequence[str]], list[str]],
    ) -> None:
        folder.mkdir()
        self._binaries = binaries
        self._folder = folder
        self.socket = folder / "containerd.sock"
        config = folder / "config.toml"
        containerd = Path(binaries.path("containerd"))
        text = (_CONFIG_1 if binaries.containerd_major < 2 else _CONFIG_2).replace("{common}", _COMMON)
        config.write_text(
            text.format(
                folder=folder,
                socket=self.socket,
                pause=PAUSE_IMAGE,
                cni_bin=cni[0],
                cni_conf=cni[1],
                snapshotter="overlayfs" if stacks_overlays(folder) else "native",
                runc=binaries.path("runc"),
                shim=containerd.with_name("containerd-shim-runc-v2"),
            )
        )
        self.process = Process(name, command([str(containerd), f"--config={config}"]), logs)

    def start(self) -> None:
        """Start it and import the images on the first start."""
        self.process.start()
        self.process.wait_ready(self.answers, 30)
        for name, command in ((PAUSE_IMAGE, ["sleep", "2147483647"]), (BUSYBOX_IMAGE, ["sh"])):
            archive = self._folder / "image.tar"
            if name not in self._ctr("images", "ls", "-q").split():
                write_busybox(archive, name, command)
                self._ctr("images", "import", str(archive))
                archive.unlink()

    def import_image(self, archive: Path) -> None:
        """Have an image, which its archive names, for pods with `imagePullPolicy: Never` or `IfNotPresent`."""
        self._ctr("images", "import", str(archive))

    def tag_image(self, name: str, other: str) -> None:
        """Have an image that is there by another name as well."""
        self._ctr("images", "tag", "--force", name, other)

    def container_ids(self, namespace: str, pod: str, container: str) -> list[str]:
        """Ids of a container's incarnations, the newest last."""
        wanted = {_NAMESPACE: namespace, _POD: pod, _CONTAINER: container, _KIND: "container"}
        query = ",".join(f'labels."{key}"=={value}' for key, value in wanted.items())
        made: dict[str, str] = {}
        for each in self._ctr("containers", "ls", "-q", query).split():
            try:
                made[each] = self.info(each)["CreatedAt"]
            except RuntimeError as error:
                if "not found" not in str(error):  # else kubelet has removed it meanwhile
                    raise
        return sorted(made, key=made.__getitem__)

    def info(self, container_id: str) -> Any:
        """What containerd holds of a container; `Spec` is its OCI runtime spec."""
        return json.loads(self._ctr("containers", "info", container_id))

    def pid(self, container_id: str) -> int:
        """Process id on the host of a running container's process 1; raises LookupError when it does not run."""
        for line in self._ctr("tasks", "ls").splitlines()[1:]:
            task, pid, status = line.split()
            if task == container_id and status == "RUNNING":
                return int(pid)
        raise LookupError(f"container {container_id} is not running")

    def answers(self) -> bool:
        """Whether it serves calls."""
        return is_listening(self.socket) and self._run("version").returncode == 0

    def _ctr(self, *arguments: str) -> str:
        result = self._run(*arguments)
        if result.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def _run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [self._binaries.path("ctr"), f"--address={self.socket}", "--namespace=k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)


def stacks_overlays(folder: Path) -> bool:
    """Whether the kernel can stack overlayfs on this folder: in a container, itself an overlay, it often cannot."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        base = Path(name)
        for part in ("lower", "upper", "work", "merged"):
            (base / part).mkdir()
        options = f"lowerdir={base / 'lower'},upperdir={base / 'upper'},workdir={base / 'work'}"
        mount = subprocess.run(
            ["mount", "-t", "overlay", "-o", options, "overlay", str(base / "merged")], capture_output=True
        )
        if mount.returncode == 0:
            subprocess.run(["umount", str(base / "merged")], check=True, capture_output=True)
        return mount.returncode == 0
