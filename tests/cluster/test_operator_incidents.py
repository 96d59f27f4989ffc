"""The operator's incidents on a real control plane: its DaemonSet controller, eviction and scheduler are the judge.

Not driver-in-use: it writes a budget of policy/v1, which the oldest supported Kubernetes does not serve.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import structlog

from purser.lab.cluster import Lab
from purser.lab.controlplane.programs import Programs
from purser.lab.scenario import load, run_scenario

from .test_lab_on_real_control_plane import API_SERVER, EVERYTHING, EXAMPLES, folder_of

INCIDENTS = sorted(
    path for path in (EXAMPLES / "scenarios" / "operator").glob("*.yaml") if path.stem != "driver-in-use"
)


@pytest.fixture(autouse=True)
def quiet_logs() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("path", INCIDENTS, ids=lambda path: path.stem)
async def test_an_incident_ends_well_on_a_real_control_plane(path: Path, tmp_path: Path) -> None:
    await incident(path, folder_of(tmp_path / "all", EVERYTHING))


async def test_stand_ins_control_a_real_api_server_alone(tmp_path: Path) -> None:
    await incident(
        EXAMPLES / "scenarios" / "operator" / "new-kinds-of-nodes.yaml", folder_of(tmp_path / "api", API_SERVER)
    )


async def incident(path: Path, assets: Path) -> None:
    loaded = load(path)
    async with Lab(replace(loaded.settings, programs=Programs.find(assets))) as lab:
        async with asyncio.timeout(120):
            await lab.ready()
        verdicts = [verdict async for verdict in run_scenario(lab, loaded)]
    assert [f"{each.step}: {each.problem}" for each in verdicts if each.problem] == []
    assert len(verdicts) == len(loaded.scenario.steps)
