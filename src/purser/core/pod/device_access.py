"""Fields of a pod's spec that would give it GPUs without a grant, or more of a GPU than was granted.

Pure, and linear in the pod's size. The webhook checks new and changed pods, the scheduler every pod that it places.
What an image contains cannot be seen here; docs/pods.md explains what that means.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from purser.core.grant.enforcement import control_is_disabled
from purser.core.grant.share_variables import BESIDE_GPUS, DEVICES, LIMITS, LOADER, MPS, VISIBLE_DEVICES, Names
from purser.core.pod.manifest import ContainerEnvVar, ContainerSpec, PodManifest, VolumeMount

_HIDING = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that add nothing."""

_DEVICE_MOUNTS = "/run/nvidia-container-devices"
"""NVIDIA's container toolkit takes what a mount's path has behind this, slash or not, for a device."""

_DEVICE_FILES = ("/dev/nvidia", "/dev/char/195:", "/run/nvidia/driver/dev")
"""How the paths of NVIDIA's device files on a node begin; 195 is the driver's number."""

_CDI_ANNOTATIONS = re.compile(
    r"(cdi\.k8s\.io|.*\.cdi\.k8s\.io|cdi-devices\.(nri\.io|noderesource\.dev)|devices\.(nri\.io|noderesource\.dev))/"
    r"|io\.kubernetes\.cri-o\.Devices$",
    re.IGNORECASE,
)
"""By which container runtimes and their plugins take requests for devices."""

_NVIDIA = re.compile(r"nvidia|/dev/char/195:", re.IGNORECASE)

_OUT_OF_PROC = re.compile(r"(/proc/[^/]+(/task/[^/]+)?/(root|cwd)(?=/|$))+")
"""Ways back to a root of the node; of its first process, to the node's own."""

_NODE_PATHS = (
    "/dev/nvidia",
    "/dev/char",
    "/etc/cdi",
    "/proc",
    "/run/cdi",
    "/run/nvidia",
    "/run/purser",
    "/dev/shm/purser-mps",
    "/tmp/nvidia-mps",
    "/tmp/vgpulock",
    "/usr/local/vgpu",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/purser",
)
"""Of the node: a pod with one could take devices, or change what others were given. Compared as beginnings."""

_NODE_PATHS_ABOVE = ("/", "/dev", "/run", "/usr", "/usr/local", "/var", "/var/lib", "/var/lib/kubelet")
"""And the folders that hold these. Not /tmp and /etc, which pods often have and where these are seldom."""

_MOUNTS_OF_DEVICES = ("/dev/nvidia", "/run/nvidia")
_MOUNTS_OF_LIBRARY = ("/etc/ld.so.preload", "/overrideEnv", "/tmp/nvidia-mps", "/tmp/vgpulock", "/usr/local/vgpu")
_MOUNTS_ABOVE_LIBRARY = ("/", "/etc", "/usr", "/usr/local")

_STRONG_CAPABILITIES = frozenset({"ALL", "SYS_ADMIN"})
"""NVIDIA's container toolkit takes them for privileged, and they undo mounts."""

_ASK = "ask for GPUs with nvidia.com/gpu in the limits"
_MOST_FINDINGS = 5
_MAX_SHOWN_CHARACTERS = 100
"""Characters of what the pod's author wrote that a message repeats."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that a pod may not say."""

    cause: str
    mend: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.mend}"


def unasked(pod: PodManifest) -> tuple[Finding, ...]:
    """Where a pod names NVIDIA's devices itself, whether it asks for GPUs or not."""
    return (*_unasked_by_annotations(pod.annotations), *_unasked_by_volumes(pod), *_unasked_by_containers(pod))


def widening(pod: PodManifest, parts: Mapping[str, bool], *, by_library: bool = True) -> tuple[Finding, ...]:
    """Where a pod that requests GPUs would take more than it is granted, or override what its containers are given.

    ``parts`` has the containers that ask, and whether for shares. ``by_library`` is False where no node has HAMi-core's
    library, so that variables of the dynamic loader circumvent nothing.
    """
    shares = {name for name, is_share in parts.items() if is_share}
    found = [*_annotations(pod.annotations), *_node_paths(pod)]
    if shares and pod.host_pid:
        found.append(
            Finding(
                "the pod asks for a share of a GPU and sets hostPID, which exposes other pods' processes to it",
                "drop hostPID, or ask for whole GPUs (nvidia.com/gpu alone)",
            )
        )
    for container in pod.containers:
        if container.name in parts:
            found += _of_container(container, container.name in shares, by_library)
    return tuple(found)


def sentence(findings: Iterable[Finding]) -> str:
    """The findings in a message; of very many the first."""
    found = list(dict.fromkeys(map(str, findings)))
    more = [f"and {len(found) - _MOST_FINDINGS} more"] if len(found) > _MOST_FINDINGS else []
    return "; ".join([*found[:_MOST_FINDINGS], *more])


# --- without asking


def _unasked_by_annotations(annotations: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in annotations.items():
        if _CDI_ANNOTATIONS.match(key) and (_NVIDIA.search(value) or _NVIDIA.search(key)):
            yield Finding(f'annotation "{_short(key)}" names NVIDIA devices itself', f"remove it and {_ASK}")


def _unasked_by_volumes(pod: PodManifest) -> Iterator[Finding]:
    hosts = {volume.name: volume.host_path.path for volume in pod.volumes if volume.host_path}
    for name, path in hosts.items():
        if _plain(path).startswith(_DEVICE_FILES):
            yield Finding(f'volume "{_short(name)}" is the host path {_short(path)}', f"remove it and {_ASK}")
    for container in (*pod.containers, *pod.ephemeral):
        for mount in container.mounts:
            if mount.name in hosts and _reaches_device_files(hosts[mount.name], mount):
                yield Finding(
                    f'container "{container.name}" mounts a device file of volume "{_short(mount.name)}"',
                    f"remove that and {_ASK}",
                )


def _reaches_device_files(host_path: str, mount: VolumeMount) -> bool:
    """Through a subPath; of one that is made of variables only the beginning is known."""
    if not (mount.sub_path or mount.sub_path_expr):
        return False
    known, unknown, _ = (mount.sub_path or mount.sub_path_expr).partition("$(")
    path = _plain(f"{host_path}/{known}")
    if path.startswith(_DEVICE_FILES):
        return True
    leads_on = path.startswith("/proc") or any(device.startswith(path.rstrip("/")) for device in _DEVICE_FILES)
    return bool(unknown) and leads_on


def _unasked_by_containers(pod: PodManifest) -> Iterator[Finding]:
    for container in (*pod.containers, *pod.ephemeral):
        names = (each.name for each in container.env if DEVICES.has(each.name) and not _hides(each))
        for name in dict.fromkeys(names):
            yield Finding(
                f'container "{container.name}" sets {name}, which names devices that were not granted',
                f"remove it and {_ASK}",
            )
        for path in _targets(container):
            if _plain(path).startswith(_DEVICE_MOUNTS):
                yield Finding(
                    f'container "{container.name}" mounts {_short(path)}, which names GPUs that were not granted',
                    f"remove that and {_ASK}",
                )


def _hides(variable: ContainerEnvVar) -> bool:
    """Whether it shows fewer devices, if any: the word alone, for a value from elsewhere may be any other."""
    return variable.name == VISIBLE_DEVICES and variable.value_from is None and variable.value.strip() in _HIDING


# --- beyond what is granted


def _annotations(annotations: Mapping[str, str]) -> Iterator[Finding]:
    for key in annotations:
        if _CDI_ANNOTATIONS.match(key):
            yield Finding(
                f'the pod asks for GPUs and annotation "{_short(key)}" for devices beside them',
                "remove it: Purser's agent names the devices that are granted",
            )


def _node_paths(pod: PodManifest) -> Iterator[Finding]:
    for volume in pod.volumes:
        if volume.host_path is None:
            continue
        path = volume.host_path.path
        plain = _plain(path)
        if plain.startswith(_NODE_PATHS) or plain in _NODE_PATHS_ABOVE or _climbs(path):
            yield Finding(
                f'the pod asks for GPUs and volume "{_short(volume.name)}" is the host path {_short(path)}, '
                f"which exposes the node's devices or Purser's records to it",
                "mount a narrower path, or none",
            )


def _of_container(container: ContainerSpec, is_share: bool, by_library: bool) -> Iterator[Finding]:
    limited = is_share and not control_is_disabled(container)
    yield from _variables(container, LIMITS, "which Purser's agent sets", "remove it")
    if limited:
        instead = (
            "remove it, or set CUDA_DISABLE_CONTROL=true: the container is then not limited, and its grant says so"
        )
        yield from _variables(
            container, MPS, "which would make it use another MPS daemon than that of its share", "remove it"
        )
        if by_library:
            yield from _variables(container, LOADER, "which loads libraries before HAMi-core's", instead)
    if is_share:
        instead = "remove it, or ask for whole GPUs (nvidia.com/gpu alone)"
        yield from _variables(
            container, BESIDE_GPUS, "for which NVIDIA's container toolkit adds devices of the whole node", instead
        )
    if is_share and (strong := _strong(container)):
        yield Finding(
            f'container "{container.name}" asks for a share of a GPU and for the capability {strong}, '
            f"which undoes limits",
            "drop the capability, or ask for whole GPUs (nvidia.com/gpu alone)",
        )
    for path in _targets(container):
        plain = _plain(path)
        if (
            plain.startswith(_MOUNTS_OF_DEVICES)
            or _climbs(path)
            or (limited and (plain.startswith(_MOUNTS_OF_LIBRARY) or plain in _MOUNTS_ABOVE_LIBRARY))
        ):
            yield Finding(
                f'container "{container.name}" asks for GPUs and mounts {_short(path)}, '
                f"where Purser's agent or NVIDIA's runtime places what limits it",
                "mount it elsewhere",
            )


def _variables(container: ContainerSpec, names: Names, what: str, mend: str) -> Iterator[Finding]:
    for name in names.within(variable.name for variable in container.env):
        yield Finding(f'container "{container.name}" asks for GPUs and sets {_short(name)}, {what}', mend)
    for source in container.env_from:
        if source.prefix.startswith(names.families):
            yield Finding(
                f'container "{container.name}" asks for GPUs and sets variables that begin with '
                f"{_short(source.prefix)} (envFrom), {what}",
                mend,
            )


def _strong(container: ContainerSpec) -> str:
    """The runtimes take capabilities in any case, with and without CAP_."""
    return next((name for name in container.capabilities if _capability(name) in _STRONG_CAPABILITIES), "")


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


# --- paths


def _targets(container: ContainerSpec) -> Iterator[str]:
    yield from (mount.mount_path for mount in container.mounts)
    yield from (device.device_path for device in container.block_devices)


def _plain(path: str) -> str:
    """The path as the kernel finds it: absolute, without detours, /var/run as the link to /run that it is."""
    path = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    if climbed := _OUT_OF_PROC.match(path):
        path = path[climbed.end() :] or "/"
    return path.removeprefix("/var") if path == "/var/run" or path.startswith("/var/run/") else path


def _climbs(path: str) -> bool:
    """Whether its target depends on links: no mount needs ``..``."""
    return ".." in path.split("/")


def _short(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."
