"""What `purser scheduler` makes of its options."""

import pytest
import typer

from purser.cli.scheduler import _host_and_port, _policy


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
    assert _host_and_port("--webhook-url", text) == (host, port)


@pytest.mark.parametrize("text", ["", ":8443", "host:port", "host:99999", "::1", "[::1", "host/path", "https://host"])
def test_what_is_no_address_is_refused_with_the_option_and_the_fix(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        _host_and_port("--webhook-url", text)
    assert ended.value.exit_code == 2
    assert "--webhook-url is " + text + ": give HOST" in capsys.readouterr().err


def test_policies_are_read_as_in_pods_annotations() -> None:
    read = _policy("fragmentation = 3, spread", "mutex, topology", "exclusive", 0)
    assert read.node == "fragmentation=3,spread=1"
    assert (read.gpu, read.authority) == (("mutex", "topology-aware"), "exclusive")
    assert read.nodes_to_score == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("best", "binpack", "shared"), "--node-policy: no policy for nodes is called 'best': there are best-fit, "),
        (("spread=x", "binpack", "shared"), "--node-policy: the weight of policy 'spread' is 'x'"),
        (("spread", "purser,numa", "shared"), "--gpu-policy: policy 'purser' for GPUs stands beside 'numa'"),
        (("spread", "binpack", "none"), "--authority is none: give shared or exclusive"),
    ],
)
def test_policies_without_sense_are_refused_with_the_option(
    options: tuple[str, str, str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended:
        _policy(*options, 0)
    assert ended.value.exit_code == 2
    assert says in capsys.readouterr().err
