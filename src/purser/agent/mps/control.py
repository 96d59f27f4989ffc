"""Commands and queries of a daemon, by its own front end, which reads commands and prints answers."""

import asyncio
import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import structlog

from purser.agent.host.files import read_head, read_tail
from purser.agent.host.hostfiles import make_own_dir, on_host, remove_dir
from purser.agent.host.sockets import is_listening
from purser.agent.host.threads import run_in_thread
from purser.agent.mps.folders import PID_FILE, PIPES, MpsFolders, folders_of
from purser.agent.mps.processes import find_marked, is_marked, kill, runs
from purser.agent.mps.programs import CONTROL, MARK, SMI, MpsError, MpsPrograms
from purser.agent.settings import AgentSettings
from purser.core.decoding import brief

log = structlog.get_logger("purser.agent")

ASK_TIMEOUT_S = 20.0
"""A front end that has not ended by then hangs with its daemon."""

MAX_MPS_ANSWER_BYTES = 1 << 16
"""Pids of clients are far less. Containers can put a socket of theirs in the daemon's place."""

MAX_LOG_BYTES = 64 << 20
"""Of each log of a daemon, between two looks at it: logs lie on the node's own disk."""

END_TIMEOUT_S = 10.0
"""How long processes may take to end once they are killed."""

QUIT_TIMEOUT_S = 5
"""How long servers may take to end before the daemon ends them."""

_OTHER_CONTROL_PIPES = (
    "tmp/nvidia-mps/control",
    *(f"run/nvidia/mps/{below}pipe/control" for below in ("", "*/", "*/*/")),
)
"""Sockets of daemons that are not the agent's, below the host's root: the default, and those of NVIDIA's plugin, by
resource. No deeper: containers may nest folders there without end."""

_OUTPUT = "output.log"
"""What a daemon says beside its logs, as why it does not start."""

_CONTROL_LOG = "control.log"
"""What a daemon says of its clients and servers."""

_PID = re.compile(r"[0-9]{1,9}", re.ASCII)

_CONTAINER_FILE = b"system_u:object_r:container_file_t:s0"
"""SELinux's label for what containers may use."""


class MpsControl:
    """Speaks to the daemons of one node."""

    def __init__(self, settings: AgentSettings, find: Callable[[], MpsPrograms]) -> None:
        """``find`` looks for the programs, and raises `MpsError`: a driver may come later."""
        self._settings = settings
        self._find = find

    async def ask(self, uuid: str, command: str) -> str:
        """A daemon's answer to a command. Raises `MpsError` where it gives none."""
        return await self._run(uuid, CONTROL, text=command)

    async def answers(self, uuid: str) -> bool:
        """Whether a GPU's daemon is there and answers."""
        try:
            await self.ask(uuid, "get_server_list")
        except MpsError:
            return False
        return True

    async def servers(self, uuid: str) -> frozenset[int]:
        """Processes of a daemon's servers. Raises `MpsError` where it does not answer."""
        answer = await self.ask(uuid, "get_server_list")
        pids = [int(word) for word in answer.split() if _PID.fullmatch(word)]
        mark = f"{MARK}={self._local_folders(folders_of(uuid)).pipe}"
        # A container can put a socket of its own in the daemon's place: only processes that are MPS servers count.
        found = await run_in_thread(lambda: [pid for pid in pids if is_marked(pid, mark)], "purser-mps-proc")
        return frozenset(found)

    async def is_in_fault(self, uuid: str, server: int) -> bool:
        """Whether a server is in state FAULT: a program caused a fatal fault, and the server takes no new clients until
        those that it concerns have ended (NVIDIA's "Multi-Process Service", server states). An older daemon does not
        say."""
        try:
            return "FAULT" in (await self.ask(uuid, f"get_server_status {server}")).split()
        except MpsError:
            return False

    def exited_cleanly(self, uuid: str, server: int) -> bool:
        """Whether the daemon's log says that a server exited with status 0; a crash has another one, or none."""
        try:
            text = read_tail(self._local_folders(folders_of(uuid)).log / _CONTROL_LOG, 4096).decode(errors="replace")
        except OSError:
            return False
        return any(line.endswith(f"Server {server} exited with status 0") for line in text.splitlines())

    async def quit(self, uuid: str) -> None:
        """End an unused daemon and its servers, and remove its pipes and what clients left in shared memory."""
        try:
            await self.ask(uuid, f"quit -t {QUIT_TIMEOUT_S}")
        except MpsError as error:
            log.warning("An MPS daemon did not quit; killing it", uuid=uuid, error=str(error))
        try:
            await self.clean(uuid)
        except MpsError as error:
            log.warning("An MPS daemon could not be stopped; giving up", uuid=uuid, error=str(error))
        else:
            log.info("Stopped an MPS daemon", uuid=uuid)
        for folder in (folders_of(uuid).pipe, folders_of(uuid).shm):
            await self._remove(folder)

    async def set_compute_mode(self, uuid: str, mode: str) -> None:
        """``EXCLUSIVE_PROCESS`` or ``DEFAULT``. Raises `MpsError`."""
        await self._run(uuid, SMI, "-i", uuid, "-c", mode)

    def other_daemon(self) -> str:
        """Where a daemon answers that is not the agent's, as a path of the host; empty: nowhere."""
        root = self._settings.host_root
        found = (path for pattern in _OTHER_CONTROL_PIPES for path in root.glob(pattern) if is_listening(path))
        return next((f"/{path.relative_to(root)}" for path in found), "")

    async def start(self, uuid: str) -> int:
        """Start a GPU's daemon; its process. Raises `MpsError`.

        With a new folder of pipes: containers of the daemon before may have put links in the old one, and this one
        would write where they lead.
        """
        programs = self._find()
        await self._remove(folders_of(uuid).pipe)
        return self._spawn(uuid, programs)

    def _spawn(self, uuid: str, programs: MpsPrograms) -> int:
        folders = folders_of(uuid)
        try:
            seen = self._make(folders)
            command = programs.command(self._settings, folders, CONTROL, "-f", "-multiuser-server")
            own = {"CUDA_VISIBLE_DEVICES": uuid, MARK: str(seen.pipe)}
            environment = {**programs.environment(self._settings, folders), **own}
            log_file = (str(seen.log / _OUTPUT), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            actions = [
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, *log_file),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ]
            return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)
        except OSError as error:
            raise MpsError(f"cannot start {CONTROL}: {error}") from error

    def last_output(self, uuid: str) -> str:
        """The last line that a daemon wrote before it ended."""
        try:
            text = read_head(self._local_folders(folders_of(uuid)).log / _OUTPUT, 4096).decode(errors="replace")
        except OSError:
            return ""
        return brief((text.strip().splitlines() or [""])[-1])

    def trim_logs(self, uuid: str) -> None:
        """Empty a daemon's logs that have grown too large: they say something of each client that comes and goes."""
        with contextlib.suppress(OSError):
            for path in self._local_folders(folders_of(uuid)).log.iterdir():
                if path.lstat().st_blocks * 512 > MAX_LOG_BYTES:  # it may write on where it was, and leave a hole
                    os.truncate(path, 0)
                    log.info("Truncated a log file of an MPS daemon", path=str(path))

    async def process(self, uuid: str) -> int | None:
        """That of a daemon which runs, by the file that it wrote."""
        seen = self._local_folders(folders_of(uuid))
        try:
            pid = int(read_head(seen.pipe / PID_FILE, 64).decode())
        except (OSError, ValueError):
            return None
        return pid if pid in await _daemon_pids(seen) and runs(pid) else None

    def was_started(self, uuid: str) -> bool:
        """Whether a daemon has been started since the node booted, and not ended by `quit`."""
        return self._local_folders(folders_of(uuid)).pipe.exists()

    def started_gpus(self) -> frozenset[str]:
        """GPUs of which `was_started` is true."""
        folder = on_host(self._settings, PIPES)
        names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
        return frozenset(name for name in names if not name.startswith("."))  # what could not be removed

    async def clean(self, uuid: str) -> None:
        """End what is left of a daemon and its servers, and return once it is gone. Raises `MpsError`: a process that
        waits for a GPU that hangs cannot be ended."""
        seen, left = self._local_folders(folders_of(uuid)), tuple[int, ...]()
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                while left := tuple(filter(runs, await _daemon_pids(seen))):
                    kill(left)
                    await asyncio.sleep(0.01)
        except TimeoutError as error:
            pids = ", ".join(map(str, left)) or "unknown PIDs"
            raise MpsError(f"processes of the MPS daemon did not exit within {END_TIMEOUT_S:g} s: {pids}") from error

    async def _remove(self, folder: Path) -> None:
        await run_in_thread(lambda: remove_dir(self._settings, folder), "purser-mps-files")

    async def _run(self, uuid: str, program: str, *arguments: str, text: str = "") -> str:
        folders, programs = folders_of(uuid), self._find()
        command_line = f"{program} {text or ' '.join(arguments)}"
        command = programs.command(self._settings, folders, program, *arguments)
        environment = programs.environment(self._settings, folders)
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
        except OSError as error:
            raise MpsError(f"cannot run {program}: {error.strerror or error}") from error
        try:
            async with asyncio.timeout(ASK_TIMEOUT_S):
                output = await _communicate(process, f"{text}\n".encode())
        except TimeoutError as error:
            raise MpsError(f"{command_line} did not finish within {ASK_TIMEOUT_S:g} s") from error
        finally:
            if process.returncode is None:
                await _terminate(process)
        if len(output) > MAX_MPS_ANSWER_BYTES:
            raise MpsError(f"the output of {command_line} exceeds {MAX_MPS_ANSWER_BYTES} bytes")
        answer = output.decode(errors="replace").strip()
        if process.returncode != 0:
            raise MpsError(f"{command_line}: {brief(answer) or f'exit code {process.returncode}'}")
        return answer

    def _local_folders(self, folders: MpsFolders) -> MpsFolders:
        """As this process sees them."""
        return MpsFolders(*(on_host(self._settings, path) for path in (folders.pipe, folders.log, folders.shm)))

    def _make(self, folders: MpsFolders) -> MpsFolders:
        """Make them. Raises OSError."""
        seen = self._local_folders(folders)
        make_own_dir(seen.pipe, 0o755)
        make_own_dir(seen.log, 0o755)
        make_own_dir(seen.shm, 0o1777)
        for path in (seen.pipe, seen.shm):
            _label(path, self._settings.host_root)
        for name in (_CONTROL_LOG, "server.log"):
            (seen.log / name).unlink(missing_ok=True)
        return seen


async def _communicate(process: asyncio.subprocess.Process, text: bytes) -> bytes:
    """Its output: all of it once it has ended, or the start of too much."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(text)
    process.stdin.close()
    output = b""
    while chunk := await process.stdout.read(MAX_MPS_ANSWER_BYTES):
        output += chunk
        if len(output) > MAX_MPS_ANSWER_BYTES:
            return output
    await process.wait()
    return output


async def _terminate(process: asyncio.subprocess.Process) -> None:
    """Ends at once, or is not waited for: where its GPU hangs, a process may never end."""
    assert process.stdout is not None
    process.kill()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while await process.stdout.read(MAX_MPS_ANSWER_BYTES):
                continue
            await process.wait()


async def _daemon_pids(seen: MpsFolders) -> tuple[int, ...]:
    """A daemon and its servers. In a thread: what /proc says of a process that hangs may be long in coming."""
    return await run_in_thread(lambda: find_marked(f"{MARK}={seen.pipe}"), "purser-mps-proc")


def _label(path: Path, host_root: Path) -> None:
    """Let containers use it where SELinux keeps them from files of the host."""
    if (host_root / "sys/fs/selinux/enforce").exists():
        os.setxattr(path, "security.selinux", _CONTAINER_FILE)
