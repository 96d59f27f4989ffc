"""`purser web`: what it refuses at once."""

import pytest
from tests.unit.cli.typed import here


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--address", "0.0.0.0"), "--address 0.0.0.0 requires logins: use --scheduler without --token-file"),
        (("--address", "::"), "--address :: requires logins"),
        (("--address", "example.com"), "invalid value 'example.com' for --address: must be an IP address"),
        (("--scheduler", "https://a", "--address", "x"), "invalid value 'x' for --address: must be an IP address"),
        (("--namespace", "team-a"), "--namespace requires --scheduler and --token-file"),
        (("--scheduler", "https://a", "-n", "team-a"), "--namespace requires --scheduler and --token-file"),
        (("--scheduler", "https://a", "--context", "x"), "--scheduler cannot be used with --kubeconfig or --context"),
        (("--scheduler", "http://a"), "http://a is not a read API address: must be https://HOST:PORT"),
        (
            ("--scheduler", "https://a", "--certificate-authority", "/no/ca"),
            "cannot load the scheduler's CA file /no/ca: ",
        ),
        (("--kubeconfig", "/no/config"), "/no/config"),
        (("--prometheus", "here"), "invalid value 'here' for --prometheus: must be a URL"),
        (
            ("--prometheus", "http://a", "--prometheus-token-file", "/no/file"),
            "purser: --prometheus-token-file /no/file:",
        ),
        (("--prometheus", "http://a", "--prometheus-selector", "\udcff"), "invalid Prometheus URL, token or selector"),
        (("--prometheus-selector", "a=1"), "--prometheus-token-file and --prometheus-selector require --prometheus"),
    ],
)
def test_what_cannot_work_is_an_error_in_a_line(words, message):
    code, out, err = here("web", *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
