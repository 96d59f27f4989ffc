"""`purser webhook`: the webhook configurations, for clusters without the Helm chart."""

from typing import TYPE_CHECKING

import typer

from purser.cli.from_settings import settings_command
from purser.cli.groups import CommandGroup
from purser.cli.scheduler import SETTINGS

if TYPE_CHECKING:
    from purser.scheduler.settings import SchedulerSettings

app = typer.Typer(
    cls=CommandGroup,
    name="webhook",
    help="Print the webhook configurations, for installations without the Helm chart."
    "\n\nExample: purser webhook manifest | kubectl apply -f -",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def webhook() -> None:
    """The webhook configurations."""


@settings_command(
    app,
    "manifest",
    SETTINGS,
    only=frozenset({"namespace", "webhook-service", "webhook-url", "webhook-failure-policy"}),
)
def manifest(settings: "SchedulerSettings") -> None:
    """Print both webhook configurations. Once you apply them, the scheduler adds the CA of its certificate.

    Use the same options as for `purser scheduler`. The policies that restrict each agent's account to its own node are
    not included, because only the Helm chart installs them.

    Exit code: 0 the configurations are printed; 2 wrong usage.

    Example: purser webhook manifest --webhook-url 127.0.0.1:8443 | kubectl apply -f -
    """
    from purser.scheduler.webhook import mutating_configuration, validating_configuration
    from purser.yaml_text import yaml_text

    webhook = settings.webhook
    assert webhook is not None, "this command always has a webhook"
    found = (mutating_configuration(webhook, webhook.target), validating_configuration(webhook, webhook.target))
    print("---\n".join(yaml_text(each) for each in found), end="")
