"""ListAndWatch: what kubelet knows of the devices."""

import asyncio
from collections import Counter

from purser.core.wording import counted
from purser.lab.conformance.check import Check, CheckFailed, CheckSkipped, some
from purser.lab.conformance.subject import Subject
from purser.lab.conformance.wire import HEALTHY, UNHEALTHY, ListedDevices


async def _check_first_list(subject: Subject) -> str:
    listing = await subject.devices()
    return f"{counted(len(listing.devices), 'device')}, {len(listing.healthy)} healthy"


async def _check_unique_ids(subject: Subject) -> None:
    ids = (await subject.devices()).ids
    if "" in ids:
        raise CheckFailed("a device has an empty ID")
    duplicates = [device_id for device_id, count in Counter(ids).items() if count > 1]
    if duplicates:
        raise CheckFailed(
            f"these IDs are listed more than once, and kubelet keeps only one device per ID: {some(duplicates)}"
        )


async def _check_health(subject: Subject) -> None:
    invalid = {device.health for device in (await subject.devices()).devices} - {HEALTHY, UNHEALTHY}
    if invalid:
        words = some([f'"{word}"' for word in invalid])
        raise CheckFailed(f'invalid health {words}: kubelet treats every value but "{HEALTHY}" as unhealthy')


async def _check_numa(subject: Subject) -> str:
    devices = (await subject.devices()).devices
    negative = [device.id for device in devices if min(device.numa_nodes, default=0) < 0]
    if negative:
        raise CheckFailed(f"negative NUMA node on {some(negative)}: omit the topology if the NUMA node is unknown")
    empty = [device.id for device in devices if device.has_topology and not device.numa_nodes]
    if empty:
        raise CheckFailed(
            f"topology without a NUMA node on {some(empty)}: kubelet 1.20 cannot place such a device on any NUMA node"
        )
    placed = sum(device.has_topology for device in devices)
    return f"devices that report their NUMA nodes: {placed} of {len(devices)}"


async def _check_stays_open(subject: Subject) -> None:
    stream = subject.endpoint.stream
    await stream.first()
    for _ in range(10):
        await asyncio.sleep(subject.settings.observe_s / 10)
        if stream.ended is not None:
            raise CheckFailed(f"the stream was closed ({stream.ended}): kubelet then marks all devices unhealthy")


async def _check_several_streams(subject: Subject) -> None:
    plugin = subject.plugin
    async with plugin.stream() as one, plugin.stream() as two:
        _check_same(await one.first(), await two.first())
        await one.close()
        async with plugin.stream() as three:
            _check_same(await two.first(), await three.first())
        if two.ended is not None:
            raise CheckFailed(f"closing one stream also closed another: {two.ended}")


def _check_same(one: ListedDevices, other: ListedDevices) -> None:
    missing = set(one.ids) ^ set(other.ids)
    if missing:
        raise CheckFailed(
            f"a new stream does not begin with the complete list: {some(missing)} on only one of two streams"
        )
    if not one.is_equivalent(other):
        raise CheckFailed("two streams report different health or NUMA nodes for the same devices")


async def _check_complete(subject: Subject) -> str:
    """Every message so far against the last one: a plugin that sends changes only is found out."""
    lists = subject.endpoint.stream.lists
    if len(lists) < 2:
        raise CheckSkipped("the list has not changed so far, so no second message was received")
    known = set(lists[0].ids)
    for listing in lists[1:]:
        missing = known - set(listing.ids)
        if missing and known & set((await subject.devices()).ids) & missing:
            raise CheckFailed(f"a message omits existing devices, which kubelet then forgets: {some(missing)}")
        known = set(listing.ids)
    return f"{len(lists)} messages"


CHECKS = (
    Check("list", "The first list arrives in time.", _check_first_list),
    Check("list-unique-ids", "Every device has a unique ID.", _check_unique_ids, ("list",)),
    Check("list-health", 'Health is exactly "Healthy" or "Unhealthy".', _check_health, ("list",)),
    Check("list-numa-nodes", "A topology, if present, names NUMA nodes.", _check_numa, ("list",)),
    Check("list-stays-open", "The stream stays open.", _check_stays_open, ("list",)),
    Check(
        "list-several-streams",
        "Each of several concurrent streams sends the complete list.",
        _check_several_streams,
        ("list", "list-stays-open"),
    ),
)

COMPLETE = Check(
    "list-complete", "Every message is the complete list, not only what changed.", _check_complete, ("list",)
)
"""Made when the health of devices has been changed, where that could be done."""
