"""Devices that become unhealthy and healthy again. Only the user of the kit can cause that."""

import asyncio
import os

from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped, one_line, some
from purser.lab.conformance.checks.listing import COMPLETE
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import CallRefused
from purser.lab.conformance.workplace import FOLDER_VARIABLE

DEVICE_VARIABLE = "PURSER_DEVICE_ID"
"""In the hooks' environment: a device that is listed."""


async def _check_unhealthy(subject: Subject) -> str:
    command = subject.settings.unhealthy_command
    if command is None:
        raise CheckSkipped("this check requires --unhealthy-command, which makes a device unhealthy")
    stream, healthy = subject.endpoint.stream, set(await subject.healthy())
    seen = len(stream.lists)
    await _hook(subject, command, min(healthy))
    listing = await stream.until(
        lambda listing: bool(healthy & set(listing.unhealthy)), "no list with an unhealthy device arrived", seen
    )
    return some(healthy & set(listing.unhealthy))


async def _check_new_stream(subject: Subject) -> None:
    unhealthy, listing = set(subject.endpoint.stream.lists[-1].unhealthy), await subject.devices()
    if unhealthy != set(listing.unhealthy):
        raise CheckFailed(
            "a new stream and the open one disagree about which devices are unhealthy: "
            f"{some(unhealthy ^ set(listing.unhealthy))}"
        )


async def _check_allocate_unhealthy(subject: Subject) -> str:
    unhealthy = (await subject.devices()).unhealthy
    if not unhealthy:
        raise CheckSkipped("no device is unhealthy")
    try:
        await subject.plugin.allocate(unhealthy[:1])
    except CallRefused as error:
        await subject.plugin.options()
        return str(error)
    return f"{unhealthy[0]} was allocated, which is harmless: kubelet never requests a device reported as unhealthy"


async def _check_recovery(subject: Subject) -> str:
    command = subject.settings.healthy_command
    if command is None:
        raise CheckSkipped("this check requires --healthy-command, which makes the device healthy again")
    stream, unhealthy = subject.endpoint.stream, set((await subject.devices()).unhealthy)
    if not unhealthy:
        raise CheckSkipped("no device is unhealthy")
    seen = len(stream.lists)
    await _hook(subject, command, min(unhealthy))
    listing = await stream.until(
        lambda listing: bool(unhealthy & set(listing.healthy)), "no list reported the device as healthy", seen
    )
    return some(unhealthy & set(listing.healthy))


async def _hook(subject: Subject, command: str, device_id: str) -> None:
    """Run a user's command in a shell. Raises `CheckSkipped` when it fails: that is not the plugin's fault."""
    environment = {**os.environ, DEVICE_VARIABLE: device_id, FOLDER_VARIABLE: str(subject.folder or "")}
    child = await asyncio.create_subprocess_shell(
        command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=environment,
    )
    try:
        async with asyncio.timeout(subject.settings.timeout_s):
            output, _ = await child.communicate()
    except TimeoutError:
        child.kill()
        await child.wait()
        raise CheckSkipped(f"{command} did not exit within {subject.settings.timeout_s:g} s") from None
    if child.returncode:
        raise CheckSkipped(
            f"{command} exited with code {child.returncode}: {one_line(output.decode(errors='replace'))}"
        )


CHECKS = (
    Check(
        "health-lost",
        "On the open stream, the plugin reports that a device has become unhealthy.",
        _check_unhealthy,
        ("list",),
    ),
    Check(
        "health-new-stream",
        "A new stream reports the same health as the open one.",
        _check_new_stream,
        ("health-lost",),
    ),
    Check(
        "allocate-unhealthy",
        "The plugin survives an Allocate call for an unhealthy device.",
        _check_allocate_unhealthy,
        ("list",),
    ),
    Check(
        "health-back",
        "On the open stream, the plugin reports that a device has recovered.",
        _check_recovery,
        ("health-lost",),
    ),
    COMPLETE,
)
