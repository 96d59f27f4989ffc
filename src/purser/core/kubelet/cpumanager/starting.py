"""What kubelet does at its start: reserve CPUs, and hold the saved state against the machine."""

from purser.core.kubelet.config import CpuPolicy, KubeletConfig
from purser.core.kubelet.cpumanager.options import check_options
from purser.core.kubelet.cpumanager.picking import take_cpus
from purser.core.kubelet.cpumanager.taking import NotTakenError
from purser.core.kubelet.cpumanager.topology import topology_of
from purser.core.kubelet.cpuset import CpuSet, format_cpuset, parse_cpuset
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.state import CpuState, KubeletNode
from purser.core.kubelet.versions import behaviour

_MILLI = 1000


def start(node: KubeletNode, saved: CpuState | None = None) -> CpuState | None:
    """The state after kubelet's start; None with policy none. ``saved``: what the state file held, None where there was
    no file; what it says of reserved CPUs does not count. Raises `KubeletStartError` with kubelet's message."""
    if node.config.cpu_policy is CpuPolicy.NONE:
        return None
    if not node.machine.cpus:
        raise KubeletStartError("could not detect number of cpus")
    check_options(node)
    explicit_cpus = _explicitly_reserved(node)
    count = explicit_cpus.bit_count() or _reserved_count(node.config)
    return validate_saved(node, reserve(node, explicit_cpus, count), saved or CpuState(default=0, reserved=0))


def _explicitly_reserved(node: KubeletNode) -> CpuSet:
    text, all_cpus = node.config.reserved_cpus, node.machine.all_cpus
    try:
        cpus = parse_cpuset(text)
    except ValueError as error:
        raise KubeletStartError(f"unable to parse reserved-cpus list: {error}") from error
    if cpus & ~all_cpus:
        raise KubeletStartError(f"reserved-cpus: {text} is not a subset of online-cpus: {format_cpuset(all_cpus)}")
    return cpus


def _reserved_count(config: KubeletConfig) -> int:
    if config.reserved_cpu_millis <= 0:
        raise KubeletStartError(
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
        )
    return -(-config.reserved_cpu_millis // _MILLI)


def reserve(node: KubeletNode, explicit_cpus: CpuSet, count: int) -> CpuSet:
    """The reserved CPUs: those named, or ``count`` as any container would get them. Raises `KubeletStartError`."""
    reserved = explicit_cpus or _choose_reserved(node, count)
    if reserved.bit_count() != count:
        raise KubeletStartError(
            "[cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {format_cpuset(reserved)} did not equal {count})"
        )
    return reserved


def _choose_reserved(node: KubeletNode, count: int) -> CpuSet:
    config = node.config
    switches = behaviour(config.parsed_version)
    try:
        return take_cpus(switches, config.cpu_options, topology_of(node), node.machine.all_cpus, count)
    except NotTakenError:
        return 0


def validate_saved(node: KubeletNode, reserved: CpuSet, saved: CpuState) -> CpuState:
    """The saved state with these reserved CPUs, or a fresh one when it is empty.

    Raises `KubeletStartError` when it does not fit the machine (validateState): the administrator then drains the node
    and removes the file.

    With strict-cpu-reservation that happens to a kubelet, too, whose containers hold every CPU that is not reserved:
    its shared pool is empty, which it takes for a damaged file."""
    is_strict = node.config.cpu_options.strict_cpu_reservation
    usable = node.machine.all_cpus & ~(reserved if is_strict else 0)
    if not saved.default:
        if saved.exclusive:
            raise KubeletStartError("default cpuset cannot be empty")
        return CpuState(default=usable, reserved=reserved)
    _check_reserved(reserved, saved.default, is_strict=is_strict)
    _check_exclusive(saved)
    _check_all_known(usable, saved)
    return CpuState(default=saved.default, reserved=reserved, exclusive=saved.exclusive)


def _check_reserved(reserved: CpuSet, default: CpuSet, *, is_strict: bool) -> None:
    if is_strict and reserved & default:
        raise KubeletStartError(
            f'some of strictly reserved cpus: "{format_cpuset(reserved & default)}" '
            f'are present in defaultCpuSet: "{format_cpuset(default)}"'
        )
    if not is_strict and reserved & ~default:
        raise KubeletStartError(
            f'not all reserved cpus: "{format_cpuset(reserved)}" '
            f'are present in defaultCpuSet: "{format_cpuset(default)}"'
        )


def _check_exclusive(saved: CpuState) -> None:
    for (pod, container), cpus in saved.exclusive.items():
        if cpus & saved.default:
            raise KubeletStartError(
                f'pod: {pod}, container: {container} cpuset: "{format_cpuset(cpus)}" '
                f'overlaps with default cpuset "{format_cpuset(saved.default)}"'
            )


def _check_all_known(usable: CpuSet, saved: CpuState) -> None:
    known = saved.default
    for cpus in saved.exclusive.values():
        known |= cpus
    if known != usable:
        raise KubeletStartError(
            f'current set of available CPUs "{format_cpuset(usable)}" '
            f'doesn\'t match with CPUs in state "{format_cpuset(known)}"'
        )
