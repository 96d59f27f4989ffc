"""Traces one pod through the scheduler of the tree on PYTHONPATH: what runs for one filter request over three nodes,
one prioritize and one bind, asked over HTTPS of the scheduler as it is, beside an API server of the lab.

    PYTHONPATH=src python scripts/trace_pod.py > FILE

Pods of its kind go ahead, so that nothing is counted that only first requests do. Counted is what runs in a request's
own context, tasks that it starts included: functions of Purser, calls of them (a resumed coroutine is not a call), and
types of Purser among the arguments, ``self`` aside. Kernels are numpy's: a compiled one would show no calls. Prints
JSON: per request ``modules``, ``functions`` and ``types`` by name, and ``calls``.
"""

import asyncio
import contextlib
import inspect
import json
import opcode
import os
import ssl
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from aiohttp import web

os.environ["PURSER_KERNELS"] = "numpy"

import purser
from purser.core.placement import kernels
from purser.kube import Client, ClusterConfig
from purser.kube.resources import NODES, PODS
from purser.lab.apiserver import ApiServer
from purser.scheduler import run as scheduler
from purser.scheduler.settings import SchedulerSettings, ServerSettings

if hasattr(kernels, "use"):  # trees before read the environment
    kernels.use("numpy")

SRC = Path(purser.__file__).parent
NODE_NAMES = ["node-0", "node-1", "node-2"]
CARDS = 8
PODS_AHEAD = 20
RESUME = opcode.opmap["RESUME"]

Json = dict[str, Any]


@dataclass
class Trace:
    """What one request came past."""

    modules: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
    types: set[str] = field(default_factory=set)
    calls: int = 0

    def as_json(self) -> Json:
        names = {key: sorted(getattr(self, key)) for key in ("modules", "functions", "types")}
        return {**names, "calls": self.calls}


_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)


def profile(frame: FrameType, event: str, _: object) -> None:
    """For `sys.setprofile`: counts calls of Purser's functions in a traced context."""
    if event != "call" or (trace := _trace.get()) is None:
        return
    code = frame.f_code
    if not code.co_filename.startswith(str(SRC)) or _goes_on(frame):
        return
    module = str(frame.f_globals.get("__name__"))
    trace.calls += 1
    trace.modules.add(module)
    if not code.co_name.startswith("<"):
        trace.functions.add(f"{module}.{code.co_qualname}")
    count = code.co_argcount + code.co_kwonlyargcount
    for name in code.co_varnames[:count]:
        kind = type(frame.f_locals.get(name))
        if name not in ("self", "cls") and kind.__module__.startswith("purser."):
            trace.types.add(f"{kind.__module__}.{kind.__qualname__}")


def _goes_on(frame: FrameType) -> bool:
    """Whether a generator or coroutine is resumed, which Python reports as another call."""
    code = frame.f_code
    if not code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        return False
    at = frame.f_lasti
    return at >= 0 and code.co_code[at] == RESUME and code.co_code[at + 1] & 3 != 0


class Extender:
    """Traces the requests to the scheduler's extender while switched on."""

    def __init__(self) -> None:
        self.traces: dict[str, Trace] | None = None
        self._make: Callable[..., web.Application] = vars(scheduler)["extender_app"]

    def app(self, *arguments: Any, **options: Any) -> web.Application:
        """The scheduler's application, with the tracer around each of its requests."""

        @web.middleware
        async def traced(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> Any:
            if self.traces is None:
                return await handler(request)
            _trace.set(self.traces.setdefault(request.path.strip("/"), Trace()))
            sys.setprofile(profile)
            try:
                return await handler(request)
            finally:
                sys.setprofile(None)
                _trace.set(None)

        made = self._make(*arguments, **options)
        made.middlewares.insert(0, traced)
        return made


def inventory(node: str) -> str:
    """A node's inventory annotation."""
    devices = [
        {"uuid": f"GPU-{node}-{i}", "index": i, "model": "NVIDIA H100 80GB HBM3", "memory_mib": 81920, "slots": 10}
        for i in range(CARDS)
    ]
    return json.dumps({"node": node, "devices": devices})


def pod(name: str) -> Json:
    """Asks for a share of a GPU."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192", "nvidia.com/gpucores": "30"}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    meta = {"name": name, "namespace": "default"}
    return {"metadata": meta, "spec": {"schedulerName": "purser-scheduler", "containers": containers}}


def ask(port: int, verb: str, body: Json) -> Any:
    """As kube-scheduler asks."""
    context = ssl._create_unverified_context()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"https://127.0.0.1:{port}/{verb}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30, context=context) as answer:
        return json.load(answer)


async def schedule(client: Client, port: int, name: str) -> None:
    """One pod's filter, prioritize and bind. Raises RuntimeError where an answer is no good."""
    made = await client.create(PODS, pod(name))
    stored = msgspec.to_builtins(made)  # kube-scheduler sends what the API server has
    await asyncio.sleep(0.2)  # the informers have seen it
    asked = {"Pod": stored, "NodeNames": NODE_NAMES}
    fits = await asyncio.to_thread(ask, port, "filter", asked)
    if sorted(fits.get("NodeNames") or fits.get("nodenames") or ()) != NODE_NAMES:
        raise RuntimeError(f"the filter let other nodes through: {fits}")
    await asyncio.to_thread(ask, port, "prioritize", asked)
    binding = {"PodName": name, "PodNamespace": "default", "PodUID": made.metadata.uid, "Node": NODE_NAMES[0]}
    answer = await asyncio.to_thread(ask, port, "bind", binding)
    if answer.get("Error") or answer.get("error"):
        raise RuntimeError(f"the pod was not bound: {answer}")


def in_thread(main: Coroutine[Any, Any, None]) -> threading.Thread:
    """Runs on a loop of its own, out of the tracer's sight."""
    thread = threading.Thread(target=asyncio.run, args=(main,), daemon=True)
    thread.start()
    return thread


async def serve(kubeconfig: Path, is_up: threading.Event, is_over: threading.Event) -> None:
    """An API server of the lab, until it is over."""
    async with ApiServer() as api:
        api.write_kubeconfig(kubeconfig)
        is_up.set()
        await asyncio.to_thread(is_over.wait)


async def trace(kubeconfig: Path) -> dict[str, Trace]:
    """The traces by request of one pod in steady state."""
    extender, traces = Extender(), dict[str, Trace]()
    vars(scheduler)["extender_app"] = extender.app
    config = ClusterConfig.load(kubeconfig)
    loopback = ServerSettings("127.0.0.1", 0, extender_port=0, metrics_address="127.0.0.1", metrics_port=0)
    settings = replace(SchedulerSettings(), namespace="default", server=loopback, webhook=None)
    ready: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    async with Client(config) as client:
        for name in NODE_NAMES:
            meta = {"name": name, "annotations": {"purser.dev/inventory": inventory(name)}}
            await client.create(NODES, {"metadata": meta})
        running = asyncio.create_task(
            scheduler.run(settings, config, stop, lambda addresses: ready.set_result(addresses.extender))
        )
        running.add_done_callback(lambda _: ready.cancel())
        try:
            port = await ready
        except asyncio.CancelledError:
            running.result()
            raise
        for number in range(PODS_AHEAD):
            await schedule(client, port, f"ahead-{number}")
        extender.traces = traces
        await schedule(client, port, "traced")
        stop.set()
        await running
    return traces


def main() -> None:
    """Prints the traces."""
    is_up, is_over = threading.Event(), threading.Event()
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        thread = in_thread(serve(kubeconfig, is_up, is_over))
        is_up.wait(60)
        with contextlib.redirect_stdout(sys.stderr):  # where the scheduler's log goes
            found = asyncio.run(trace(kubeconfig))
        is_over.set()
        thread.join(10)
    print(json.dumps({verb: found[verb].as_json() for verb in ("filter", "prioritize", "bind")}))


if __name__ == "__main__":
    main()
