"""Callers that are impatient, many, slow or broken: kubelets that end in the middle of things."""

import asyncio
import contextlib
import socket

import grpc.aio

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.lab.conformance.check import Check
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import allocate_request

CANCELLED_ROUNDS = 10
STREAMS = 16
CANCELLED_CALL_TIMEOUT_S = 0.001

_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


async def _check_cancelled(subject: Subject) -> None:
    ids = await subject.pick()
    for round_ in range(CANCELLED_ROUNDS):
        calls = [
            subject.plugin.start("Allocate", allocate_request(ids)),
            subject.plugin.start("GetDevicePluginOptions", api_pb2.Empty()),
            subject.plugin.start("ListAndWatch", api_pb2.Empty()),
        ]
        await asyncio.sleep(CANCELLED_CALL_TIMEOUT_S * round_)
        for call in calls:
            call.cancel()
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.CancelledError):
            await calls[0].code()
    await _check_works(subject)


async def _check_deadline(subject: Subject) -> None:
    ids = await subject.pick()
    for _ in range(CANCELLED_ROUNDS):
        with contextlib.suppress(grpc.aio.AioRpcError):
            await subject.plugin.start("Allocate", allocate_request(ids), CANCELLED_CALL_TIMEOUT_S)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await subject.plugin.start("ListAndWatch", api_pb2.Empty(), CANCELLED_CALL_TIMEOUT_S).read()
    await _check_works(subject)


async def _check_concurrent(subject: Subject) -> str:
    plugin = subject.plugin
    await asyncio.gather(
        *(plugin.options() for _ in range(STREAMS)),
        *(plugin.listing() for _ in range(STREAMS)),
    )
    return f"{2 * STREAMS} concurrent calls"


async def _check_slow_readers(subject: Subject) -> str:
    """Streams without a reader: other streams must not wait for them."""
    calls = [subject.plugin.start("ListAndWatch", api_pb2.Empty()) for _ in range(STREAMS)]
    try:
        await _check_works(subject)
    finally:
        for call in calls:
            call.cancel()
    return f"with {STREAMS} unread streams"


async def _check_garbage(subject: Subject) -> None:
    path = str(subject.endpoint.path)
    with contextlib.ExitStack() as stack:
        for words in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, _HTTP2_PREFACE):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.settimeout(subject.settings.timeout_s)
            client.connect(path)
            with contextlib.suppress(ConnectionError):
                client.sendall(words)
        await _check_works(subject)
    await _check_works(subject)


async def _check_works(subject: Subject) -> None:
    await subject.plugin.options()
    await subject.devices()


CHECKS = (
    Check("calls-cancelled", "The plugin survives cancelled calls.", _check_cancelled, ("list",)),
    Check("calls-deadline", "The plugin survives calls whose deadline expires.", _check_deadline, ("list",)),
    Check("calls-concurrent", "Many concurrent calls are all answered.", _check_concurrent, ("list",)),
    Check(
        "calls-slow-clients",
        "Clients that do not read their streams do not block other clients.",
        _check_slow_readers,
        ("list",),
    ),
    Check(
        "calls-broken-clients",
        "The plugin survives connections that send garbage or nothing.",
        _check_garbage,
        ("list",),
    ),
)
