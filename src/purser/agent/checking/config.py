"""The configuration file of NVIDIA's device plugin, where the agent is given one or a folder with several."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.inventory.building import InventoryBasis, make_inventory
from purser.agent.inventory.enforcement import Enforcers
from purser.agent.nvml.driver import DriverInfo, Gpu
from purser.agent.settings import AgentSettings
from purser.agent.sharing import SharingConfig, config_of
from purser.agent.sharing.configuration import config_names, config_text
from purser.core.sharing import PluginSettings, SharingError, chosen_config

_CHECKED_FILE = "device plugin's file"
_CORRECT_FILE = "Correct the file. Until then, the agent uses the last valid file, or its options if there was none."
_CORRECT_FOLDER = (
    "Correct the folder or --default-config. Until then, the agent uses the last valid file, or its options if there "
    "was none."
)
_CORRECT_STRATEGY = (
    "Correct the MIG strategy, or the GPUs' MIG devices. Until then, the agent uses the last configuration that "
    "matched the GPUs or, if there was none, serves the GPUs as if the MIG strategy were none."
)
_CORRECT_ENTRY = "Correct the entry. The rest of the file is in effect."
_DO_WHAT_IT_SAYS = "Do what the message says. The rest of the configuration is in effect."
_CORRECT_UNLESS_INTENDED = "Correct the file unless this is intended."


def check_config(settings: AgentSettings) -> Iterator[CheckResult]:
    """What `purser agent run` would say of it, each note in a row. Of a folder every file counts: the node's label,
    which says which one holds, is not read. Blocks."""
    sharing = settings.sharing
    if sharing.folder is not None:
        results = list(_check_folder(settings, sharing.folder))
        yield from results or [_valid_result(sharing.folder)]
    elif sharing.file is not None:
        yield from list(_check_file(settings, sharing.file, str(sharing.file))) or [_valid_result(sharing.file)]


def check_config_on(settings: AgentSettings, gpus: Iterable[Gpu]) -> Iterator[CheckResult]:
    """What of the file does not go with these GPUs; of a folder what the file does that is the default. Blocks."""
    path = _default_file(settings)
    try:
        config = config_of(settings.sharing) if path is None else _read_config(settings, path)
    except SharingError:  # reported by the check of it
        return
    source = "the agent's options" if path is None else str(path)
    problems: list[str] = []
    try:
        basis = InventoryBasis(config, DriverInfo(), tuple(gpus))
        make_inventory(settings, basis, {}, Enforcers(), "", None, problems)
    except SharingError as error:
        yield CheckResult(_CHECKED_FILE, CheckState.WARNING, f"{source}: {error}", _CORRECT_STRATEGY)
    for problem in problems:
        yield CheckResult(_CHECKED_FILE, CheckState.WARNING, f"{source}: {problem}", _DO_WHAT_IT_SAYS)


def held_settings(settings: AgentSettings) -> PluginSettings:
    """By options, variables and the file of all nodes, if it is valid. Blocks."""
    file = settings.sharing.file
    if file is not None and settings.sharing.folder is None:
        try:
            return _read_config(settings, file).settings
        except SharingError:  # reported by the check of it
            pass
    return config_of(settings.sharing).settings


def _valid_result(path: Path) -> CheckResult:
    return CheckResult(_CHECKED_FILE, CheckState.OK, f"{path} is valid")


def _check_folder(settings: AgentSettings, folder: Path) -> Iterator[CheckResult]:
    sharing = settings.sharing
    try:
        names = config_names(folder)
        if sharing.default:
            chosen_config("", names, default=sharing.default)
    except SharingError as error:
        yield CheckResult(_CHECKED_FILE, CheckState.WARNING, f"{folder}: {error}", _CORRECT_FOLDER)
        return
    for name in sorted(name for name in names if not name.startswith("..")):  # a ConfigMap's volume has such links
        yield from _check_file(settings, folder / name, f"{folder}: {name}")


def _check_file(settings: AgentSettings, file: Path, called: str) -> Iterator[CheckResult]:
    try:
        config = _read_config(settings, file)
    except SharingError as error:
        yield CheckResult(_CHECKED_FILE, CheckState.WARNING, f"{called}: {error}", _CORRECT_FILE)
        return
    for problem in config.problems:
        yield CheckResult(_CHECKED_FILE, CheckState.WARNING, f"{called}: {problem}", _CORRECT_ENTRY)
    for note in config.notes:
        yield CheckResult(_CHECKED_FILE, CheckState.WARNING, f"{called}: {note}", _CORRECT_UNLESS_INTENDED)


def _read_config(settings: AgentSettings, file: Path) -> SharingConfig:
    return config_of(settings.sharing, file.name, config_text(file), settings.node_name)


def _default_file(settings: AgentSettings) -> Path | None:
    """The file of nodes without a label; None: there is none, or the label decides."""
    sharing = settings.sharing
    if sharing.folder is None:
        return sharing.file
    try:
        names = config_names(sharing.folder)
        name = chosen_config("", names, default=sharing.default, fallbacks=sharing.fallbacks)
    except SharingError:  # reported by the check of the folder
        return None
    return sharing.folder / name if name else None
