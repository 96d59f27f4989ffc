"""kubelet's start: options it refuses, CPUs it reserves, saved states it does not trust."""

import msgspec
import pytest
from tests.unit.core.kubelet.cpumanager.machines import machine, node

from purser.core.kubelet.config import CpuOptions, CpuPolicy, KubeletConfig, TopologyPolicy
from purser.core.kubelet.cpumanager import start
from purser.core.kubelet.cpuset import parse_cpuset
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.state import CpuState, KubeletNode

ONE_SOCKET = machine()
"""CPUs 0-7: core n has CPUs n and n + 4."""


def by_count(millis: int, version: str = "v1.36.2", **options: bool) -> KubeletNode:
    config = KubeletConfig(
        version=version, cpu_policy=CpuPolicy.STATIC, cpu_options=CpuOptions(**options), reserved_cpu_millis=millis
    )
    return KubeletNode(config, ONE_SOCKET)


def refusal(node: KubeletNode, saved: CpuState | None = None) -> str:
    with pytest.raises(KubeletStartError) as raised:
        start(node, saved)
    return str(raised.value)


def test_a_machine_whose_cpus_nobody_knows_is_refused() -> None:
    assert refusal(node(Machine())) == "could not detect number of cpus"


def test_policy_none_has_no_state() -> None:
    assert start(KubeletNode(KubeletConfig(), ONE_SOCKET), CpuState(default=1, reserved=1)) is None


def test_strict_reservation_keeps_reserved_cpus_out_of_the_shared_pool() -> None:
    strict = node(ONE_SOCKET, reserved="0,4", strict_cpu_reservation=True)
    assert start(strict) == CpuState(default=0xFF & ~0b10001, reserved=0b10001)


@pytest.mark.parametrize("version", ["v1.20.2", "v1.36.2"])
@pytest.mark.parametrize(("millis", "reserved"), [(1, "0"), (1000, "0"), (1001, "0,4"), (2500, "0-1,4")])
def test_reserved_cpus_are_picked_as_for_a_container(version: str, millis: int, reserved: str) -> None:
    state = start(by_count(millis, version))
    assert state is not None
    assert state.reserved == parse_cpuset(reserved)


def test_without_reserved_cpus_kubelet_does_not_start() -> None:
    assert refusal(by_count(0)) == (
        "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero"
    )


def test_more_cannot_be_reserved_than_there_is() -> None:
    assert refusal(by_count(9000)) == (
        "[cpumanager] unable to reserve the required amount of CPUs (size of  did not equal 9)"
    )


def test_reserved_cpus_must_exist_and_be_a_list() -> None:
    assert refusal(node(ONE_SOCKET, reserved="7-8")) == "reserved-cpus: 7-8 is not a subset of online-cpus: 0-7"
    assert refusal(node(ONE_SOCKET, reserved="x")).startswith("unable to parse reserved-cpus list: invalid value 'x'")


@pytest.mark.parametrize(
    ("option", "version"),
    [
        ("full_pcpus_only", "v1.21.0"),
        ("distribute_cpus_across_numa", "v1.22.17"),
        ("align_by_socket", "v1.24.0"),
        ("distribute_cpus_across_cores", "v1.30.0"),
        ("strict_cpu_reservation", "v1.31.0"),
        ("prefer_align_cpus_by_uncorecache", "v1.31.0"),
    ],
)
def test_an_option_is_unknown_to_older_kubelets(option: str, version: str) -> None:
    name = option.replace("_", "-")
    assert refusal(node(ONE_SOCKET, version=version, **{option: True})) == (
        f'unknown CPU Manager Policy option: "{name}"'
    )
    next_minor = f"v1.{int(version.split('.')[1]) + 1}.0"
    assert start(node(ONE_SOCKET, version=next_minor, **{option: True})) is not None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("full-pcpus-only", "distribute-cpus-across-cores"),
        ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
        ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
    ],
)
def test_some_options_exclude_one_another(one: str, other: str) -> None:
    options = {name.replace("-", "_"): True for name in (one, other)}
    assert refusal(node(ONE_SOCKET, **options)) == (
        f"static policy options {one} and {other} can not be used at the same time"
    )


def test_aligning_by_socket_excludes_single_numa_node_and_sockets_without_a_node() -> None:
    by_socket = node(ONE_SOCKET, align_by_socket=True)
    single = msgspec.structs.replace(by_socket.config, topology_policy=TopologyPolicy.SINGLE_NUMA_NODE)
    assert "single-numa-node policy is incompatible" in refusal(KubeletNode(single, ONE_SOCKET))
    two_sockets = msgspec.structs.replace(ONE_SOCKET, num_sockets=2)
    assert "number of sockets are more than number of NUMA" in refusal(KubeletNode(by_socket.config, two_sockets))


@pytest.mark.parametrize(
    ("default", "exclusive", "message"),
    [
        ("", {"c": "1"}, "default cpuset cannot be empty"),
        ("1-7", {}, 'not all reserved cpus: "0" are present in defaultCpuSet: "1-7"'),
        ("0-6", {"c": "6-7"}, 'pod: p, container: c cpuset: "6-7" overlaps with default cpuset "0-6"'),
        ("0-5", {"c": "7"}, 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-5,7"'),
        ("0-8", {}, 'current set of available CPUs "0-7" doesn\'t match with CPUs in state "0-8"'),
    ],
    ids=["empty pool", "reserved CPU given away", "overlap", "CPU missing", "CPU too many"],
)
def test_a_saved_state_that_does_not_fit_is_refused(default: str, exclusive: dict[str, str], message: str) -> None:
    held = {("p", name): parse_cpuset(cpus) for name, cpus in exclusive.items()}
    assert refusal(node(ONE_SOCKET), CpuState(parse_cpuset(default), 0, held)) == message


def test_a_state_saved_before_strict_reservation_is_refused_with_it() -> None:
    strict = node(ONE_SOCKET, strict_cpu_reservation=True)
    assert refusal(strict, CpuState(default=0xFF, reserved=1)) == (
        'some of strictly reserved cpus: "0" are present in defaultCpuSet: "0-7"'
    )


def test_with_strict_reservation_kubelet_cannot_restart_once_every_other_cpu_is_taken() -> None:
    strict = node(ONE_SOCKET, strict_cpu_reservation=True)
    assert refusal(strict, CpuState(0, 0, {("p", "c"): 0xFE})) == "default cpuset cannot be empty"


def test_a_saved_state_keeps_its_containers_and_gets_the_reserved_cpus_of_today() -> None:
    saved = CpuState(default=0xF1, reserved=0, exclusive={("p", "c"): 0x0E})
    assert start(node(ONE_SOCKET, reserved="0"), saved) == CpuState(0xF1, 1, saved.exclusive)
