"""What users of other operators suffered from, replayed in the lab: each incident ends in a verdict per step."""

import asyncio
import logging
from pathlib import Path

import pytest
import structlog

from purser.lab.cluster import Lab
from purser.lab.scenario import load, run_scenario
from tests import waiting
from tests.conftest import log_plainly

INCIDENTS = sorted((Path(__file__).parents[2] / "examples" / "scenarios" / "operator").glob("*.yaml"))
AT_ONCE = 4
"""Incidents wait more than they work: several labs at once take no longer than the longest."""
pytestmark = [pytest.mark.gate, pytest.mark.xdist_group("incidents")]  # whichever process runs one has run them all


@pytest.fixture(scope="module")
def verdicts():
    """By file: the verdicts, one per step up to the first that fails."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield asyncio.run(_all_of_them())
    log_plainly()


async def _all_of_them():
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(path):
        async with gate, Lab(load(path).settings) as lab:
            async with waiting.limit():
                await lab.ready()
            return [verdict async for verdict in run_scenario(lab, load(path))]

    return dict(zip(INCIDENTS, await asyncio.gather(*map(one, INCIDENTS)), strict=True))


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.stem)
def test_an_incident_of_other_operators_ends_well_here(path, verdicts):
    found = verdicts[path]
    assert [f"{each.step}: {each.problem}" for each in found if each.problem] == []
    assert len(found) == len(load(path).scenario.steps)
