"""Files that others read: device information for Multus and CNI plugins, CDI specifications for container runtimes."""

import contextlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import msgspec
import structlog

from purser.agent.cdi.names import CDI_FOLDER
from purser.agent.cdi.specification import CdiDevice, CdiDeviceNode, CdiEdits, CdiSpecification, plain_specification
from purser.agent.host.files import read_head, replace_file
from purser.agent.host.hostfiles import on_host
from purser.agent.settings import AgentSettings
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.sriov.answers import cdi_kind_of, device_files, device_info, device_info_file
from purser.core.sriov.pools import PoolMember, SriovPool

log = structlog.get_logger("purser.agent")

DEVICE_INFO_FOLDER = Path("/run/k8s.cni.cncf.io/devinfo/dp")
"""On the host. The specification says /var/run, which is a link that only the host itself can follow."""

CDI_PREFIX = "sriov-dp-"
"""Of the names of CDI specifications: the SR-IOV network device plugin's, whose files must not stay beside these."""


_MAX_CDI_BYTES = 16 << 20

_specification_reader: JsonReader[CdiSpecification] = JsonReader(
    CdiSpecification, "a CDI specification", max_bytes=_MAX_CDI_BYTES
)


class DeviceInfoFiles:
    """Device information of one node."""

    def __init__(self, settings: AgentSettings) -> None:
        self._folder = on_host(settings, DEVICE_INFO_FOLDER)

    def write(self, pool: SriovPool, members: Iterable[PoolMember]) -> None:
        """Before a container gets these devices. Raises OSError."""
        for each in members:
            if (content := device_info(each)) is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                replace_file(
                    self._folder / device_info_file(pool.resource, each.device.id), msgspec.json.encode(content)
                )

    def tidy(self, pools: Iterable[SriovPool]) -> None:
        """Remove files of devices that left their pools. Those of running pods stay: CNI plugins read them again."""
        for pool in pools:
            there = {device_info_file(pool.resource, id_) for id_ in (*pool.by_id(), *pool.missing)}
            start, end = device_info_file(pool.resource, "\0").split("\0")
            with contextlib.suppress(OSError):
                for path in self._folder.iterdir():
                    inner = path.name.removeprefix(start).removesuffix(end)
                    is_own = len(inner) == len(path.name) - len(start) - len(end) and "-" not in inner
                    if is_own and path.name not in there:
                        path.unlink(missing_ok=True)


class SriovCdiFiles:
    """CDI specifications of one node's pools: a file for each that has device files."""

    def __init__(self, settings: AgentSettings) -> None:
        self._folder = on_host(settings, CDI_FOLDER)

    def keep(self, pools: Sequence[SriovPool], vhost_files: Sequence[str], held: Collection[str]) -> None:
        """Write what changed, and remove all others. Raises OSError.

        ``held``: ids that containers hold. What no pool has any more of these stays in its file: a container that
        starts again names it. What a pool has is removed from others: of two files that give a device the runtime
        takes neither.
        """
        wanted, given = {}, set()
        for pool in pools:
            named = [CdiDevice(each.device.id, _edits(each, vhost_files)) for each in pool.members]
            if (found := plain_specification(cdi_kind_of(pool), named)) is not None:
                kind = cdi_kind_of(pool).replace("/", "-")
                wanted[f"{CDI_PREFIX}{kind}-{pool.config.name}.json"] = found
                given |= {(found.kind, each.name) for each in found.devices}
        contents = {name: msgspec.json.encode(each) for name, each in wanted.items()}
        for path in sorted(self._folder.glob(f"{CDI_PREFIX}*")):
            if path.name not in wanted:
                if (kept := _held_specification(path, held, given)) is None:
                    path.unlink(missing_ok=True)
                else:
                    contents[path.name] = msgspec.json.encode(kept)
        for name, content in contents.items():
            path = self._folder / name
            if not path.exists() or read_head(path, len(content) + 1) != content:
                self._folder.mkdir(parents=True, exist_ok=True)
                replace_file(path, content)
                log.info("Wrote a CDI specification", file=name)


def _held_specification(
    path: Path, held: Collection[str], given: Collection[tuple[str, str]]
) -> CdiSpecification | None:
    """What stays of a file of no pool; None: nothing. ``given``: kinds and names of other files' devices."""
    try:
        found = _specification_reader.read(read_head(path, _MAX_CDI_BYTES + 1))
    except (OSError, UnreadableError):
        return None
    left = [each for each in found.devices if each.name in held and (found.kind, each.name) not in given]
    return plain_specification(found.kind, left)


def _edits(member: PoolMember, vhost_files: Sequence[str]) -> CdiEdits:
    return CdiEdits(
        device_nodes=tuple(
            CdiDeviceNode(path=each.container_path, host_path=each.host_path, permissions="rw")
            for each in device_files(member, vhost_files)
        )
    )
