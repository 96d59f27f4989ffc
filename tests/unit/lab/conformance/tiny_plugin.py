"""A small device plugin that does everything right, or one thing wrong: ``--wrong`` names it.

A program of its own: the kit starts it, restarts it, and asks it to end. A file ``unhealthy`` in kubelet's folder holds
the ids of devices that are unhealthy.
"""

import argparse
import asyncio
import itertools
import os
import random
import signal
import sys
from pathlib import Path

import grpc
import grpc.aio

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2, api_pb2_grpc

POLL_S = 0.02
RESOURCE = "example.org/thing"
AUTHORITY = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))

WRONG = {
    "version": "registers with another API version",
    "resource": "registers a name without a domain",
    "late": "serves once Register was answered",
    "options": "registers other options than it tells",
    "again": "registers over and over",
    "duplicates": "lists an id twice",
    "health": 'says "healthy"',
    "closes": "closes its streams",
    "partial": "tells what changed instead of the list",
    "unstable": "prefers at random",
    "foreign": "prefers what is not available",
    "forgets": "ignores what must be included",
    "dies": "ends at an unknown id",
    "takes-all": "allocates unknown ids",
    "counts": "has another answer each time",
    "consumes": "drops allocated devices from its list",
    "hangs": "never answers Allocate",
    "too-large": "has a list beyond the limit",
    "relative": "mounts relative paths",
    "deaf": "never registers again",
    "gives-up": "ends when it is refused",
    "socket-blind": "does not notice that its own socket is gone",
    "own-socket": "notices nothing but that its own socket is gone",
    "leaves": "leaves its socket behind",
    "stubborn": "ignores SIGTERM",
}


class Plugin(api_pb2_grpc.DevicePluginServicer):
    def __init__(self, folder, count, wrong, starts_over):
        self.folder, self.wrong, self.starts_over = folder, wrong, starts_over
        self.registered = 0
        filler = ""
        if "too-large" in wrong:
            filler, count = "x" * 50_000, 100
        self.ids = [f"thing-{number}{filler}" for number in range(count)]
        self.taken = set()
        self.counter = itertools.count()
        self.known = None, []

    def options(self):
        return api_pb2.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)

    def devices(self):
        """The list; rebuilt only when something has changed, for it is looked at often."""
        now = identity(self.folder / "unhealthy"), len(self.taken)
        if self.known[0] != now:
            self.known = now, self.made()
        return self.known[1]

    def made(self):
        try:
            sick = set((self.folder / "unhealthy").read_text().split())
        except OSError:
            sick = set()
        good = "healthy" if "health" in self.wrong else "Healthy"
        ids = [device_id for device_id in self.ids if device_id not in self.taken]
        ids += ids[:1] if "duplicates" in self.wrong else []
        return [
            api_pb2.Device(
                ID=device_id,
                health="Unhealthy" if device_id in sick else good,
                topology=api_pb2.TopologyInfo(nodes=[api_pb2.NUMANode(ID=number % 2)]),
            )
            for number, device_id in enumerate(ids)
        ]

    async def GetDevicePluginOptions(self, request, context):
        return self.options()

    async def ListAndWatch(self, request, context):
        if self.registered + 1 == self.starts_over:
            await asyncio.Event().wait()
        told = self.devices()
        yield api_pb2.ListAndWatchResponse(devices=told)
        while "closes" not in self.wrong:
            await asyncio.sleep(POLL_S)
            now = self.devices()
            if now is not told:
                changed = [device for device in now if device not in told]
                yield api_pb2.ListAndWatchResponse(devices=changed if "partial" in self.wrong else now)
                told = now

    async def GetPreferredAllocation(self, request, context):
        answer = api_pb2.PreferredAllocationResponse()
        for ask in request.container_requests:
            available, must = list(ask.available_deviceIDs), list(ask.must_include_deviceIDs)
            possible = 0 < ask.allocation_size <= len(available) and set(must) <= set(available) <= set(self.ids)
            if not possible or len(set(available)) != len(available) or len(must) > ask.allocation_size:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "there is no such allocation")
            answer.container_responses.add(deviceIDs=self.prefer(available, must, ask.allocation_size))
        return answer

    def prefer(self, available, must, size):
        if "foreign" in self.wrong:
            available = self.ids
        if "unstable" in self.wrong:
            available = random.sample(available, len(available))
        if "forgets" in self.wrong:
            must = []
        return [*must, *(device_id for device_id in available if device_id not in must)][:size]

    async def Allocate(self, request, context):
        if "hangs" in self.wrong:
            await asyncio.Event().wait()
        answer = api_pb2.AllocateResponse()
        for ask in request.container_requests:
            unknown = set(ask.devices_ids) - set(self.ids)
            if unknown and "dies" in self.wrong:
                print(f"panic: no such device {min(unknown)}", file=sys.stderr, flush=True)
                os._exit(3)
            if unknown and "takes-all" not in self.wrong:
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"there is no device {min(unknown)}")
            self.taken |= set(ask.devices_ids) if "consumes" in self.wrong else set()
            container = answer.container_responses.add()
            container.envs["THINGS"] = ",".join(sorted(ask.devices_ids))[:1000]
            if "counts" in self.wrong:
                container.envs["CALL"] = str(next(self.counter))
            path = "dev/thing" if "relative" in self.wrong else "/dev/thing"
            container.devices.add(container_path=path, host_path=path, permissions="rw")
        return answer

    async def PreStartContainer(self, request, context):
        if set(request.devices_ids) - set(self.ids):
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such device")
        return api_pb2.PreStartContainerResponse()


def identity(path):
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


async def serve(plugin, path):
    path.unlink(missing_ok=True)
    unlimited = (("grpc.max_receive_message_length", -1),) if "too-large" in plugin.wrong else ()
    server = grpc.aio.server(options=unlimited)
    api_pb2_grpc.add_DevicePluginServicer_to_server(plugin, server)
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    return server


async def register(plugin, path, wrong):
    options = api_pb2.DevicePluginOptions(pre_start_required=True) if "options" in wrong else plugin.options()
    async with grpc.aio.insecure_channel(f"unix:{plugin.folder}/kubelet.sock", options=AUTHORITY) as channel:
        await api_pb2_grpc.RegistrationStub(channel).Register(
            api_pb2.RegisterRequest(
                version="v1alpha" if "version" in wrong else "v1beta1",
                endpoint=path.name,
                resource_name="thing" if "resource" in wrong else RESOURCE,
                options=options,
            ),
            wait_for_ready=True,
        )


async def once(plugin, path, wrong):
    """Serve and register; return when that must be done again."""
    kubelet = plugin.folder / "kubelet.sock"
    while (known := identity(kubelet)) is None:  # noqa: ASYNC110 - nothing tells when kubelet comes
        await asyncio.sleep(POLL_S)
    server = None
    try:
        if "late" in wrong:
            path.unlink(missing_ok=True)
            await register(plugin, path, wrong)
        server = await serve(plugin, path)
        own = identity(path)
        if "late" not in wrong:
            await register(plugin, path, wrong)
        plugin.registered += 1
        if plugin.registered == plugin.starts_over:
            return
        while True:
            await asyncio.sleep(POLL_S)
            if "again" in wrong:
                await register(plugin, path, wrong)
            kubelet_is_new = identity(kubelet) not in (known, None) and "own-socket" not in wrong
            own_is_gone = identity(path) != own and ("socket-blind" not in wrong or identity(kubelet) != known)
            if (kubelet_is_new or own_is_gone) and "deaf" not in wrong:
                return
    except grpc.aio.AioRpcError as error:
        print(f"cannot register: {error.details()}", file=sys.stderr, flush=True)
        if "gives-up" in wrong:
            os._exit(1)
    finally:
        if server is not None:
            await server.stop(None)


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--starts-over", type=int, help="which registration it made for a former kubelet; not wrong")
    parser.add_argument("--wrong", choices=WRONG, action="append", default=[])
    options = parser.parse_args()
    wrong = set(options.wrong)
    path = options.dir / "thing.sock"
    plugin = Plugin(options.dir, options.devices, wrong, options.starts_over)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def forever():
        while True:
            await once(plugin, path, wrong)
            await asyncio.sleep(POLL_S)

    task = asyncio.create_task(forever())
    await stop.wait()
    if "stubborn" in wrong:
        await asyncio.Event().wait()
    if "leaves" in wrong:
        os._exit(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    path.unlink(missing_ok=True)


asyncio.run(main())
