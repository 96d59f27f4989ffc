"""Large nodes: kubelet's message limit, and calls with very many ids."""

from typing import Any

from purser.core.wording import counted
from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import CallRefused, allocate_request, preferred_request

MESSAGE_LIMIT_BYTES = 4 * 1024 * 1024
"""A Go client's default limit of one message, which kubelet does not raise."""

MANY_DEVICES = 10_000
_LONG_ID = "x" * 1024


async def _check_list_size(subject: Subject) -> str:
    listing = await subject.devices()
    if not listing.devices:
        raise CheckSkipped("the plugin lists no devices")
    each = listing.size_bytes / len(listing.devices)
    fit = f"at {each:.0f} bytes per device, {int(MESSAGE_LIMIT_BYTES // each)} would fit"
    if listing.size_bytes > MESSAGE_LIMIT_BYTES:
        raise CheckFailed(
            f"the list has {listing.size_bytes} bytes, but kubelet accepts at most {MESSAGE_LIMIT_BYTES}: {fit}"
        )
    return f"{listing.size_bytes} bytes for {counted(len(listing.devices), 'device')}: {fit}"


async def _check_many_ids(subject: Subject) -> str:
    ids = [*await subject.healthy(), *(f"purser-conformance-{number:05}" for number in range(MANY_DEVICES))][
        :MANY_DEVICES
    ]
    outcomes = [await _try_call(subject, "Allocate", allocate_request(ids))]
    if (await subject.plugin.options()).get_preferred_allocation_available:
        outcomes.append(await _try_call(subject, "GetPreferredAllocation", preferred_request((ids, 1, ()))))
    return f"{MANY_DEVICES} IDs: {', '.join(outcomes)}"


async def _check_oversized(subject: Subject) -> str:
    ids = [f"{_LONG_ID}-{number}" for number in range(MESSAGE_LIMIT_BYTES // len(_LONG_ID) + 1)]
    request = allocate_request(ids)
    outcome = await _try_call(subject, "Allocate", request)
    await subject.plugin.options()
    await subject.devices()
    return f"{request.ByteSize()} bytes: {outcome}"


async def _try_call(subject: Subject, method: str, request: Any) -> str:
    try:
        await subject.plugin.ask(method, request)
    except CallRefused:
        return f"{method} refused"
    return f"{method} answered"


CHECKS = (
    Check("limits-list", "The device list fits within kubelet's message limit of 4 MiB.", _check_list_size, ("list",)),
    Check(
        "limits-many-ids",
        f"Calls with {MANY_DEVICES} IDs are answered or refused in time.",
        _check_many_ids,
        ("allocate",),
    ),
    Check(
        "limits-oversized",
        "The plugin survives a request that exceeds the message limit.",
        _check_oversized,
        ("allocate",),
    ),
)
