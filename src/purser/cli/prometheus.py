"""Options of commands that ask a Prometheus, read and checked."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from purser.cli.output import MISUSED, fail

if TYPE_CHECKING:
    from purser.usage import Prometheus

_UNITS_S = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_MAX_SINCE_S = 366 * 86400


def prometheus_at(url: str, token: str, selector: str, *, timeout_s: float = 120.0) -> "Prometheus":
    """The server that the options name; with ``selector`` it will be asked. Exits where they cannot be used."""
    from purser.usage import Prometheus

    if not url.startswith(("http://", "https://")):
        fail(
            f"invalid value {url!r} for --prometheus: must be a URL such as http://prometheus.monitoring:9090", MISUSED
        )
    try:
        selector.encode()
        return Prometheus(url, token=token, timeout_s=timeout_s)
    except ValueError as error:
        fail(f"invalid Prometheus URL, token or selector: {error}", MISUSED)


def seconds_of(since: str) -> float:
    """The time that ``--since`` says. Exits where it says none."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([mhdw])", since)
    seconds = int(found[1]) * _UNITS_S[found[2]] if found else 0
    if not 0 < seconds <= _MAX_SINCE_S:
        fail(
            f"invalid value {since!r} for --since: must be a duration in m, h, d or w such as 7d, up to a year", MISUSED
        )
    return float(seconds)


def token_of(file: Path | None, option: str = "--token-file") -> str:
    """What is in the file of an option; empty without one. Exits where it cannot be read."""
    if file is None:
        return ""
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{option} {file}: {error}", MISUSED)
