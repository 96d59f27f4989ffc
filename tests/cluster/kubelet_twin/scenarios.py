"""The scenarios, in groups of one configuration of kubelet each: every group is a start of the real one."""

from dataclasses import replace
from pathlib import Path

from .plugin import Script
from .steps import (
    NOT_ALIGNED,
    NOT_ALLOCATED,
    Add,
    AskNewer,
    CannotBeCreated,
    Register,
    Restart,
    Runs,
    Scenario,
    Start,
    Stop,
    StopDuringAllocate,
    c,
    change,
    remove,
    scenario,
    together,
)

STATIC = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
OUT_OF_CPU = "OutOfcpu"


def gpus(*numbers: int) -> tuple[str, ...]:
    return tuple(f"gpu-{n}" for n in numbers)


def nics(*numbers: int) -> tuple[str, ...]:
    return tuple(f"nic-{n}" for n in numbers)


FOUR = Script(healthy=gpus(0, 1, 2, 3))
TWO_NICS = Script(healthy=nics(0, 1))
UNPREFERRED = replace(FOUR, preferred=False)
PRE_START = replace(FOUR, pre_start=True)


def corrupt(checkpoint: Path) -> None:
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b'"Checksum":', b'"Checksum":1'))


DEVICES = (
    scenario(
        "pods of none to several devices, and more than are left",
        Start("gpu", FOUR),
        Add("none", (c(),)),
        Add("zero", (c(0),)),
        Add("one", (c(1),), runs=True),
        Add("two", (c(2),)),
        Add("many", (c(2),), refused=NOT_ALLOCATED),
        Add("last", (c(1),)),
        Add("late", (c(1),), refused=NOT_ALLOCATED),
        remove("two"),
        Add("again", (c(1), c(1))),
        Add("five", (c(5),), refused=NOT_ALLOCATED),
    ),
    scenario(
        "a plugin that prefers nothing",
        Start("gpu", UNPREFERRED),
        Add("one", (c(1),)),
        Add("two", (c(2),)),
        Add("many", (c(2),), refused=NOT_ALLOCATED),
        remove("one"),
        Add("rest", (c(2),)),
        ids_matter=False,
    ),
    scenario(
        "devices without topology, and with one that names no node",
        Start("gpu", replace(FOUR, numa=None)),
        Start("nic", replace(TWO_NICS, numa=())),
        Add("gpu", (c(2),)),
        Add("nic", (c(nic=1),)),
    ),
    scenario(
        "two resources in one container, and in two",
        Start("gpu", FOUR),
        Start("nic", TWO_NICS),
        Add("both", (c(2, 1),), runs=True),
        Add("apart", (c(1), c(nic=1))),
        Add("nic-fails", (c(1), c(nic=1)), refused=NOT_ALLOCATED),
        Add("after", (c(1),)),
    ),
    scenario(
        "a resource that nobody has",
        Start("gpu", FOUR),
        Add("absent", (c(1, absent=1),), runs=True),
    ),
    scenario(
        "init containers whose devices the containers take",
        Start("gpu", FOUR),
        Add("same", (c(2),), init=(c(2),), runs=True),
        Add("more", (c(2),), init=(c(1),)),
        remove("same", "more"),
        Add("chain", (c(3),), init=(c(1), c(2))),
        Add("full", (c(2),), init=(c(1),), refused=NOT_ALLOCATED),
        Add("left", (c(1),)),
        remove("chain", "left"),
        Add("none-left", (c(1),), init=(c(5),), refused=NOT_ALLOCATED),
        Add("apps", (c(2), c(2)), init=(c(4), c(4))),
        ids_matter=False,
    ),
    scenario(
        "init containers smaller than the container: which devices it gets is decided",
        Start("gpu", FOUR),
        Add("more", (c(2),), init=(c(1),)),
        Add("same", (c(2),), init=(c(2),)),
        remove("more"),
        Add("chain", (c(2),), init=(c(1), c(1), c(1))),
    ),
    scenario(
        "devices become unhealthy, come back, and are replaced",
        Start("gpu", FOUR),
        Add("held", (c(2),)),
        change("gpu", healthy=gpus(0, 2, 3), unhealthy=gpus(1)),
        Add("three", (c(3),), refused=NOT_ALLOCATED),
        Add("two", (c(2),)),
        remove("held"),
        Add("healthy", (c(2),), refused=NOT_ALLOCATED),
        change("gpu", healthy=gpus(0, 1, 2, 3), unhealthy=()),
        Add("back", (c(2),)),
        change("gpu", healthy=gpus(4, 5, 6, 7)),
        Add("new", (c(4),)),
        change("gpu", healthy=(), unhealthy=gpus(4, 5)),
        Add("nothing", (c(1),), refused=NOT_ALLOCATED),
        change("gpu", healthy=()),
        change("gpu", healthy=(), unhealthy=()),
    ),
    scenario(
        "Allocate and GetPreferredAllocation fail",
        Start("gpu", replace(FOUR, allocate_error="no such card")),
        Add("fails", (c(1),), refused=NOT_ALLOCATED),
        change("gpu", allocate_error=""),
        Add("works", (c(1),)),
        change("gpu", preferred_error="cannot choose"),
        Add("undecided", (c(1),), refused=NOT_ALLOCATED),
        Add("rest", (c(3),), refused=NOT_ALLOCATED),
        change("gpu", preferred_error="", answers_nothing=True),
        Add("nothing", (c(1),), refused=NOT_ALLOCATED),
        change("gpu", answers_nothing=False),
        Add("lost", (c(3),), refused=NOT_ALLOCATED),
        Add("after", (c(2),)),
    ),
    scenario(
        "the devices of the first container stay taken when the second fails",
        Start("gpu", FOUR),
        Start("nic", replace(TWO_NICS, allocate_error="no link")),
        Add("half", (c(2), c(nic=1)), refused=NOT_ALLOCATED),
        Add("full", (c(4),)),
    ),
    scenario(
        "a preference that is too long, too short or foreign",
        Start("gpu", replace(FOUR, prefers=gpus(3, 2, 1, 0))),
        Add("long", (c(1),)),
        change("gpu", prefers=()),
        Add("short", (c(1),)),
        change("gpu", prefers=gpus(7, 8)),
        Add("foreign", (c(1),)),
        ids_matter=False,
    ),
    scenario(
        "PreStartContainer fails, and then the plugin is gone",
        Start("gpu", replace(PRE_START, pre_start_error="cannot reset")),
        Add("blocked", (c(1),), blocked=True),
        Add("none", (c(),), runs=True),
        together(change("gpu", pre_start_error=""), Runs("blocked")),
        change("gpu", pre_start_error="cannot reset"),
        Add("again", (c(1),), blocked=True),
        together(Stop("gpu"), CannotBeCreated("again", "stopped")),
    ),
    scenario(
        "a limit of zero where PreStartContainer is wanted",
        Start("gpu", PRE_START),
        Add("zero", (c(0),), starts=True),
    ),
    scenario(
        "a plugin starts again with other devices and other options",
        Start("gpu", FOUR),
        Add("before", (c(2),)),
        Stop("gpu"),
        Start("gpu", Script(healthy=gpus(0, 1, 2), preferred=False)),
        Add("more", (c(2),), refused=NOT_ALLOCATED),
        Add("last", (c(1),)),
    ),
    scenario(
        # Kubelets from 1.25 to 1.36 end the second plugin when the first one ends.
        "a plugin registers before the one before it has ended",
        Start("gpu", FOUR),
        Add("before", (c(1),)),
        Start("gpu", Script(healthy=gpus(0, 1, 2)), socket="-second"),
        Add("more", (c(4),), refused=NOT_ALLOCATED),
        Start("gpu", FOUR),
        Add("rest", (c(3),)),
    ),
    scenario(
        "a plugin that went away and comes back",
        Start("gpu", FOUR),
        Add("before", (c(1),), runs=True),
        Stop("gpu"),
        Add("away", (c(1),), refused=NOT_ALLOCATED),
        Add("none", (c(),)),
        Start("gpu", FOUR),
        Add("back", (c(2),)),
    ),
    scenario(
        "a plugin goes away in the midst of an admission",
        Start("gpu", FOUR),
        Start("nic", TWO_NICS),
        StopDuringAllocate("nic", "gpu"),
        Add("cut", (c(nic=1), c(1)), init=(c(1),), refused=NOT_ALLOCATED),
        Start("gpu", FOUR),
        change("nic", during_allocate=None),
        Add("after", (c(4),)),
    ),
    scenario(
        "a plugin that kubelet finds by its socket",
        Start("gpu", FOUR, by_watcher=True),
        Add("found", (c(1),)),
        Stop("gpu"),
        Add("away", (c(1),), refused=NOT_ALLOCATED),
    ),
    scenario(
        "registrations that are refused, and calls that not every version has",
        Start("gpu", Script(healthy=gpus(0, 1, 2), unhealthy=gpus(3))),
        Register("twin.test/gpu", version="v1"),
        Register("gpu"),
        Register("kubernetes.io/gpu"),
        Register("requests.twin.test/gpu"),
        Register("twin.test/g pu"),
        AskNewer(),
    ),
    scenario(
        "kubelet starts again while pods run",
        Start("gpu", FOUR),
        Add("one", (c(1),), runs=True),
        Add("two", (c(2),), runs=True),
        Add("full", (c(2),), refused=NOT_ALLOCATED),
        Restart(),
        Add("away", (c(1),), refused=NOT_ALLOCATED),
        Start("gpu", FOUR),
        Add("last", (c(1),)),
        Add("late", (c(1),), refused=NOT_ALLOCATED),
        remove("one"),
        Add("again", (c(1),), runs=True),
    ),
    scenario(
        # Newer kubelets refuse the pod: an init container that has ended does not run.
        "kubelet starts again while a pod runs whose init container held a device",
        Start("gpu", FOUR),
        Add("main", (c(1),), init=(c(1),), runs=True),
        Restart(),
        Start("gpu", FOUR),
        Add("next", (c(1),)),
    ),
    scenario(
        "kubelet starts again with a corrupt checkpoint",
        Start("gpu", FOUR),
        Add("one", (c(1),), runs=True),
        Restart(edit=corrupt),
        # It runs before the plugin is back: a container that starts later gets devices all the same.
        Add("away", (c(1),), runs=True),
        Start("gpu", FOUR),
        Add("twice", (c(1),)),
    ),
    scenario(
        "a plugin that registers between the admission of a pod and the start of its container",
        Restart(edit=Path.unlink),
        Start("nic", replace(TWO_NICS, pre_start=True, pre_start_error="cannot reset")),
        Add("early", (c(1, nic=1),), blocked=True),
        together(Start("gpu", FOUR), change("nic", pre_start_error=""), Runs("early")),
        Add("next", (c(1),), runs=True),
        remove("early"),
        Add("all", (c(3),)),
    ),
    scenario(
        # Its socket is left: where nothing is, it is chance whether kubelet sets the node's devices to 0.
        "kubelet starts again without its checkpoint",
        Start("gpu", FOUR),
        Add("one", (c(1),), runs=True),
        Restart(edit=Path.unlink),
        Start("gpu", FOUR),
        Add("twice", (c(1),)),
    ),
)

CPUS = (
    scenario(
        "exclusive CPUs, and none left",
        Start("gpu", FOUR),
        Add("shared", (c(cpu="100m"),)),
        remove("shared"),
        Add("one", (c(1, cpu="1"),), runs=True),
        Add("half", (c(cpu="100m"),), refused=OUT_OF_CPU),
        Add("burst", (c(cpu="1", requests_cpu="500m"),), refused=OUT_OF_CPU),
        Add("best-effort", (c(1),)),
        Add("second", (c(1, cpu="1"),), refused=NOT_ALLOCATED),
        Add("devices-first", (c(2),)),
        Add("two", (c(cpu="2"),), refused=NOT_ALLOCATED),
        remove("one"),
        Add("again", (c(cpu="1"),), runs=True),
    ),
    scenario(
        "exclusive CPUs of an init container are the container's",
        Start("gpu", FOUR),
        Add("same", (c(1, cpu="1"),), init=(c(1, cpu="1"),), runs=True),
        remove("same"),
        Add("two", (c(cpu="1"), c(cpu="1")), refused=NOT_ALLOCATED),
        Add("after", (c(cpu="1"),)),
    ),
    scenario(
        "no CPUs of its own for a pod with amounts at pod level",
        Start("gpu", FOUR),
        Add("whole", (c(1, cpu="1"),), whole_cpu="1"),
    ),
    scenario(
        "kubelet starts again and exclusive CPUs stay",
        Start("gpu", FOUR),
        Add("one", (c(1, cpu="1"),), runs=True),
        Restart(),
        Add("second", (c(cpu="1"),), refused=NOT_ALLOCATED),
        Start("gpu", FOUR),
        Add("gpu", (c(3),)),
    ),
)

ALIGNED = scenario(
    "everything from one NUMA node",
    Start("gpu", replace(FOUR, healthy=gpus(*range(7)))),
    Start("nic", TWO_NICS),
    Add("one", (c(2, 1, cpu="1"),)),
    Add("two", (c(1), c(2, 1)), init=(c(1),)),
    Add("all", (c(2),)),
)


def shortage(reason: str) -> Scenario:
    """What is refused for another reason where the policy insists on NUMA nodes."""
    return scenario(
        "more than there is, of devices and of CPUs",
        Start("gpu", FOUR),
        Start("nic", replace(TWO_NICS, numa=None)),
        Add("five", (c(5),), refused=reason),
        Add("cpus", (c(1, cpu="2"),), refused=reason),
        Add("nics", (c(nic=3),), refused=NOT_ALLOCATED),
        Add("one", (c(1, cpu="1"),)),
        Add("exclusive", (c(1, cpu="1"),), refused=reason),
        Add("second", (c(2), c(2)), refused=reason),
        Add("rest", (c(3, 2),)),
        Add("late", (c(1),), refused=reason),
        change("gpu", healthy=(), unhealthy=gpus(0, 1, 2, 3)),
        remove("rest"),
        Add("unhealthy", (c(1),), refused=reason),
    )


def restarted(reason: str) -> Scenario:
    return scenario(
        "kubelet starts again while aligned pods run",
        Start("gpu", FOUR),
        Add("one", (c(2, cpu="1"), c(1)), runs=True),
        Restart(),
        Add("away", (c(1),), refused=NOT_ALLOCATED),
        Start("gpu", FOUR),
        Add("two", (c(2),), refused=reason),
        Add("last", (c(1),)),
    )


def grouped(config: dict[str, str], *scenarios: Scenario) -> list[Scenario]:
    return [replace(each, config=config) for each in scenarios]


def policy(name: str, scope: str) -> dict[str, str]:
    return {**STATIC, "topologyManagerPolicy": name, "topologyManagerScope": scope}


SCENARIOS = [
    *grouped({}, *DEVICES),
    *grouped(STATIC, *CPUS),
    *grouped(policy("best-effort", "container"), ALIGNED, shortage(NOT_ALLOCATED)),
    *grouped(policy("best-effort", "pod"), ALIGNED, shortage(NOT_ALLOCATED)),
    *grouped(policy("restricted", "container"), ALIGNED, shortage(NOT_ALIGNED), restarted(NOT_ALIGNED)),
    *grouped(policy("restricted", "pod"), ALIGNED, shortage(NOT_ALIGNED)),
    *grouped(policy("single-numa-node", "container"), ALIGNED, shortage(NOT_ALIGNED)),
    *grouped(policy("single-numa-node", "pod"), ALIGNED, shortage(NOT_ALIGNED)),
]
