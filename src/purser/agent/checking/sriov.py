"""Pools of network devices, where the agent is given a configuration of them."""

from collections.abc import Iterator

from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.settings import AgentSettings
from purser.agent.sriov.ddp import DdpPackages, read_node
from purser.agent.sriov.memory import complete_from_memory, read_seen
from purser.agent.sriov.sysfs import RoutesError
from purser.agent.sriov.watching import sriov_text, sriov_tree
from purser.core.sriov.configuration import SriovConfigError, sriov_config
from purser.core.sriov.pools import SriovPool, make_pools, selector_problems
from purser.core.wording import counted, portion, some

_CHECK_NAME = "SR-IOV pools"


def check_sriov(settings: AgentSettings) -> Iterator[CheckResult]:
    """The file, and what each of its pools would hold on this node if no pod held anything. Blocks."""
    path = settings.sriov.config
    if path is None:
        return
    try:
        config = sriov_config(sriov_text(path, settings.node_name), settings.sriov.resource_prefix)
    except SriovConfigError as error:
        advice = "Correct the file. Until then, the agent uses the last valid file, or has no pools if there was none."
        yield CheckResult(_CHECK_NAME, CheckState.WARNING, f"{path}: {error}", advice)
        return
    for problem in config.problems:
        advice = "Correct the pool in the file. The other pools are served."
        yield CheckResult(_CHECK_NAME, CheckState.WARNING, f"{path}: {problem}", advice)
    for note in (*config.notes, *selector_problems(config)):
        advice = "Correct the file unless this is intended."
        yield CheckResult(_CHECK_NAME, CheckState.WARNING, f"{path}: {note}", advice)
    try:
        found = read_node(sriov_tree(settings), config, DdpPackages(settings.host_root))
    except RoutesError as error:
        advice = "Allow the agent to read the host's /proc/1/net. Until then, the agent does not create any pools."
        yield CheckResult(_CHECK_NAME, CheckState.WARNING, str(error), advice)
        return
    node = complete_from_memory(found, read_seen(settings.sriov_file), None)
    for pool in make_pools(config, node, {}):
        yield _check_pool(pool)


def _check_pool(pool: SriovPool) -> CheckResult:
    if pool.empty:
        message = f"{pool.resource} has no devices: {pool.empty}"
        return CheckResult(
            _CHECK_NAME,
            CheckState.WARNING,
            message,
            "Correct the selector, or create VFs and bind them to their driver.",
        )
    troubles = [f"{each.device.id}: {each.trouble}" for each in pool.members if each.trouble]
    if troubles:
        closed = portion(len(troubles), len(pool.members), "device")
        return CheckResult(
            _CHECK_NAME,
            CheckState.WARNING,
            f"{pool.resource}: {closed} closed to new pods: {some(troubles)}",
        )
    message = f"{pool.resource} has {counted(len(pool.members), 'device')}"
    return CheckResult(_CHECK_NAME, CheckState.OK, f"{message}: {some([each.device.id for each in pool.members])}")
