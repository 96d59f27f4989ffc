"""Intel's ddptool of the host: it names the DDP packages of controllers whose driver tells the kernel of none.

Its own words: ``{"DDPInventory": {"address": "0000:02:00.0", "DDPpackage": {"name": "GTPv1-C/U IPv4/IPv6 payload"}}}``,
and 8 as the exit code where no package is loaded.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from purser.core.decoding import JsonReader, UnreadableError, brief

DDPTOOL_DEADLINE_S = 5.0
MAX_DDPTOOL_BYTES = 64 * 1024

MAX_PACKAGE_NAME_LENGTH = 256
"""Characters: Intel's own are below 32."""

_NO_PACKAGE = 8
_EXIT_TIMEOUT_S = 1.0
"""A killed process ends within this time, unless it hangs in the driver."""

_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")

_IN_HOST = (
    *(sys.executable, "-I", "-S", "-c"),
    "import ctypes, os, sys\n"
    "net = os.open(sys.argv[1], os.O_RDONLY | os.O_CLOEXEC)\n"
    "if ctypes.CDLL(None).setns(net, 0x40000000): sys.exit(1)\n"
    "os.chroot(sys.argv[2]); os.chdir('/'); os.execv(sys.argv[3], sys.argv[3:])",
)
"""Runs a program of the host, with the host's network interfaces: NAMESPACE ROOT PROGRAM ARGUMENTS. Needs CAP_SYS_ADMIN
and CAP_SYS_CHROOT, which a privileged container has."""


class DdpError(Exception):
    """It cannot be told now which package runs; the message is a part of a sentence."""


class _Package(msgspec.Struct, frozen=True):
    name: str = ""


class _Inventory(msgspec.Struct, frozen=True):
    package: _Package = msgspec.field(default=_Package(), name="DDPpackage")


class _Output(msgspec.Struct, frozen=True):
    inventory: _Inventory = msgspec.field(default=_Inventory(), name="DDPInventory")


ddptool_output: JsonReader[_Output] = JsonReader(_Output, "what ddptool said", max_bytes=MAX_DDPTOOL_BYTES)
"""Reads it."""


def ddptool_of(host_root: Path, namespace: Path) -> list[str]:
    """The beginning of a command; empty: the host has no ddptool. ``namespace``: the host's, of networks."""
    found = next((each for each in _FOLDERS if (host_root / each / "ddptool").is_file()), None)
    return [] if found is None else in_host(host_root, namespace, f"/{found}/ddptool")


def in_host(host_root: Path, namespace: Path, program: str) -> list[str]:
    """A command that runs the host's program, in its folders and network."""
    return [*_IN_HOST, str(namespace), str(host_root), program]


def package_by_ddptool(tool: Sequence[str], address: str) -> str:
    """The package that runs on a controller; empty: none does. ``tool``: the beginning of the command. Blocks.

    Raises `DdpError`.
    """
    code, printed = _run([*tool, "-l", "-a", "-j", "-s", address])
    if code == _NO_PACKAGE:
        return ""
    if code != 0:
        raise DdpError(f"ddptool exited with code {code}")
    try:
        return ddptool_output.read(printed).inventory.package.name[:MAX_PACKAGE_NAME_LENGTH]
    except UnreadableError as error:
        raise DdpError(brief(error)) from error


def _run(command: Sequence[str]) -> tuple[int, bytes]:
    """Exit code and output, of a process that is ended with all that it started where either is too much."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
    except OSError as error:
        raise DdpError(f"cannot run ddptool: {error}") from error
    assert process.stdout is not None
    printed, end = b"", time.monotonic() + DDPTOOL_DEADLINE_S
    try:
        with process.stdout as output:
            while select.select([output], [], [], max(0.0, end - time.monotonic()))[0]:
                chunk = os.read(output.fileno(), MAX_DDPTOOL_BYTES)
                printed += chunk
                if not chunk:
                    return process.wait(max(0.0, end - time.monotonic())), printed
                if len(printed) > MAX_DDPTOOL_BYTES:
                    raise DdpError(f"ddptool printed more than {MAX_DDPTOOL_BYTES} bytes")
    except subprocess.TimeoutExpired:
        pass
    finally:
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_EXIT_TIMEOUT_S)
    raise DdpError(f"ddptool did not finish within {DDPTOOL_DEADLINE_S:g} s")
