"""What is tested, and how patiently."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class PodName:
    """A container that the kit's PodResources API lists as under admission."""

    namespace: str
    pod: str
    container: str

    @classmethod
    def parse(cls, text: str) -> "PodName":
        """Read ``NAMESPACE/POD/CONTAINER``. Raises ValueError."""
        parts = text.split("/")
        if len(parts) != 3 or not all(parts):
            raise ValueError(f"invalid value {text!r} for --pod: must be NAMESPACE/POD/CONTAINER")
        return cls(*parts)


@dataclass(frozen=True)
class Settings:
    """Either ``command`` or ``socket`` is given. Raises ValueError for what cannot be meant."""

    command: tuple[str, ...] = ()
    """Started by the kit; ``{dir}`` and ``{pod_resources}`` in its words become paths."""

    socket: Path | None = None
    """Of a plugin that serves already."""

    folder: Path | None = None
    """kubelet's plugin folder; without it a fresh one for a command, and no registration for a socket."""

    resource: str | None = None
    """Which resource is tested where the plugin registers several; the first one by default."""

    timeout_s: float = 10.0
    """How long each registration, list and answer may take. kubelet's own dial gives up after 10 s."""

    observe_s: float = 2.0
    """How long nothing may happen where nothing should."""

    size: int | None = None
    """How many devices the container asks for; 2 by default, or the one there is."""

    pod: PodName | None = None
    """For plugins that ask kubelet whose call it is: serve PodResources with this container under admission."""

    unhealthy_command: str | None = None
    """Shell command that makes a device of the plugin unhealthy."""

    healthy_command: str | None = None
    """Shell command that makes it healthy again."""

    log: Path | None = None
    """Where the output of a command goes; kept by default only as long as the kit runs."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant. Raises ValueError."""
        if self.command and self.socket is not None:
            raise ValueError("the socket of a running plugin cannot be used with the command that starts one")
        if not self.command and self.socket is None:
            raise ValueError("the socket of a running plugin or the command that starts one is required")
        if self.size is not None and self.size < 1:
            raise ValueError(f"invalid value {self.size} for --size: must be 1 or more")
        if self.timeout_s <= 0 or self.observe_s < 0:
            raise ValueError("--timeout must be more than 0 s, and --observe 0 s or more")
        if self.socket is not None and self.pod is not None and self.folder is None:
            raise ValueError(
                "--pod requires --folder when testing a socket: PodResources is served next to that folder"
            )
        if self.healthy_command and not self.unhealthy_command:
            raise ValueError(
                "--healthy-command requires --unhealthy-command, because only an unhealthy device can recover"
            )
