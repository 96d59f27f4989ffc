"""Fields of a pod's spec that would give it GPUs without a grant, or more of a GPU than was granted.

Pure, and linear in the pod's size. The webhook checks new and changed pods, the scheduler every pod that it places.
What an image contains cannot be seen here; docs/pods.md explains what that means.
"""

import base64
import posixpath
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from purser.core.grant.enforcement import control_is_disabled
from purser.core.grant.share_variables import (
    DEVICES,
    EXTRA_DEVICE_VARIABLES,
    LIMITS,
    LOADER_VARIABLES,
    MPS,
    VISIBLE_DEVICES,
    VariableNames,
)
from purser.core.pod.manifest import ContainerEnvVar, ContainerSpec, PodManifest, VolumeMount

_HIDING_VALUES = ("", "void", "none")
"""Values of NVIDIA_VISIBLE_DEVICES that add nothing."""

_DEVICE_MOUNTS = "/run/nvidia-container-devices"
"""NVIDIA's container toolkit takes what a mount's path has behind this, slash or not, for a device."""

_DEVICE_FILES = re.compile(r"(/run/nvidia/driver)?/dev/(nvidia|dxg(/|$)|char/195:)|/run/nvidia/driver/dev(/|$)")
"""The paths of NVIDIA's device files on a node; 195 is the driver's number. Below WSL all GPUs are one, /dev/dxg
(``device-wsl.go`` in ``pkg/nvcdi`` of NVIDIA's container toolkit 1.20.0)."""

_FOLDERS_OF_DEVICE_FILES = ("/dev/char", "/run/nvidia/driver/dev")
"""Those that hold them."""

_INJECTOR_ANNOTATIONS = re.compile(
    r"(cdi\.k8s\.io|.*\.cdi\.k8s\.io|cdi-devices\.(nri\.io|noderesource\.dev)"
    r"|(devices|mounts)\.(nri\.io|noderesource\.dev))/"
    r"|io\.kubernetes\.cri-o\.Devices$",
    re.IGNORECASE,
)
"""By which container runtimes and their plugins take requests for devices: CDI, CRI-O, the plugins of NRI."""

_NVIDIA = re.compile(r"nvidia|/dev/char/195:", re.IGNORECASE)

_NO_REQUESTS = frozenset({"kubectl.kubernetes.io/last-applied-configuration"})
"""What kubectl records of a whole pod: no runtime reads it, and the pod itself is looked at."""

_CDI_NAME = re.compile(r"(?<![\w.-])([\w-]+\.)*nvidia\.com/(gpu|pgpu|vgpu|mig|device|claim)=[\w\"'*]", re.IGNORECASE)
"""A GPU by the Container Device Interface: ``nvidia.com/gpu=all``, ``k8s.gpu.nvidia.com/claim=...`` of NVIDIA's DRA."""

_ANNOTATED_FILES = re.compile(_DEVICE_FILES.pattern + r"|/dev/dri/")
"""Device files of GPUs that no annotation names."""

_ANNOTATED_FOLDERS = frozenset(
    {"/dev", "/dev/char", "/dev/dri", "/run", "/run/nvidia", "/run/nvidia/driver", "/run/nvidia/driver/dev"}
)
"""And the folders above them, but the root: that is what many an annotation says of a web server."""

_PATH_PATTERN = re.compile(r"/[^\s,;:=\"'`\[\]{}()<>|]*")
_CHAR_DEVICE_PATH = re.compile(r"/[^\s,;=\"'`\[\]{}()<>|]*")
_SEPARATORS = re.compile(r"[,;:={}\[\]\r\n]")
_SCALAR_PREFIX = re.compile(r"(?:[!&][^\s]*\s+)+")
"""Tags and anchors of YAML."""
_ROOT_AS_SOURCE = re.compile(
    r"[\"']?(?:source|src|host_?path|device|path)[\"']?\s*:\s*[\"']?(/[^\s,;:\"'\[\]{}]*)[\"']?", re.IGNORECASE
)

_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(\r?\n[ \t]*)|([/\"\\]))")
"""Of quoted strings of YAML 1.2, chapter 5.7, and of JSON."""
_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,}={0,2}")

_DMA_BUF = re.compile(r"/dev/(dmabuf_import_helper|udmabuf|dma_heap(/.*)?)")
"""What programs that send GPU memory by network need beside GPUs: they hold no GPU."""

_PROC_ROOT_LINK = re.compile(r"(/proc/[^/]+(/task/[^/]+)?/(root|cwd)(?=/|$))+")
"""Ways back to a root of the node; of its first process, to the node's own."""

_PROC_DEVICE_PATH = re.compile(r"/proc(/(\d+|self|thread-self|driver)(/|$)|$)")
"""What of /proc leads to devices: processes, by their roots and open files, and the driver's own folder."""

_NODE_PATHS = (
    "/dev/char",
    "/etc/cdi",
    "/run/cdi",
    "/run/nvidia",
    "/run/nvidia-fabricmanager",
    "/run/nvidia-persistenced",
    "/run/purser",
    "/dev/shm/purser-mps",
    "/tmp/nvidia-mps",
    "/tmp/vgpulock",
    "/usr/local/vgpu",
    "/var/lib/kubelet/device-plugins",
    "/var/lib/purser",
)
"""Of the node: a pod with one could take devices, or change what others were given."""

_NODE_PATH_PARENTS = ("/", "/dev", "/run", "/usr", "/usr/local", "/var", "/var/lib", "/var/lib/kubelet")
"""And the folders that hold these. Not /tmp and /etc, which pods often have and where these are seldom."""

_MOUNTS_OF_DEVICES = ("/run/nvidia", "/run/nvidia-fabricmanager", "/run/nvidia-persistenced")
_MOUNTS_OF_LIBRARY = ("/etc/ld.so.preload", "/overrideEnv", "/tmp/nvidia-mps", "/tmp/vgpulock", "/usr/local/vgpu")
_MOUNTS_ABOVE_LIBRARY = ("/", "/etc", "/usr", "/usr/local")

_STRONG_CAPABILITIES = frozenset({"ALL", "SYS_ADMIN"})
"""NVIDIA's container toolkit takes them for privileged, and they undo mounts."""

_ASK_ADVICE = "ask for GPUs with nvidia.com/gpu in the limits"
_ASKED_NOTE = "because the pod gets the GPUs that it asks for"
_MAX_FINDINGS = 5
_MAX_SHOWN_CHARACTERS = 100
"""Characters of what the pod's author wrote that a message repeats."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that a pod may not say."""

    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.cause}: {self.remedy}"


def find_unrequested_access(pod: PodManifest, *, asks: bool = False) -> tuple[Finding, ...]:
    """Where a pod names NVIDIA's devices itself. ``asks``: it asks for GPUs as well, in whichever words."""
    found = (*_find_in_annotations(pod.annotations), *_find_in_volumes(pod), *_find_in_containers(pod))
    how = f", {_ASKED_NOTE}" if asks else f" and {_ASK_ADVICE}"
    return tuple(msgspec.structs.replace(each, remedy=f"{each.remedy}{how}") for each in found)


def find_widened_access(
    pod: PodManifest, parts: Mapping[str, bool], *, has_hami_core: bool = True
) -> tuple[Finding, ...]:
    """Where a pod that requests GPUs would take more than it is granted, or override what its containers are given.

    ``parts`` has the containers that ask, and whether for shares. ``has_hami_core`` is False where no node has
    HAMi-core's library, so that variables of the dynamic loader circumvent nothing.
    """
    shares = {name for name, is_share in parts.items() if is_share}
    found = [*_annotations(pod.annotations), *_node_paths(pod)]
    if shares and pod.host_pid:
        found.append(
            Finding(
                "the pod asks for a share of a GPU and sets hostPID, which exposes other pods' processes to it",
                "remove hostPID, or ask for whole GPUs (nvidia.com/gpu alone)",
            )
        )
    for container in pod.containers:
        if container.name in parts:
            found += _container_findings(container, container.name in shares, has_hami_core)
    return tuple(found)


def exposes_node_devices(pod: PodManifest) -> bool:
    """Whether a hostPath of the pod leads to the node's devices or to Purser's records."""
    return any(True for _ in _node_paths(pod))


def sentence(findings: Iterable[Finding]) -> str:
    """The findings in a message; of very many the first."""
    found = list(dict.fromkeys(map(str, findings)))
    more = [f"and {len(found) - _MAX_FINDINGS} more"] if len(found) > _MAX_FINDINGS else []
    return "; ".join([*found[:_MAX_FINDINGS], *more])


# --- without asking


def _find_in_annotations(annotations: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in annotations.items():
        by_injector = _INJECTOR_ANNOTATIONS.match(key) and (_NVIDIA.search(value) or _NVIDIA.search(key))
        if by_injector or (key not in _NO_REQUESTS and names_gpus(value)):
            yield Finding(f'annotation "{_truncate(key)}" names NVIDIA devices directly', "remove it")


def names_gpus(value: str) -> bool:
    """Whether an annotation's value names a GPU's device file, a folder above, or a GPU by CDI.

    Injectors of devices have keys of their own, and new ones come: what they must say is the same. Strings may be
    escaped, as YAML and JSON allow, or written as YAML's binary.
    """
    return any(_names_gpus(text) for text in _readings(value))


def _readings(value: str) -> Iterator[str]:
    yield value
    plain = _ESCAPE.sub(_unescape, value) if "\\" in value else value
    if plain != value:
        yield plain
    if "binary" in plain:
        yield from filter(None, map(_from_base64, _BASE64.findall(plain)))


def _unescape(found: re.Match[str]) -> str:
    if number := found[1] or found[2] or found[3]:
        code = int(number, 16)
        return chr(code) if code <= sys.maxunicode else ""
    return found[5] or ""


def _from_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:  # no base64, or no text: no path either
        return ""


def _names_gpus(text: str) -> bool:
    if _CDI_NAME.search(text):
        return True
    if "/" not in text:
        return False
    paths = chain(_PATH_PATTERN.findall(text), _CHAR_DEVICE_PATH.findall(text) if "195:" in text else ())
    if any(_ANNOTATED_FILES.match(_plain(path)) for path in paths):
        return True
    if any(_plain(path) in _ANNOTATED_FOLDERS for path in _whole_paths(text)):
        return True
    sources = _ROOT_AS_SOURCE.findall(text) if "source" in text.lower() or "host" in text.lower() else ()
    return any(_plain(path) == "/" for path in sources)


def _whole_paths(text: str) -> Iterator[str]:
    """The paths that are all of a value, of a list's entry, or of a part between colons; in time linear in the text."""
    for piece in _SEPARATORS.split(text):
        scalar = _SCALAR_PREFIX.sub("", piece.partition(" #")[0].strip(" \t-"), count=1).strip(" \t\"'")
        if scalar.startswith("/"):
            yield scalar


def _find_in_volumes(pod: PodManifest) -> Iterator[Finding]:
    hosts = {volume.name: volume.host_path.path for volume in pod.volumes if volume.host_path}
    for name, path in hosts.items():
        if _DEVICE_FILES.match(_plain(path)):
            yield Finding(f'volume "{_truncate(name)}" is the host path {_truncate(path)}', "remove it")
    for container in (*pod.containers, *pod.ephemeral):
        for mount in container.mounts:
            if mount.name in hosts and _reaches_device_files(hosts[mount.name], mount):
                yield Finding(
                    f'container "{container.name}" mounts a device file of volume "{_truncate(mount.name)}"',
                    "remove the mount",
                )


def _reaches_device_files(host_path: str, mount: VolumeMount) -> bool:
    """Through a subPath; of one that is made of variables only the beginning is known."""
    if not (mount.sub_path or mount.sub_path_expr):
        return False
    known, unknown, _ = (mount.sub_path or mount.sub_path_expr).partition("$(")
    path = _plain(f"{host_path}/{known}")
    if _DEVICE_FILES.match(path):
        return True
    prefix = path.rstrip("/")
    leads_to_devices = (
        _PROC_DEVICE_PATH.match(path) is not None
        or "/proc".startswith(prefix)
        or any(f"{folder}/nvidia".startswith(prefix) for folder in ("/dev", *_FOLDERS_OF_DEVICE_FILES))
        or any(each.startswith(prefix) for each in ("/dev/char/195:", "/dev/dxg"))
    )
    return bool(unknown) and leads_to_devices


def _find_in_containers(pod: PodManifest) -> Iterator[Finding]:
    for container in (*pod.containers, *pod.ephemeral):
        names = (each.name for each in container.env if DEVICES.has(each.name) and not _hides_devices(each))
        for name in dict.fromkeys(names):
            yield Finding(
                f'container "{container.name}" sets {name}, which requests devices without a grant',
                "remove it",
            )
        for path in _mount_targets(container):
            if _plain(path).startswith(_DEVICE_MOUNTS):
                yield Finding(
                    f'container "{container.name}" mounts {_truncate(path)}, which requests GPUs without a grant',
                    "remove the mount",
                )


def _hides_devices(variable: ContainerEnvVar) -> bool:
    """Whether it shows fewer devices, if any: the word alone, for a value from elsewhere may be any other."""
    return variable.name == VISIBLE_DEVICES and variable.value_from is None and variable.value.strip() in _HIDING_VALUES


# --- beyond what is granted


def _annotations(annotations: Mapping[str, str]) -> Iterator[Finding]:
    for key, value in annotations.items():
        if _INJECTOR_ANNOTATIONS.match(key) and not _is_for_dma_buf(value):
            yield Finding(
                f'the pod asks for GPUs, but annotation "{_truncate(key)}" asks for additional devices',
                "remove the annotation, because Purser's agent adds the granted devices",
            )


def _is_for_dma_buf(value: str) -> bool:
    """Whether all that it names is what programs need to send memory by network."""
    paths = _PATH_PATTERN.findall(value)
    return bool(paths) and "=" not in value and "\\" not in value and all(map(_DMA_BUF.fullmatch, map(_plain, paths)))


def _node_paths(pod: PodManifest) -> Iterator[Finding]:
    for volume in pod.volumes:
        if volume.host_path is None:
            continue
        path = volume.host_path.path
        plain = _plain(path)
        if _exposes_node(plain) or _has_parent_references(path):
            yield Finding(
                f'the pod asks for GPUs and volume "{_truncate(volume.name)}" is the host path {_truncate(path)}, '
                "which exposes the node's devices or Purser's records to it",
                "mount a narrower path, or remove the volume",
            )


def _exposes_node(plain: str) -> bool:
    return (
        _is_within(plain, _NODE_PATHS)
        or plain in _NODE_PATH_PARENTS
        or _DEVICE_FILES.match(plain) is not None
        or _PROC_DEVICE_PATH.match(plain) is not None
    )


def _container_findings(container: ContainerSpec, is_share: bool, has_hami_core: bool) -> Iterator[Finding]:
    limited = is_share and not control_is_disabled(container)
    yield from _variables(container, LIMITS, "which Purser's agent sets", "remove it")
    if limited:
        instead = (
            "remove it, or set CUDA_DISABLE_CONTROL=true, which leaves the container without limits and is noted in "
            "its grant"
        )
        yield from _variables(
            container, MPS, "which would give it a different MPS daemon or a different part of one", "remove it"
        )
        if has_hami_core:
            yield from _variables(
                container, LOADER_VARIABLES, "which loads libraries before HAMi-core's, or in its place", instead
            )
    if is_share:
        instead = "remove it, or ask for whole GPUs (nvidia.com/gpu alone)"
        yield from _variables(
            container,
            EXTRA_DEVICE_VARIABLES,
            "for which NVIDIA's container toolkit adds devices of the whole node",
            instead,
        )
    if is_share and (strong := _strong_capabilities(container)):
        yield Finding(
            f'container "{container.name}" asks for a share of a GPU and for the capability {strong}, which lets it '
            "bypass limits",
            "remove the capability, or ask for whole GPUs (nvidia.com/gpu alone)",
        )
    for path in _mount_targets(container):
        plain = _plain(path)
        if _has_parent_references(path):
            yield Finding(
                f'container "{container.name}" asks for GPUs and has a mount at {_truncate(path)}, a path with ".."',
                'write the path without ".."',
            )
        elif (
            _DEVICE_FILES.match(plain)
            or _is_within(plain, _MOUNTS_OF_DEVICES)
            or (limited and (_is_within(plain, _MOUNTS_OF_LIBRARY) or plain in _MOUNTS_ABOVE_LIBRARY))
        ):
            yield Finding(
                f'container "{container.name}" asks for GPUs and has a mount at {_truncate(path)}, where Purser\'s '
                "agent or NVIDIA's runtime puts the container's devices or the files that enforce its limits",
                "use another mount path",
            )


def _variables(container: ContainerSpec, names: VariableNames, what: str, remedy: str) -> Iterator[Finding]:
    for name in names.within(variable.name for variable in container.env):
        yield Finding(f'container "{container.name}" asks for GPUs and sets {_truncate(name)}, {what}', remedy)
    for source in container.env_from:
        if source.prefix.startswith(names.families):
            yield Finding(
                f'container "{container.name}" asks for GPUs and sets variables that begin with '
                f"{_truncate(source.prefix)} (envFrom), {what}",
                remedy,
            )


def _strong_capabilities(container: ContainerSpec) -> str:
    """The runtimes take capabilities in any case, with and without CAP_."""
    return next((name for name in container.capabilities if _capability(name) in _STRONG_CAPABILITIES), "")


def _capability(name: str) -> str:
    return name.upper().removeprefix("CAP_")


# --- paths


def _mount_targets(container: ContainerSpec) -> Iterator[str]:
    yield from (mount.mount_path for mount in container.mounts)
    yield from (device.device_path for device in container.block_devices)


def _plain(path: str) -> str:
    """The path as the kernel finds it: absolute, without detours, /var/run as the link to /run that it is."""
    path = posixpath.normpath(re.sub("/+", "/", f"/{path}"))
    if climbed := _PROC_ROOT_LINK.match(path):
        path = path[climbed.end() :] or "/"
    return path.removeprefix("/var") if path == "/var/run" or path.startswith("/var/run/") else path


def _is_within(plain: str, folders: Iterable[str]) -> bool:
    """Whether it is one of these or below, part by part: ``/run/purser-data`` is not below ``/run/purser``."""
    return any(plain == folder or plain.startswith(f"{folder}/") for folder in folders)


def _has_parent_references(path: str) -> bool:
    """Whether its target depends on links: no mount needs ``..``."""
    return ".." in path.split("/")


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]}..."
