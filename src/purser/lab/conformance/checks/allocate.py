"""Allocate and PreStartContainer: what a container is given, and the last call before it starts."""

import asyncio
import re
from typing import Any

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped, some
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import CallRefused, allocate_request

CALLS = 16
"""At once; kubelet itself asks one at a time."""

UNKNOWN = ("purser-conformance-no-such-device",)

_CDI_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*=[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?")
_PERMISSIONS = set("rwm")


async def _answers(subject: Subject) -> str:
    ids = await subject.pick()
    answer = await subject.plugin.allocate(ids)
    return (
        f"for {', '.join(ids)}: {len(answer.envs)} variables, {len(answer.mounts)} mounts,"
        f" {len(answer.devices)} device nodes, {len(answer.cdi_devices)} CDI devices"
    )


async def _valid(subject: Subject) -> None:
    answer = await subject.plugin.allocate(await subject.pick())
    problems = _problems(answer)
    if problems:
        raise CheckFailed("; ".join(problems[:3]))


def _problems(answer: Any) -> list[str]:
    """What a container runtime would not take."""
    found = [
        f'"{path}" of a mount or device node is no absolute path'
        for item in (*answer.mounts, *answer.devices)
        for path in (item.container_path, item.host_path)
        if not path.startswith("/")
    ]
    found += [
        f'the permissions of {device.host_path} are "{device.permissions}": letters out of r, w, m'
        for device in answer.devices
        if not device.permissions or set(device.permissions) - _PERMISSIONS
    ]
    found += [
        f'"{name}" is not a name of a variable' for name in answer.envs if not name or "=" in name or "\0" in name
    ]
    found += [
        f'"{device.name}" is not a CDI device: vendor.example/class=name'
        for device in answer.cdi_devices
        if _CDI_NAME.fullmatch(device.name) is None
    ]
    return found


async def _idempotent(subject: Subject) -> None:
    ids = await subject.pick()
    first, again = await subject.plugin.allocate(ids), await subject.plugin.allocate(ids)
    if first != again:
        raise CheckFailed(
            f"the same ids twice, and {_difference(first, again)} differ: a kubelet that restarts asks again"
        )


def _difference(one: Any, other: Any) -> str:
    names = [field.name for field in one.DESCRIPTOR.fields if getattr(one, field.name) != getattr(other, field.name)]
    return " and ".join(names)


async def _several(subject: Subject) -> str | None:
    ids = await subject.healthy()
    two = allocate_request(ids[:1], ids[1:2] or ids[:1])
    try:
        answer = await subject.plugin.ask("Allocate", two)
    except CallRefused as error:
        return f"refused, and kubelet asks for one container at a time: {error}"
    if len(answer.container_responses) != 2:
        raise CheckFailed(f"two containers in one call were answered with {len(answer.container_responses)} responses")
    return None


async def _unknown(subject: Subject) -> str:
    try:
        await subject.plugin.allocate(UNKNOWN)
    except CallRefused as error:
        if not await _still_answers(subject):
            raise
        return str(error)
    raise CheckFailed("an id that was never listed was allocated: a container would start without its device")


async def _still_answers(subject: Subject) -> bool:
    try:
        await subject.plugin.options()
    except CallRefused:
        return False
    return True


async def _empty(subject: Subject) -> str:
    refused = 0
    for request in (allocate_request(), allocate_request(())):
        try:
            await subject.plugin.ask("Allocate", request)
        except CallRefused:
            refused += 1
    await subject.plugin.options()
    return f"{refused} of 2 refused"


async def _no_change(subject: Subject) -> None:
    before = await subject.devices()
    await subject.plugin.allocate(await subject.pick())
    after = await subject.devices()
    if not before.same_as(after):
        changed = {device.id for device in set(before.devices) ^ set(after.devices)}
        raise CheckFailed(
            f"the list is another one after Allocate: {some(changed)}; kubelet itself counts what is taken"
        )


async def _concurrent(subject: Subject) -> str:
    ids = await subject.pick()
    answers = await asyncio.gather(*(subject.plugin.allocate(ids) for _ in range(CALLS)))
    if any(answer != answers[0] for answer in answers):
        raise CheckFailed(f"{CALLS} calls at once for the same ids were answered differently")
    return f"{CALLS} calls at once"


async def _pre_start(subject: Subject) -> None:
    if not (await subject.plugin.options()).pre_start_required:
        raise CheckSkipped("the plugin does not ask for PreStartContainer")
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


async def _pre_start_unknown(subject: Subject) -> str:
    try:
        await subject.plugin.ask("PreStartContainer", api_pb2.PreStartContainerRequest(devices_ids=UNKNOWN))
    except CallRefused as error:
        await subject.plugin.options()
        return str(error)
    return "answered"


_NEEDS = ("allocate",)

CHECKS = (
    Check("allocate", "It answers Allocate for the devices that kubelet would take.", _answers, ("list",)),
    Check("allocate-no-change", "Allocate does not change the list.", _no_change, _NEEDS),
    Check("allocate-valid", "A container runtime could use its answer.", _valid, _NEEDS),
    Check("allocate-idempotent", "The same ids get the same answer.", _idempotent, _NEEDS),
    Check("allocate-several", "Two containers in one call get a response each.", _several, _NEEDS),
    Check("allocate-unknown-id", "It refuses an id that it never listed, and survives.", _unknown, _NEEDS),
    Check("allocate-empty", "It survives a call without containers or ids.", _empty, _NEEDS),
    Check("allocate-concurrent", "Concurrent calls are all answered, and equally.", _concurrent, _NEEDS),
    Check(
        "prestart",
        "It answers PreStartContainer for an allocated container, if it asks for that call.",
        _pre_start,
        _NEEDS,
    ),
    Check("prestart-unknown-id", "It survives PreStartContainer for an unknown id.", _pre_start_unknown, ("prestart",)),
)
