"""The kit against Purser's own agent, started as on a node: a real process, a driver library, a cluster with a pod."""

import shlex
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
from tests.tiers import IS_LONG
from tests.unit.agent.builders import NODE, part
from tests.unit.agent.conftest import World
from tests.unit.kube.servers import api_server

from purser.core.names import DEFAULT_NAMESPACE
from purser.kube.resources import NAMESPACES
from purser.lab.conformance import CheckOutcome, PodName, Settings, run, select
from purser.lab.driver import DriverKind, SimulatedDriver

pytestmark = pytest.mark.processes

DAILY = ("register*", "list*", "preferred*", "allocate*", "reregister")
ON_HEALTH = ("list-complete", "allocate-unhealthy")
CHECKS = select() if IS_LONG else select(DAILY, ON_HEALTH)
LOSE_A_CARD = (
    "from pathlib import Path; from purser.lab.driver import SimulatedDriver;"
    " SimulatedDriver(Path({folder!r})).lose_gpu(3)"
)


@pytest.fixture
def folder():
    """Short: a unix socket's path has at most 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="pa"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def driver(folder):
    driver = SimulatedDriver.create(folder / "driver", NODE, "t4-4")
    if driver.kind is not DriverKind.LIBRARY:
        pytest.skip("no C compiler for the simulated NVIDIA library")
    return driver


def agent_command(folder, driver):
    options = {
        "node-name": NODE,
        "kubeconfig": folder / "kubeconfig",
        "slots": 4,
        "device-plugin-dir": "{dir}",
        "pod-resources-socket": "{pod_resources}",
        "state-dir": folder / "state",
        "host-root": folder / "host",
        "driver-library": driver.library,
        "sysfs-root": driver.sysfs_root,
        "metrics-address": "127.0.0.1",
        "metrics-port": 0,
    }
    program = str(Path(sys.executable).with_name("purser"))
    return (program, "agent", "run", *(f"--{name}={value}" for name, value in options.items()))


def bad(report):
    return {
        verdict.check.id: f"{verdict.check.id}: {verdict.outcome}: {verdict.reason}"
        for verdict in report.verdicts
        if verdict.outcome is not CheckOutcome.PASSED
    }


@pytest.mark.gate
async def test_pursers_agent_passes_everything(folder, driver):
    async with api_server(folder / "kubeconfig") as (_, client):
        await client.create(NAMESPACES, {"metadata": {"name": DEFAULT_NAMESPACE}})
        world = World(folder, client, driver)
        await world.prepare()
        await world.pod("p", part("main", *world.uuids[:2]))
        lose = f"{shlex.quote(sys.executable)} -c {shlex.quote(LOSE_A_CARD.format(folder=str(driver.folder)))}"
        settings = Settings(
            command=agent_command(folder, driver),
            timeout_s=30,
            observe_s=0.2,
            size=2,
            pod=PodName("default", "p", "main"),
            unhealthy_command=lose,
            log=folder / "agent.log",
        )
        report = await run(settings, CHECKS)
    # A card that comes back is trusted after three good probes, half a minute: the one that is skipped.
    assert set(bad(report)) == {"health-back"} & {check.id for check in CHECKS}, "\n".join(bad(report).values())
    assert report.resource == "nvidia.com/gpu"
