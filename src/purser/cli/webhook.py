"""`purser webhook`: the webhook configurations, for clusters without the Helm chart."""

from typing import Annotated

import typer

from purser.cli.scheduler import FailurePolicy, WebhookService, WebhookUrl, failure_policy, webhook_target
from purser.core.names import DEFAULT_NAMESPACE

app = typer.Typer(
    name="webhook",
    help="What the API server must be told of Purser's webhook, where Purser is not installed by its Helm chart."
    "\n\nExample: purser webhook manifest | kubectl apply -f -",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def webhook() -> None:
    """What the API server must be told of Purser's webhook."""


@app.command("manifest")
def manifest(
    namespace: Annotated[str, typer.Option(help="Where Purser's scheduler runs.")] = DEFAULT_NAMESPACE,
    webhook_service: WebhookService = None,
    webhook_url: WebhookUrl = None,
    webhook_failure_policy: FailurePolicy = "Ignore",
) -> None:
    """Print both webhook configurations; the scheduler enters the CA of its certificate once they are applied.

    Give the same options as to `purser scheduler`. What holds the accounts of agents to their own nodes is not among
    them: the Helm chart alone brings that.

    Exit code: 0 they are printed; 2 wrong usage.

    Example: purser webhook manifest --webhook-url 127.0.0.1:8443 | kubectl apply -f -
    """
    from purser.scheduler.settings import WebhookSettings
    from purser.scheduler.webhook_configurations import mutating_configuration, validating_configuration
    from purser.yaml_text import yaml_text

    target = webhook_target(namespace, webhook_service, webhook_url)
    settings = WebhookSettings(target, failure_policy(webhook_failure_policy))
    found = (mutating_configuration(settings, target), validating_configuration(settings, target))
    print("---\n".join(yaml_text(each) for each in found), end="")
