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

_KILL_TIMEOUT_S = 5.0
"""A killed process ends within this time, unless it hangs in the driver."""

_PROGRAM = Path(__file__).with_name("fresh_program.py")


class DriverProbe:
    """Looks by one process at a time. One that hangs in the driver cannot be killed: until it ends there is no other,
    for each would hang beside it."""

    def __init__(self, library: str, program: Path = _PROGRAM) -> None:
        self._command = [sys.executable, "-I", "-S", str(program), library]
        self._hanging: subprocess.Popen[bytes] | None = None

    def __call__(self) -> tuple[str | None, ...]:
        """See `Driver.answering_uuids`. Blocks, `LOOK_TIMEOUT_S` and `_KILL_TIMEOUT_S` at the most."""
        if self._hanging is not None and self._hanging.poll() is None:
            raise _failed(f"process {self._hanging.pid} has been hanging in the driver since an earlier check")
        self._hanging = None
        try:
            process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        except OSError as error:
            raise _failed(error) from error
        try:
            output, complaint = process.communicate(timeout=LOOK_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            self._end(process)
            raise _failed(f"no answer within {LOOK_TIMEOUT_S:g} s") from error
        if process.returncode:
            words = complaint.decode(errors="replace").strip().rpartition("\n")[2]
            raise _failed(words or _ending(process.returncode))
        return tuple(line or None for line in output.decode(errors="replace").split("\n")[:-1])

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        try:
            process.communicate(timeout=_KILL_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._hanging = process
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()


def _ending(returncode: int) -> str:
    return f"killed by signal {-returncode}" if returncode < 0 else f"exit code {returncode}"


def _failed(cause: object) -> DriverError:
    return DriverError(f"a separate process cannot list the devices: {brief(cause)}")
