"""The configuration file of NVIDIA's device plugin, where the agent is given one or a folder with several."""

from collections.abc import Iterator
from pathlib import Path

from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.settings import AgentSettings
from purser.agent.sharing import config_of
from purser.agent.sharing.configuration import config_names, config_text
from purser.core.sharing import PluginSettings, SharingError, chosen_config

_WHAT = "device plugin's file"
_CORRECT = "Correct it: until then the agent goes by the last valid one, or else by its options."


def check_config(settings: AgentSettings) -> Iterator[CheckResult]:
    """What `purser agent run` would say of it. Of a folder every file counts: the node's label, which says which one
    holds, is not read. Blocks."""
    sharing = settings.sharing
    if sharing.folder is not None:
        yield _result(str(sharing.folder), list(_problems_in(settings, sharing.folder)))
    elif sharing.file is not None:
        yield _result(str(sharing.file), list(_problems(settings, sharing.file)))


def held_settings(settings: AgentSettings) -> PluginSettings:
    """By options, variables and the file of all nodes, if it is valid. Blocks."""
    file = settings.sharing.file
    if file is not None and settings.sharing.folder is None:
        try:
            return config_of(settings.sharing, file.name, config_text(file), settings.node_name).settings
        except SharingError:  # reported by the check of it
            pass
    return config_of(settings.sharing).settings


def _result(path: str, problems: list[str]) -> CheckResult:
    if problems:
        return CheckResult(_WHAT, CheckState.WARNING, f"{path}: {'; '.join(problems)}", _CORRECT)
    return CheckResult(_WHAT, CheckState.OK, f"{path} is valid")


def _problems_in(settings: AgentSettings, folder: Path) -> Iterator[str]:
    sharing = settings.sharing
    try:
        names = config_names(folder)
        if sharing.default:
            chosen_config("", names, default=sharing.default)
    except SharingError as error:
        yield str(error)
        return
    for name in sorted(name for name in names if not name.startswith("..")):  # a ConfigMap's volume has such links
        yield from (f"{name}: {problem}" for problem in _problems(settings, folder / name))


def _problems(settings: AgentSettings, file: Path) -> Iterator[str]:
    try:
        config_of(settings.sharing, file.name, config_text(file), settings.node_name)
    except SharingError as error:
        yield str(error)
