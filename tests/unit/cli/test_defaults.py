"""The options' defaults are those of the settings they fill."""

import inspect
from dataclasses import fields

from purser.agent.settings import AgentSettings
from purser.cli.agent import agent
from purser.cli.scheduler import scheduler
from purser.scheduler.settings import SchedulerSettings, WebhookSettings


def defaults(command: object) -> dict[str, object]:
    return {name: each.default for name, each in inspect.signature(command).parameters.items()}  # type: ignore[arg-type]


def test_the_agents_options_default_to_its_settings() -> None:
    options = defaults(agent)
    options["metrics_host"] = options.pop("metrics_address")
    settings = AgentSettings(node_name="n")
    same = [field.name for field in fields(settings) if field.name in options and field.name != "node_name"]
    assert len(same) >= 9
    for name in same:
        assert options[name] == getattr(settings, name), name


def test_the_schedulers_options_default_to_its_settings() -> None:
    options, settings, webhook = defaults(scheduler), SchedulerSettings(), WebhookSettings()
    assert options["namespace"] == settings.namespace
    for name in (
        "webhook_address",
        "webhook_port",
        "extender_address",
        "extender_port",
        "metrics_address",
        "metrics_port",
    ):
        assert options[name] == getattr(settings.server, name), name
    policy = settings.policy
    assert (options["node_policy"], options["gpu_policy"]) == (policy.node, ",".join(policy.gpu))
    assert options["authority"] == policy.authority
    assert options["nodes_to_score"] == policy.nodes_to_score
    assert options["webhook_failure_policy"] == webhook.failure_policy
