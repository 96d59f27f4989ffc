"""Allocate and PreStartContainer: what a container is given, and the last call before it starts."""

import asyncio
import re
from typing import Any

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.core.wording import counted
from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped, some
from purser.lab.conformance.several import check_two_responses
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import CallRefused, allocate_request

CALLS = 16
"""At once; kubelet itself asks one at a time."""

UNKNOWN = ("purser-conformance-no-such-device",)

_CDI_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?")
_PERMISSIONS = set("rwm")


async def _check_allocate(subject: Subject) -> str:
    ids = await subject.pick()
    answer = await subject.plugin.allocate(ids)
    return (
        f"for {', '.join(ids)}: {counted(len(answer.envs), 'variable')}, {counted(len(answer.mounts), 'mount')},"
        f" {counted(len(answer.devices), 'device node')}, {counted(len(answer.cdi_devices), 'CDI device')}"
    )


async def _check_valid(subject: Subject) -> None:
    answer = await subject.plugin.allocate(await subject.pick())
    problems = _problems(answer)
    if problems:
        raise CheckFailed("; ".join(problems[:3]))


def _problems(answer: Any) -> list[str]:
    """What a container runtime would not take."""
    found = [
        f'the path "{path}" of a mount or device node is not absolute'
        for item in (*answer.mounts, *answer.devices)
        for path in (item.container_path, item.host_path)
        if not path.startswith("/")
    ]
    found += [
        f'invalid permissions "{device.permissions}" for {device.host_path}: must be one or more of r, w, m'
        for device in answer.devices
        if not device.permissions or set(device.permissions) - _PERMISSIONS
    ]
    found += [
        f'"{name}" is not a valid environment variable name'
        for name in answer.envs
        if not name or "=" in name or "\0" in name
    ]
    found += [
        f'"{device.name}" is not a CDI device name: must have the form vendor.example/class=name'
        for device in answer.cdi_devices
        if _CDI_NAME.fullmatch(device.name) is None
    ]
    return found


async def _check_idempotent(subject: Subject) -> None:
    ids = await subject.pick()
    first, again = await subject.plugin.allocate(ids), await subject.plugin.allocate(ids)
    if first != again:
        raise CheckFailed(f"two Allocate calls for the same IDs returned different {_difference(first, again)}")


def _difference(one: Any, other: Any) -> str:
    names = [field.name for field in one.DESCRIPTOR.fields if getattr(one, field.name) != getattr(other, field.name)]
    return " and ".join(names)


async def _check_two_containers(subject: Subject) -> str | None:
    ids = await subject.healthy()
    return await check_two_responses(subject, "Allocate", allocate_request(ids[:1], ids[1:2] or ids[:1]))


async def _check_unknown_id(subject: Subject) -> str:
    try:
        await subject.plugin.allocate(UNKNOWN)
    except CallRefused as error:
        if not await _is_answering(subject):
            raise
        return str(error)
    raise CheckFailed("the plugin allocated an ID that it never listed: a container would start without its device")


async def _is_answering(subject: Subject) -> bool:
    try:
        await subject.plugin.options()
    except CallRefused:
        return False
    return True


async def _check_empty(subject: Subject) -> str:
    refused = 0
    for request in (allocate_request(), allocate_request(())):
        try:
            await subject.plugin.ask("Allocate", request)
        except CallRefused:
            refused += 1
    await subject.plugin.options()
    return f"{refused} of 2 refused"


async def _check_list_unchanged(subject: Subject) -> None:
    before = await subject.devices()
    await subject.plugin.allocate(await subject.pick())
    after = await subject.devices()
    if not before.is_equivalent(after):
        changed = {device.id for device in set(before.devices) ^ set(after.devices)}
        raise CheckFailed(
            f"Allocate changed the list ({some(changed)}), but kubelet itself tracks which devices are allocated"
        )


async def _check_concurrent(subject: Subject) -> str:
    ids = await subject.pick()
    answers = await asyncio.gather(*(subject.plugin.allocate(ids) for _ in range(CALLS)))
    if any(answer != answers[0] for answer in answers):
        raise CheckFailed(f"{CALLS} concurrent Allocate calls for the same IDs returned different responses")
    return f"{CALLS} concurrent calls"


async def _check_pre_start(subject: Subject) -> None:
    if not (await subject.plugin.options()).pre_start_required:
        raise CheckSkipped("the plugin does not require PreStartContainer")
    ids = await subject.pick()
    await subject.plugin.allocate(ids)
    books = subject.books
    if books is not None:
        books.resource, books.held = subject.resource or "", ids
    try:
        await subject.plugin.ask("PreStartContainer", api_pb2.PreStartContainerRequest(devices_ids=ids))
    finally:
        if books is not None:
            books.held = ()


async def _check_pre_start_unknown(subject: Subject) -> str:
    try:
        await subject.plugin.ask("PreStartContainer", api_pb2.PreStartContainerRequest(devices_ids=UNKNOWN))
    except CallRefused as error:
        await subject.plugin.options()
        return str(error)
    return "answered"


_NEEDS = ("allocate",)

CHECKS = (
    Check(
        "allocate", "The plugin answers Allocate for the devices that kubelet would choose.", _check_allocate, ("list",)
    ),
    Check("allocate-no-change", "Allocate does not change the list.", _check_list_unchanged, _NEEDS),
    Check("allocate-valid", "A container runtime can use the answer to Allocate.", _check_valid, _NEEDS),
    Check("allocate-idempotent", "Allocate gives the same answer for the same IDs.", _check_idempotent, _NEEDS),
    Check(
        "allocate-several", "One Allocate call for two containers returns two responses.", _check_two_containers, _NEEDS
    ),
    Check(
        "allocate-unknown-id",
        "The plugin refuses an ID that it never listed, and keeps running.",
        _check_unknown_id,
        _NEEDS,
    ),
    Check("allocate-empty", "The plugin survives an Allocate call without containers or IDs.", _check_empty, _NEEDS),
    Check("allocate-concurrent", "Concurrent Allocate calls all get the same answer.", _check_concurrent, _NEEDS),
    Check(
        "prestart",
        "The plugin answers PreStartContainer for an allocated container, if the plugin requires that call.",
        _check_pre_start,
        _NEEDS,
    ),
    Check(
        "prestart-unknown-id",
        "The plugin survives PreStartContainer for an unknown ID.",
        _check_pre_start_unknown,
        ("prestart",),
    ),
)
