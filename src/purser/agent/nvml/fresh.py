"""Which GPUs answer a process that opens the driver now.

NVML fixes its list of devices when it is initialised, once for a whole process. To see a GPU that is back, the agent
would have to close the driver: meanwhile it misses the Xids of all other GPUs, and where a broken GPU makes
initialising hang, none of them can be asked. So another process looks.
"""

import subprocess
import sys
from pathlib import Path

from purser.agent.nvml.driver import DriverError
from purser.core.decoding import brief

LOOK_TIMEOUT_S = 60.0
"""As long as an enumeration may take."""

_PROGRAM = Path(__file__).with_name("fresh_program.py")


def answering_fresh(library: str) -> tuple[str | None, ...]:
    """See `Driver.answering`. Blocks until the process has ended; one that hangs in the driver cannot be killed."""
    command = [sys.executable, "-I", "-S", str(_PROGRAM), library]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=LOOK_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        raise DriverError(f"no other process can list the devices: {brief(error)}") from error
    if ended.returncode:
        last = ended.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise DriverError(f"no other process can list the devices: {brief(last)}")
    return tuple(line or None for line in ended.stdout.decode(errors="replace").split("\n")[:-1])
