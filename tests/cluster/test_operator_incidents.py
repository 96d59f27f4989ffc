"""The operator's incidents on a real control plane: those in which its controllers, eviction or server have a say."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from purser.lab.cluster import Lab
from purser.lab.controlplane.programs import Programs
from purser.lab.scenario import StepVerdict, load, run_scenario
from tests.conftest import log_plainly

from .test_lab_on_real_control_plane import API_SERVER, EVERYTHING, EXAMPLES, folder_of

pytestmark = pytest.mark.timeout(900)  # the first test waits for all

JUDGES = {
    "foreign-cordon": EVERYTHING,  # node lifecycle
    "idle-gpu-pods": EVERYTHING,  # evictions, and the Deployments that recreate what left
    "driver-leaves-last": EVERYTHING,  # finalizers and the collector of garbage
    "untolerated-taint": EVERYTHING,  # DaemonSets' own tolerations
    "another-operator": EVERYTHING,  # a definition of others, which the server has to accept
    "new-kinds-of-nodes": API_SERVER,  # stand-ins control a real API server alone
}
"""Incidents, and what is real of the control plane. All there are run with stand-ins, in tests/lab."""
AT_ONCE = 3
"""They wait more than they work."""


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[StepVerdict] | Exception]]:
    """By incident: a verdict for each step up to the first that fails, or why there are none."""
    folder = tmp_path_factory.mktemp("programs")
    programs = {name: Programs.find(folder_of(folder / name, judges)) for name, judges in JUDGES.items()}
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield asyncio.run(all_of_them(programs))
    log_plainly()


async def all_of_them(programs: dict[str, Programs]) -> dict[str, list[StepVerdict] | Exception]:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(name: str) -> list[StepVerdict] | Exception:
        async with gate:
            try:
                return await incident(name, programs[name])
            except Exception as error:  # of one, which the others' tests are not to fail for
                return error

    return dict(zip(programs, await asyncio.gather(*map(one, programs)), strict=True))


async def incident(name: str, programs: Programs) -> list[StepVerdict]:
    loaded = load(path_of(name))
    async with Lab(replace(loaded.settings, programs=programs)) as lab:
        async with asyncio.timeout(180):
            await lab.ready()
        return [verdict async for verdict in run_scenario(lab, loaded)]


def path_of(name: str) -> Path:
    return EXAMPLES / "scenarios" / "operator" / f"{name}.yaml"


@pytest.mark.parametrize("name", JUDGES)
def test_an_incident_ends_well_on_a_real_control_plane(
    name: str, verdicts: dict[str, list[StepVerdict] | Exception]
) -> None:
    found = verdicts[name]
    if isinstance(found, Exception):
        raise found
    assert [f"{each.step}: {each.problem}" for each in found if each.problem] == []
    assert len(found) == len(load(path_of(name)).scenario.steps)
