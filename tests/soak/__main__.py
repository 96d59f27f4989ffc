"""``python -m tests.soak``: the soak, by hand."""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

import structlog

from tests.soak.breaking import CLOCK_FILE
from tests.soak.run import Plan, soak

_LIBRARIES = ("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def main() -> None:
    """Parse the command line, start again under libfaketime, and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="A long run of everything at once.")
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--pods", type=int, default=5_000, help="honest pods in all")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--log", type=Path, default=Path("soak.log"), help="what the components log")
    arguments = parser.parse_args()
    _start_again_with_a_clock_to_set()
    with arguments.log.open("w") as file:
        plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
        structlog.configure(
            processors=[structlog.processors.add_log_level, structlog.processors.TimeStamper(), plain],
            logger_factory=structlog.WriteLoggerFactory(file),
        )
        result = asyncio.run(soak(Plan(arguments.minutes * 60, arguments.pods, arguments.seed)))
    print(result.describe())
    sys.exit(0 if result.is_good else 1)


def _start_again_with_a_clock_to_set() -> None:
    """The dynamic linker reads LD_PRELOAD at the start of a process only."""
    library = next((path for path in _LIBRARIES if Path(path).exists()), None)
    if CLOCK_FILE in os.environ:
        return
    if library is None:
        print("no clock jumps: libfaketime is missing (Debian's package libfaketime)", file=sys.stderr)
        return
    clock = Path(tempfile.mkstemp(prefix="purser-soak-clock-")[1])
    clock.write_text("+0\n")
    os.environ |= {
        CLOCK_FILE: str(clock),
        "LD_PRELOAD": library,
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    os.execv(sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]])


if __name__ == "__main__":
    main()
