"""What `purser scheduler` makes of its options."""

from typing import Any

import pytest
from typer.testing import CliRunner

from purser.cli import app
from purser.options import settings_from
from purser.scheduler.settings import LeaseTarget, SchedulerSettings, ServiceTarget, UrlTarget


def told(**options: Any) -> SchedulerSettings:
    return settings_from(SchedulerSettings, {name.replace("_", "-"): each for name, each in options.items()}, {})


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("example.org", "example.org", 0),
        ("127.0.0.1:8443", "127.0.0.1", 8443),
        ("[::1]", "::1", 0),
        ("[::1]:8443", "::1", 8443),
    ],
)
def test_a_webhooks_address_has_a_host_and_perhaps_a_port(text: str, host: str, port: int) -> None:
    assert UrlTarget.parse(text) == UrlTarget(host, port)


@pytest.mark.parametrize("text", ["", ":8443", "host:port", "host:99999", "::1", "[::1", "host/path", "https://host"])
def test_what_is_no_address_is_refused_with_the_option_and_the_fix(text: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"^invalid value .* for --webhook-url: must be HOST or HOST:PORT, with IPv6 addresses in brackets$",
    ):
        told(webhook_url=text)


def test_policies_are_read_as_in_pods_annotations() -> None:
    read = told(
        node_policy="fragmentation = 3, spread", gpu_policy="mutex, topology", authority="exclusive", nodes_to_score=0
    ).policy
    assert read.node == "fragmentation=3,spread=1"
    assert (read.gpu, read.authority) == (("mutex", "topology-aware"), "exclusive")
    assert read.nodes_to_score == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--node-policy=best"], "--node-policy: unknown policy 'best' for nodes: must be one of best-fit, "),
        (["--node-policy=spread=x"], "--node-policy: invalid weight 'x' for policy 'spread'"),
        (["--gpu-policy=purser,numa"], "--gpu-policy: policy 'purser' for GPUs cannot be combined with 'numa'"),
        (["--authority=none"], "invalid value 'none' for --authority: must be shared or exclusive"),
        (["--follow-lease=purser"], "invalid value 'purser' for --follow-lease: must be NAMESPACE/NAME"),
        (
            ["--webhook-failure-policy=ignore"],
            "invalid value 'ignore' for --webhook-failure-policy: must be Ignore or Fail",
        ),
        (["--webhook-service=a/b", "--webhook-url=c"], "--webhook-service and --webhook-url are mutually exclusive"),
    ],
    ids=lambda each: each[0] if isinstance(each, list) else "",
)
def test_options_without_sense_are_refused_as_misuse(options: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["scheduler", *options])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"purser: {says}")


def test_an_option_not_given_has_the_settings_default() -> None:
    assert told() == SchedulerSettings()
    assert told(webhook=False, webhook_url="", authority="shared") == SchedulerSettings(webhook=None)


def test_the_webhooks_service_is_in_pursers_namespace_unless_it_says_another() -> None:
    def target(**options: str) -> object:
        webhook = told(namespace="gpus", **options).webhook
        return webhook and webhook.target

    assert target() == target(webhook_service="") == ServiceTarget("gpus", "purser-webhook")
    assert target(webhook_service="other/hook") == ServiceTarget("other", "hook")
    assert told(follow_lease="a/b").follow_lease == LeaseTarget("a", "b")


def test_an_empty_name_says_that_there_are_none_but_of_clients_it_is_a_name() -> None:
    settings = told(device_namespace=[""], adopt_scheduler_name=["", "volcano"], webhook_client_name=[""])
    assert settings.webhook
    assert settings.webhook.device_namespaces == ()
    assert settings.adopted_scheduler_names == ("volcano",)
    assert settings.server.webhook_client_names == ("",)
