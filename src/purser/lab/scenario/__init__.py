"""Scenarios of the lab: a YAML file says which nodes there are, what happens, and what must then be so.

`spec` is the file's form, `describe` names steps for people, `objects` writes manifests, `probes` looks, `steps` does,
`runner` goes through a file and gives a verdict per step.
"""

from purser.lab.scenario.runner import StepVerdict, run_scenario
from purser.lab.scenario.spec import Scenario, ScenarioError, load

__all__ = ["Scenario", "ScenarioError", "StepVerdict", "load", "run_scenario"]
