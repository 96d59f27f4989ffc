"""Generic netlink, as far as questions with one answer need it, asked of the kernel in the host's network
namespace.

Formats: include/uapi/linux/netlink.h and genetlink.h. Names of families are looked up at the controller (`nlctrl`).
"""

import ctypes
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

ANSWER_TIMEOUT_S = 3.0
"""The kernel answers at once, or once a card's firmware has."""

_NETLINK_GENERIC = 16
_CLONE_NEWNET = 0x40000000
_MAX_NETLINK_BYTES = 64 * 1024

_MESSAGE = struct.Struct("=IHHII")
"""Length, type, flags, sequence number, port."""
_COMMAND = struct.Struct("=BBH")
"""Command, version, and two bytes that are reserved."""
_ATTRIBUTE = struct.Struct("=HH")
"""Length, type."""
_ERROR = struct.Struct("=i")

_REQUEST, _TYPE_ERROR = 1, 2
_TYPE_BITS = 0x3FFF
"""Of an attribute's type: above are the marks of nested and of big-endian ones."""

_CONTROLLER, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 0x10, 3, 1, 2


class GenericNetlink:
    """A socket; a context manager. Blocks."""

    def __init__(self, namespace: Path) -> None:
        """``namespace``: such as ``/proc/1/ns/net``. Raises OSError."""
        self._socket = _open_socket_in(namespace)
        self._sequence = 0
        self._families: dict[str, int] = {}

    def __enter__(self) -> "GenericNetlink":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, family: str, command: int, texts: Mapping[int, str]) -> bytes:
        """The attributes of the answer. ``texts``: attributes of the question.

        Raises OSError with the kernel's number: ENOENT where there is no such family. TimeoutError: no answer.
        """
        if family not in self._families:
            found = dict(attributes(self._ask(_CONTROLLER, _GET_FAMILY, {_FAMILY_NAME: family})))
            self._families[family] = int.from_bytes(found.get(_FAMILY_ID, b""), sys.byteorder)
        return self._ask(self._families[family], command, texts)

    def _ask(self, kind: int, command: int, texts: Mapping[int, str]) -> bytes:
        self._sequence += 1
        content = _COMMAND.pack(command, 1, 0) + b"".join(_text(number, text) for number, text in texts.items())
        self._socket.send(_MESSAGE.pack(_MESSAGE.size + len(content), kind, _REQUEST, self._sequence, 0) + content)
        while True:
            answer = self._socket.recv(_MAX_NETLINK_BYTES)
            if len(answer) < _MESSAGE.size:
                raise OSError("the kernel's answer is too short")
            length, found, _, sequence, _ = _MESSAGE.unpack_from(answer)
            if sequence != self._sequence:
                continue  # to a question that had no answer in time
            content = answer[_MESSAGE.size : length]
            if found == _TYPE_ERROR:
                number = -_ERROR.unpack_from(content)[0]
                raise OSError(number, os.strerror(number))
            return content[_COMMAND.size :]


def attributes(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Types and values; those of a nested one are read out of its value. Ends at what is none."""
    at = 0
    while at + _ATTRIBUTE.size <= len(content):
        length, kind = _ATTRIBUTE.unpack_from(content, at)
        if length < _ATTRIBUTE.size or at + length > len(content):
            return
        yield kind & _TYPE_BITS, content[at + _ATTRIBUTE.size : at + length]
        at += (length + 3) & ~3


def _text(number: int, text: str) -> bytes:
    value = text.encode() + b"\0"
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), number) + value + b"\0" * (-len(value) % 4)


def _open_socket_in(namespace: Path) -> socket.socket:
    """A socket stays in the network namespace of the thread that opened it: that thread ends at once."""
    with namespace.open("rb") as wanted:
        if os.path.samestat(os.fstat(wanted.fileno()), Path("/proc/thread-self/ns/net").stat()):
            return _open_socket()
        found: list[socket.socket | OSError] = []

        def enter() -> None:
            try:
                if ctypes.CDLL(None, use_errno=True).setns(wanted.fileno(), _CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, f"cannot enter the host's network namespace: {os.strerror(number)}")
                found.append(_open_socket())
            except OSError as error:
                found.append(error)

        thread = threading.Thread(target=enter, name="purser-netns", daemon=True)
        thread.start()
        thread.join()
    [result] = found
    if isinstance(result, OSError):
        raise result
    return result


def _open_socket() -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_GENERIC)
    opened.settimeout(ANSWER_TIMEOUT_S)
    return opened
