"""The stand-in for containerd: containers are records on disk, so that they outlive a restart of kubelet.

A record is what a process would have seen of its devices: one JSON file per container below the node's folder.
"""

import hashlib
import shutil
from pathlib import Path

import msgspec


class ContainerMount(msgspec.Struct, frozen=True):
    """A file or folder of the node inside the container."""

    container_path: str
    host_path: str
    read_only: bool = False


class ContainerRecord(msgspec.Struct, frozen=True):
    """One started container."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    env: dict[str, str]
    started_at: float
    """Seconds since the epoch."""
    restarts: int = 0
    qos: str = "BestEffort"
    """The pod's status.qosClass."""
    devices: tuple[str, ...] = ()
    """Device nodes, by their path inside the container."""
    mounts: tuple[ContainerMount, ...] = ()
    annotations: dict[str, str] = {}
    cdi_devices: tuple[str, ...] = ()
    cpuset: str = ""
    """cpuset.cpus: its own CPUs, or those that it shares."""
    memory_nodes: str = ""
    """cpuset.mems."""

    @property
    def id(self) -> str:
        """As the pod's status has it."""
        return container_id(self.pod_uid, self.container, self.restarts)


def container_id(pod_uid: str, container: str, restarts: int) -> str:
    """As long and as random as containerd's; another one after each restart."""
    return hashlib.sha256(f"{pod_uid}/{container}/{restarts}".encode()).hexdigest()


class Runtime:
    """The containers of one node."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, record: ContainerRecord) -> None:
        """Write the container down; one of the same name is replaced."""
        path = self._path(record.pod_uid, record.container)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(record))

    def get(self, pod_uid: str, container: str) -> ContainerRecord | None:
        """The container, None when it was never started."""
        try:
            return msgspec.json.decode(self._path(pod_uid, container).read_bytes(), type=ContainerRecord)
        except FileNotFoundError:
            return None

    def all(self) -> list[ContainerRecord]:
        """Those of every pod that is not gone, ended ones included."""
        return [msgspec.json.decode(path.read_bytes(), type=ContainerRecord) for path in self._folder.glob("*/*.json")]

    def remove(self, pod_uid: str) -> None:
        """Forget the containers of a pod that is gone."""
        shutil.rmtree(self._folder / pod_uid, ignore_errors=True)

    def _path(self, pod_uid: str, container: str) -> Path:
        return self._folder / pod_uid / f"{container}.json"
