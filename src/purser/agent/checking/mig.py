"""GPUs that the agent is to cut on demand: whether Purser knows their profiles, and the driver lets the agent see
them."""

from collections.abc import Iterable, Iterator, Mapping

from purser.agent.checking.config import held_settings
from purser.agent.checking.results import CheckResult, CheckState
from purser.agent.host.hostfiles import on_host
from purser.agent.instances.devices import on_demand_kind
from purser.agent.inventory.device_files import MIG_MINORS, read_mig_minors
from purser.agent.nvml.driver import Driver, Gpu, MigCallError
from purser.agent.settings import AgentSettings
from purser.core.sharing import MigStrategy

_NO_CAPABILITY_FILES = (
    "Load NVIDIA's kernel module (R450 or later): containers get MIG devices through their device files in "
    "/dev/nvidia-caps."
)
_UNKNOWN_MODEL = "The agent serves the GPU as with MIG strategy mixed: create its GPU instances yourself."


def wants_on_demand(settings: AgentSettings) -> bool:
    """Whether options, variables or the file of all nodes say so. Blocks."""
    return held_settings(settings).mig_strategy is MigStrategy.ON_DEMAND


def problems_of_instances(driver: Driver, gpus: Iterable[Gpu]) -> dict[str, str]:
    """Why the GPU instances of GPUs in MIG mode cannot be read, by uuid. Blocks."""
    found = {}
    for gpu in gpus:
        if gpu.uuid and gpu.is_partitioned and gpu.fault is None:
            try:
                driver.mig_contents(gpu.uuid)
            except MigCallError as error:
                found[gpu.uuid] = str(error)
    return found


def check_on_demand(settings: AgentSettings, gpus: Iterable[Gpu], problems: Mapping[str, str]) -> Iterator[CheckResult]:
    """What keeps GPUs from being cut on demand."""
    partitioned = [gpu for gpu in gpus if gpu.is_partitioned and gpu.fault is None]
    for gpu in partitioned:
        what, kind = f"GPU {gpu.index} on demand", on_demand_kind(gpu, MigStrategy.ON_DEMAND)
        if kind is None:
            message = f"{gpu.name}: Purser does not know this model's MIG profiles"
            yield CheckResult(what, CheckState.WARNING, message, _UNKNOWN_MODEL)
        elif problem := problems.get(gpu.uuid or ""):
            advice = "If permission is missing, run both the check and the agent privileged and as root."
            yield CheckResult(what, CheckState.FAILED, problem, advice)
        else:
            yield CheckResult(what, CheckState.OK, f"{gpu.name} is partitioned as {kind.name}")
    if partitioned and not read_mig_minors(on_host(settings, MIG_MINORS)):
        yield CheckResult("MIG capabilities", CheckState.FAILED, f"{MIG_MINORS} does not exist", _NO_CAPABILITY_FILES)
