"""The node's sharing configuration: reloaded whenever a file or the node's label changes, without a restart.

A file of which nothing can be read is reported, and the last valid one stays in use; it is kept on disk for restarts
and for times when the API server cannot be reached. An entry with a mistake is reported and costs itself alone.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import structlog

from purser.agent.host.files import read_head, replace_file
from purser.agent.host.inotify import FolderWatch
from purser.agent.host.latest import Latest
from purser.agent.host.threads import run_in_thread
from purser.agent.settings import AgentSettings, SharingSettings
from purser.agent.sharing.reading import MAX_PLUGIN_FILE_BYTES, read_plugin_file
from purser.core.decoding import JsonReader, UnreadableError
from purser.core.sharing import (
    CONFIG_LABEL,
    PluginFile,
    PluginSettings,
    ReadFile,
    SetAside,
    SharingError,
    chosen_config,
    plugin_settings,
    settings_without_effect,
    upstream_differences,
    usable_file,
    with_last_flags,
)
from purser.kube.informer import Informer
from purser.kube.objects import Node
from purser.kube.racing import until

log = structlog.get_logger("purser.agent")

LABEL_TIMEOUT_S = 10.0
"""How long the first look waits for the node's label. After that the last valid file is used."""


class SharingConfig(msgspec.Struct, frozen=True):
    """What a node goes by."""

    name: str = ""
    """Of the file; empty: there is none."""
    text: str = ""
    file: PluginFile = PluginFile()
    settings: PluginSettings = PluginSettings()
    notes: tuple[str, ...] = ()
    """What was passed over in the file, what Purser makes of it unlike NVIDIA's plugin, and what has no effect."""
    problems: tuple[str, ...] = ()
    """Entries of the file that are left out, or are followed in part."""
    set_aside: SetAside = SetAside()
    """GPUs that pods are not to get."""
    good: str = ""
    """Of a file with problems, the text of the last one of its name that had none; empty: there was none."""

    @property
    def told(self) -> tuple[str, ...]:
        """All that is to be said of it, with the name of the file."""
        return tuple(f"{self.name}: {each}" for each in (*self.problems, *self.notes))

    def after(self) -> str:
        """What holds, where this does because another could not be used."""
        if self.text:
            return f"The last valid configuration (file {self.name}) stays in effect."
        return "The agent's options are in effect instead."


class StoredConfig(msgspec.Struct, frozen=True):
    """The last good file, on disk."""

    name: str
    text: str
    good: str = ""
    """See `SharingConfig.good`."""


_MAX_STORED_BYTES = 16 * MAX_PLUGIN_FILE_BYTES
_stored_config_reader = JsonReader(StoredConfig, "the stored configuration", max_bytes=_MAX_STORED_BYTES)


def config_of(
    settings: SharingSettings, name: str = "", text: str = "", node: str = "", last: SharingConfig | None = None
) -> SharingConfig:
    """What holds on a node by options, variables and this file. ``last``: what held before; of the same file, its flags
    hold on where this one's have mistakes. Raises `SharingError`."""
    read = read_plugin_file(text, node) if text else ReadFile(PluginFile())
    options = settings.flags.given()
    file, left_out = usable_file(read.file, options, settings.variables)
    held: tuple[str, ...] = ()
    last = last if last is not None and last.name == name and last.text else None
    if last is not None:
        kept, held = with_last_flags(file, (*read.problems, *left_out), last.file)
        file, conflicts = usable_file(kept, options, settings.variables)
        left_out = (*left_out, *conflicts)
    problems = (*read.problems, *left_out, *held)
    return SharingConfig(
        name,
        text,
        file,
        plugin_settings(file, options, settings.variables),
        notes=(*read.notes, *upstream_differences(file), *settings_without_effect(file)),
        problems=problems,
        set_aside=read.set_aside,
        good=(last.good if last.problems else last.text) if problems and last is not None else "",
    )


class SharingConfigWatch:
    """Keeps ``config`` what this node goes by: None until that is known."""

    def __init__(
        self,
        settings: AgentSettings,
        nodes: Informer[Node],
        on_problem: Callable[[str], None] = lambda problem: None,
        on_notes: Callable[[tuple[str, ...]], None] = lambda notes: None,
    ) -> None:
        """``on_problem`` is called with the problem and what holds instead, and with an empty text once it is solved;
        ``on_notes`` with what is to be said of a configuration that holds from now on."""
        self._settings = settings
        self._sharing = settings.sharing
        self._nodes = nodes
        self._on_problem = on_problem
        self._on_notes = on_notes
        self._look = asyncio.Event()
        self._label_known = False
        nodes.add_handler(on_add=self._on_node, on_update=lambda _, node: self._on_node(node))
        self._label = ""
        self._chosen_before: tuple[str, str] | None = None
        self._last_build: SharingConfig | str = SharingConfig()
        """Of what was said last: the configuration, or what is wrong."""
        is_fixed = self._sharing.file is None and self._sharing.folder is None
        self.config: Latest[SharingConfig | None] = Latest(config_of(self._sharing) if is_fixed else None)
        """What holds."""
        self.problem = ""
        """Why it is not what it should be; empty where it is."""

    async def run(self) -> None:
        """Look until cancelled."""
        folder = self._sharing.folder or (self._sharing.file.parent if self._sharing.file else None)
        if folder is None:
            return
        if self._sharing.folder is not None and not self._label_known:
            await self._wait_for_label()
        with FolderWatch(folder) as watch:
            while True:
                self._look.clear()
                await self._read_once()
                await until(watch.changed(), self._look.wait())

    async def _read_once(self) -> None:
        """A text is read once, and off the loop: one of a megabyte takes a second."""
        try:
            chosen = self._choose_file()
            if chosen != self._chosen_before:
                node, last = self._settings.node_name, self.config.value or self._read_stored()
                self._last_build = await run_in_thread(
                    lambda: _build_config(self._sharing, *chosen, node, last), "purser-config"
                )
                self._chosen_before = chosen
            if isinstance(self._last_build, str):
                raise SharingError(self._last_build)
            config = self._last_build
            self._report_problem("")
        except SharingError as error:
            config = self.config.value or self._read_stored() or config_of(self._sharing)
            self._report_problem(f"{error}. {config.after()}")
        before = self.config.value
        if self.config.set(config) and config != before:
            if config.name:
                log.info("Using a device plugin configuration", file=config.name)
            else:
                log.info("No device plugin configuration file is in effect; using the agent's options")
            for note in config.told:
                log.warning("Check the device plugin's configuration", note=note)
            self._on_notes(config.told)
            self._store(config)

    def _choose_file(self) -> tuple[str, str]:
        """Name and text of the file that the node is to go by, empty where that is none. Raises `SharingError`."""
        sharing = self._sharing
        if sharing.folder is None:
            assert sharing.file is not None
            return sharing.file.name, config_text(sharing.file)
        if not self._label_known:
            raise SharingError(f"the node's label {CONFIG_LABEL} cannot be read from the API server")
        names = config_names(sharing.folder)
        name = chosen_config(self._label, names, default=sharing.default, fallbacks=sharing.fallbacks)
        return name, config_text(sharing.folder / name) if name else ""

    def _report_problem(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            if problem:
                log.error("The device plugin's configuration cannot be used", error=problem)
            self._on_problem(problem)

    async def _wait_for_label(self) -> None:
        try:
            async with asyncio.timeout(LABEL_TIMEOUT_S):
                await self._nodes.synced()
                self._label_known = True  # there may be no such node yet
        except TimeoutError:
            return

    def _on_node(self, node: Node) -> None:
        label = node.metadata.labels.get(CONFIG_LABEL, "")
        if not self._label_known or label != self._label:
            self._label_known, self._label = True, label
            self._look.set()

    def _read_stored(self) -> SharingConfig | None:
        try:
            stored = _stored_config_reader.read(read_head(self._settings.plugin_config, _MAX_STORED_BYTES + 1))
            node = self._settings.node_name
            good = config_of(self._sharing, stored.name, stored.good, node) if stored.good else None
            return config_of(self._sharing, stored.name, stored.text, node, good)
        except FileNotFoundError:
            return None
        except (OSError, UnreadableError, SharingError) as error:
            log.warning("The stored configuration is invalid", error=str(error))
            return None

    def _store(self, config: SharingConfig) -> None:
        path = self._settings.plugin_config
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, msgspec.json.encode(StoredConfig(config.name, config.text, config.good)))
        except OSError as error:
            log.warning("Cannot store the configuration", path=str(path), error=str(error))


def _build_config(
    sharing: SharingSettings, name: str, text: str, node: str, last: SharingConfig | None
) -> SharingConfig | str:
    try:
        return config_of(sharing, name, text, node, last)
    except SharingError as error:
        return str(error)


def config_names(folder: Path) -> list[str]:
    """The names of the files in a folder with configurations. Raises `SharingError`."""
    try:
        return [each.name for each in folder.iterdir()]
    except OSError as error:
        raise SharingError(f"cannot read the folder of configuration files: {error}") from error


def config_text(path: Path) -> str:
    """The start of a configuration file: at least what a valid one has. Raises `SharingError`."""
    try:
        return read_head(path, MAX_PLUGIN_FILE_BYTES + 1).decode(errors="replace")
    except OSError as error:
        raise SharingError(f"cannot read the configuration file: {error}") from error
