"""Goes through a scenario, step by step, until one fails."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from purser.kube.errors import KubeError
from purser.lab.cluster import Lab
from purser.lab.scenario.describe import describe
from purser.lab.scenario.never_rules import NeverRules
from purser.lab.scenario.spec import LoadedScenario, ScenarioError, Step
from purser.lab.scenario.steps import StepFailed, run_step


@dataclass(frozen=True)
class StepVerdict:
    """How one step came out."""

    number: int
    of: int
    step: str
    seconds: float
    problem: str = ""
    """Empty: as it should be."""


async def run_scenario(lab: Lab, loaded: LoadedScenario) -> AsyncIterator[StepVerdict]:
    """A verdict per step, ending after the first that failed. ``lab`` is ready and has the scenario's nodes."""
    scenario = loaded.scenario
    deadline = time.monotonic() + scenario.deadline_s
    async with NeverRules(lab.client) as rules:
        for number, step in enumerate(scenario.steps, 1):
            start = time.monotonic()
            problem = await _problem(lab, step, loaded, deadline - start, rules)
            yield StepVerdict(number, len(scenario.steps), describe(step), time.monotonic() - start, problem)
            if problem:
                return


async def _problem(lab: Lab, step: Step, loaded: LoadedScenario, left_s: float, rules: NeverRules) -> str:
    # A second more than the step's own limit: the step itself says better what is missing.
    limit_s = max(0.0, min(step.within_s + 1, left_s))
    try:
        async with asyncio.timeout(limit_s):
            await run_step(lab, step, loaded.path.parent, rules)
    except TimeoutError:
        whole = left_s < step.within_s + 1
        return (
            f"the scenario's deadline of {loaded.scenario.deadline_s:g} s has passed"
            if whole
            else "the step took too long"
        )
    except (StepFailed, ScenarioError, KubeError) as error:
        # What was and must never have been is often why something else did not come about.
        return "; ".join(dict.fromkeys(filter(None, (str(error), rules.broken()))))
    return ""
