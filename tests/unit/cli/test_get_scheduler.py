"""`purser get --scheduler`: what it prints is what `purser get` prints of the same cluster with a kubeconfig."""

import contextlib
import io
import json
from contextlib import asynccontextmanager
from operator import eq

import msgspec
import pytest
import yaml
from aiohttp import web
from tests.unit.cli.asked_scheduler import asked_scheduler, scheduler_to_ask
from tests.unit.cli.typed import beside, here
from tests.unit.core.placement.test_instances import gpu as cut_gpu
from tests.unit.kube.servers import HastyClock, running
from tests.unit.scheduler.extender_world import eventually
from tests.unit.top import states

from purser.adapters import snapshot
from purser.cli import get as get_module
from purser.cli import get_tables
from purser.cli.output import FAILED, MISUSED, OutputFormat
from purser.cli.shown_state import is_partial, shown_of_state
from purser.cli.watching import watch_scheduler
from purser.core.mig import MigPlacement
from purser.core.model import Device, DeviceMode, Enforcement, NodeInventory, PartitionedGpu
from purser.core.names import AGENT_AWAY, CORDONED_GPUS_ANNOTATION, INVENTORY_ANNOTATION
from purser.core.state import StateCutGpu, StateGpuHealth
from purser.kube import KubeError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import NAMESPACES, NODES, PODS
from purser.top.asking import ReadApi, token_from_file

MIG_DEVICE = Device(
    "MIG-1",
    1,
    "A100",
    20000,
    resource="nvidia.com/mig-3g.20gb",
    parent="GPU-cut",
    mode=DeviceMode.MIG,
    enforcement=Enforcement.MIG,
)
QUOTAS = [
    ("team-b", "both", {"limits.nvidia.com/gpumem": "20000", "limits.nvidia.com/gpucores": "90"}),
    ("team-b", "stricter", {"limits.nvidia.com/gpucores": "40", "requests.nvidia.com/gpu": "9"}),
    ("team-b", "of-others", {"limits.hygon.com/dcumem": "1"}),
    ("only-limited", "small", {"limits.nvidia.com/gpumem": "8"}),
]
"""Namespace, name and what is limited."""

NODES_WITH_GPUS = {
    "a1": NodeInventory(
        "a1",
        (
            Device("GPU-0", 0, "NVIDIA A100", 8000, slots=10, numa_nodes=(0,), pci_bus_id="0000:07:00.0"),
            Device("GPU-1", 1, "NVIDIA A100", 8000, slots=10, numa_nodes=(1,), enforcement=Enforcement.HAMI_CORE),
        ),
        driver_version="570.1",
        agent_version="1.2",
    ),
    "a2": NodeInventory("a2", (Device("GPU-2", 0, "NVIDIA A100", 8000, slots=10),)),
    "m1": NodeInventory(
        "m1",
        (cut_gpu("GPU-3", 0, held=[MigPlacement("1g.5gb", 2)]), MIG_DEVICE),
        cut=(
            PartitionedGpu("GPU-cut", "A100", 40000, index=1),
            PartitionedGpu("GPU-empty", "A100", 40000, index=2),
        ),
    ),
    "t1": NodeInventory("t1", (Device("GPU-4", 0, "Tesla T4", 0, healthy=False, unhealthy_reason="Xid 79"),)),
    "x1": NodeInventory("x1", (Device("GPU-5", 0, "NVIDIA GB10", 0),)),
}
"""a1: a GPU is cordoned. a2: is cordoned. m1: MIG of both kinds. t1: unhealthy. x1: its memory is not known, its
agent was killed, and it has no condition."""


async def add_node(world, name):
    annotations = {INVENTORY_ANNOTATION: msgspec.json.encode(NODES_WITH_GPUS[name]).decode()}
    if name == "a1":
        annotations[CORDONED_GPUS_ANNOTATION] = "GPU-1"
    ready = {"a1": "True", "a2": "True", "m1": "Unknown", "t1": "False"}.get(name)
    made = {
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"unschedulable": name == "a2"},
        "status": {
            "conditions": [{"type": "Ready", "status": ready}] if ready else [],
            "allocatable": {"nvidia.com/gpu": "0"} if name == "x1" else {},
        },
    }
    await world.client.create(NODES, made)
    await eventually(lambda: world.cache.fleet.node(name) is not None)


async def add_pod(world, namespace, name, node="", scheduler="purser-scheduler", **limits):
    asked = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000", **limits}
    container = {"name": "c", "image": "i", "resources": {"limits": {k: v for k, v in asked.items() if v}}}
    pod = await world.client.create(
        PODS,
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"schedulerName": scheduler, "containers": [container]},
        },
    )
    await eventually(lambda: world.cache.pod_by_uid(pod.metadata.uid) is not None)
    if node:
        assert await world.bind(pod, node) == ""


@asynccontextmanager
async def filled(folder):
    """A scheduler of a cluster with pods in two namespaces, and both ways to ask."""
    async with asked_scheduler(folder) as scheduler:
        world = scheduler.world
        for name in ("team-b", "only-limited"):
            await world.client.create(NAMESPACES, {"metadata": {"name": name}})
        for name in NODES_WITH_GPUS:
            await add_node(world, name)
        for namespace, name, hard in QUOTAS:
            quota = {"metadata": {"name": name}, "spec": {"hard": hard}}
            await world.client.create(RESOURCE_QUOTAS, quota, namespace)
        await add_pod(world, "default", "one", "a1", **{"nvidia.com/gpucores": "20"})
        await add_pod(world, "team-b", "two", "a1")
        await add_pod(world, "team-b", "large", **{"nvidia.com/gpumem": "90000"})
        mig = {"nvidia.com/gpu": "", "nvidia.com/gpumem": "", "nvidia.com/mig-3g.20gb": "1"}
        await add_pod(world, "default", "slice", "m1", **mig)
        kubeconfig = world.api.write_kubeconfig(folder / "kubeconfig")

        async def get(*words):
            world.clock.ahead_s += 60  # nothing from before is new
            return await beside("get", *words, *scheduler.options)

        async def get_of_cluster(*words):
            return await beside("get", *words, f"--kubeconfig={kubeconfig}")

        yield scheduler, get, get_of_cluster


COMMANDS = [
    "gpus",
    "gpus -o wide",
    "gpus --model a100 --state free --sort-by -gpu",
    "gpus --state unhealthy --no-headers",
    "gpus --state cordoned",
    "gpus --node m1 --node t1 -o wide",
    "gpus --node a3",
    "gpus --sort-by age",
    "gpus --model H100",
    "nodes",
    "nodes -o wide --sort-by -memory",
    "nodes --model tesla",
    "grants -o wide",
    "grants -n team-b",
    "grants -n team-c",
    "grants --node m1 -A",
    "namespaces",
    "namespaces --sort-by -gpus",
]


async def test_tables_are_those_of_a_kubeconfig(tmp_path):
    async with filled(tmp_path) as (_, get, get_of_cluster):
        for command in COMMANDS:
            code, out, err = await get(*command.split())
            assert (code, out, err) == await get_of_cluster(*command.split()), command
        _, out, _ = await get("gpus", "-o", "wide")
        for word in (
            "(1g.5gb at 2)",
            "0000:07:00.0",
            "default/one,team-b/two",
            "MIG mode is enabled, but",
            "Xid 79",
            AGENT_AWAY,
        ):
            assert word in out
        _, out, _ = await get("nodes", "--no-headers")
        assert [line.split()[1] for line in out.splitlines()] == [
            "Ready",
            "Ready,SchedulingDisabled",
            "Unknown",
            "NotReady",
            "Unknown",
        ]
        _, out, _ = await get("namespaces", "--no-headers")
        assert [line.split() for line in out.splitlines()] == [
            ["default", "2", "0", "0.62", "21000", "120"],
            ["only-limited", "0", "0", "0.00", "0/8", "0"],
            ["team-b", "1", "1", "0.12", "1000/20000", "0/40"],
        ]


@pytest.mark.parametrize("what", ["gpus", "nodes", "grants", "namespaces"])
async def test_documents_have_no_other_fields_and_values_than_those_of_a_kubeconfig(tmp_path, what):
    async with filled(tmp_path) as (_, get, get_of_cluster):
        code, out, _ = await get(what, "-o", "json")
        assert code == 0
        told, known = json.loads(out), json.loads((await get_of_cluster(what, "-o", "json"))[1])
        assert yaml.safe_load((await get(what, "-o", "yaml"))[1]) == told
        left_out = set()
        assert _common(told, known, left_out) == told
        assert (
            left_out
            == {
                "gpus": {"exclusive", "alike", "core_numbers", "mig_kind"},
                "nodes": {"exclusive", "alike", "core_numbers", "mig_kind"},
                "grants": set(),
                "namespaces": set(),
            }[what]
        )


def _common(told, known, left_out):
    """Of what is known the fields that are told, too."""
    if isinstance(told, dict) and isinstance(known, dict):
        left_out |= known.keys() - told.keys()
        return {key: _common(told[key], known[key], left_out) for key in known if key in told}
    if isinstance(told, list) and isinstance(known, list) and len(told) == len(known):
        return [_common(*each, left_out) for each in zip(told, known, strict=True)]
    return known


def reviewed(right):
    """What an API server lets jane do: of ``get PATH`` and ``list KIND of NAMESPACE`` one thing."""

    async def review(request):
        if not request.path.endswith("/subjectaccessreviews"):
            return None
        spec = (await request.json())["spec"]
        of_path, of_kind = spec.get("nonResourceAttributes"), spec.get("resourceAttributes")
        asked = of_path["path"] if of_path else f"{of_kind['resource']} of {of_kind.get('namespace', '')}"
        return web.json_response({"status": {"allowed": asked == right}}, status=201)

    return review


async def test_readers_of_one_namespace_see_its_part_and_are_told_what_is_not_shown(tmp_path):
    async with filled(tmp_path) as (scheduler, get, _):
        scheduler.world.api.intercept(reviewed("pods of team-b"))
        hidden = (
            "purser: only GPUs that pods in namespace team-b hold are shown: the scheduler shows other GPUs to those "
            "who may list nodes\n"
        )
        code, out, err = await get("gpus", "-n", "team-b", "-o", "wide")
        assert (code, err, "default" in out) == (0, hidden, False)
        (line,) = out.splitlines()[1:]
        held = ["a1", "0", "NVIDIA", "A100", "Healthy", "2", "2/10", "2000/8000", "20/100"]
        assert (line.split()[:9], line.split()[-2:]) == (held, ["team-b/two", "-"])
        code, out, err = await get("nodes", "-n", "team-b", "--no-headers")
        assert (code, err, out.split()[:3]) == (0, hidden, ["a1", "Ready", "1"])
        code, out, err = await get("grants", "-n", "team-b", "--no-headers")
        assert (code, err, out.split()[:5]) == (0, "", ["team-b", "two", "c", "a1", "0"])
        code, out, err = await get("namespaces", "-n", "team-b", "--no-headers")
        assert (code, out.split()) == (0, ["team-b", "1", "1", "0.12", "1000/20000", "0/40"])
        code, out, err = await get("gpus", "-n", "team-b", "--node", "a2")
        assert (code, out) == (FAILED, "")
        assert "node a2 does not exist or has not published GPUs, or its GPUs are not shown to you\n" in err
        for words in (("gpus",), ("grants", "-A"), ("grants", "-n", "default"), ("nodes", "-n", "default")):
            code, out, err = await get(*words)
            assert (code, out, err.count("\n")) == (FAILED, "", 1)
            assert "answered 403: " in err
            assert 'user "jane" is not allowed to' in err


async def test_readers_of_one_namespace_see_of_gpus_in_mig_mode_those_of_their_own_devices(tmp_path):
    async with filled(tmp_path) as (scheduler, get, _):
        scheduler.world.api.intercept(reviewed("pods of default"))
        code, out, _ = await get("gpus", "-n", "default", "-o", "wide", "--no-headers")
        assert (code, [line.split()[:2] for line in out.splitlines()]) == (0, [["a1", "0"], ["m1", "1"]])
        code, out, _ = await get("nodes", "-n", "default", "--node", "m1", "-o", "json")
        assert [gpu["uuid"] for gpu in json.loads(out)[0]["cut"]] == ["GPU-cut"]
        code, out, _ = await get("namespaces", "-n", "default", "--no-headers")
        assert (code, out.split()[:4]) == (0, ["default", "2", "0", "0.62"]), "a part of the whole GPU"


async def test_readers_of_a_namespace_without_gpus_are_told_that_some_may_not_be_shown(tmp_path):
    async with filled(tmp_path) as (scheduler, get, _):
        scheduler.world.api.intercept(reviewed("pods of only-limited"))
        for *words, nothing in (
            ("gpus", "No node shown to you has published GPUs.\n"),
            ("nodes", "No node shown to you has published GPUs.\n"),
            ("gpus", "--state=free", "No GPU shown to you matches.\n"),
            ("nodes", "--model=A100", "No node shown to you matches.\n"),
        ):
            assert await get(*words, "-n", "only-limited") == (0, "", nothing)


def test_a_state_is_partial_where_it_has_no_gpu_but_those_that_pods_hold():
    on_node, held_cut, other_cut = states.node("n"), cut("GPU-cut"), cut("GPU-other")
    device = msgspec.structs.replace(states.gpu(), parent="GPU-cut")
    with_cut = msgspec.structs.replace(states.node("n", device), cut_gpus=(held_cut,))
    grants = (states.grant("p"),)
    assert is_partial(states.cluster((on_node,), grants))
    assert is_partial(states.cluster((with_cut,), grants))
    assert not is_partial(states.cluster((on_node, states.node("m", states.gpu(1))), grants))
    with_both = msgspec.structs.replace(with_cut, cut_gpus=(held_cut, other_cut))
    assert not is_partial(states.cluster((with_both,), grants)), "nobody holds a device of GPU-other"
    assert not is_partial(states.cluster())


def cut(uuid):
    return StateCutGpu(uuid, 1, "A100", 40000)


async def test_readers_of_one_namespace_who_may_list_nodes_see_all_gpus(tmp_path):
    async with filled(tmp_path) as (_, get, get_of_cluster):
        code, out, err = await get("nodes", "-n", "team-b")
        assert (code, out, err) == await get_of_cluster("nodes")


async def test_of_pods_that_wait_only_those_of_the_scheduler_that_is_asked_are_counted(tmp_path):
    async with filled(tmp_path) as (scheduler, get, get_of_cluster):
        await add_pod(scheduler.world, "team-b", "of-others", scheduler="default-scheduler")
        waiting = []
        for ask in (get, get_of_cluster):
            _, out, _ = await ask("namespaces", "-o", "json")
            waiting.append({each["namespace"]: each["waiting"] for each in json.loads(out)})
        assert [each["team-b"] for each in waiting] == [1, 2]
        told = "With --scheduler, WAITING counts only the pods of Purser's scheduler."
        assert told in get_module.NAMESPACES_HELP.replace("\n", " ")


async def test_nodes_whose_inventory_cannot_be_read_are_left_out(tmp_path):
    """Only a kubeconfig tells which, and an event of the node."""
    async with filled(tmp_path) as (scheduler, get, get_of_cluster):
        world = scheduler.world
        before = await get("nodes")
        assert before[0::2] == (0, "")
        await world.client.create(NODES, {"metadata": {"name": "bad", "annotations": {INVENTORY_ANNOTATION: "{"}}})
        await eventually(lambda: world.cache.node("bad") is not None)
        assert await get("nodes") == before
        code, out, err = await get_of_cluster("nodes")
        assert (code, out) == before[:2]
        assert "purser: node bad: " in err


async def test_the_view_of_gpushare_shows_nodes_and_pods_of_one_reading(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(snapshot, "fleet_of", lambda *of, real=snapshot.fleet_of: made.append(of) or real(*of))
    async with filled(tmp_path) as (_, _, get_of_cluster):
        code, out, err = await get_of_cluster("gpus", "--view", "gpushare")
        assert (code, err, len(made)) == (0, "", 1)
        assert out.splitlines()[1].split()[:4] == ["a1", "unknown", "2/7", "0/7"]
        code, out, _ = await get_of_cluster("gpus", "--view", "gpushare", "-o", "wide")
        assert (code, len(made)) == (0, 2)
        assert ["two", "team-b", "1", "0"] in [line.split() for line in out.splitlines()]


async def test_a_scheduler_that_is_away_is_an_error_in_a_line(tmp_path):
    async with scheduler_to_ask(tmp_path) as scheduler:
        for words in (("gpus",), ("gpus", "-w"), ("namespaces",)):
            code, out, err = await beside("get", *words, *scheduler.options)
            assert (code, out, err.count("\n")) == (FAILED, "", 1)
            assert f"https://127.0.0.1:{scheduler.port}/v1/state cannot be reached: Connection refused" in err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("gpus", "-l", "zone=a"), "--scheduler cannot be used with --selector, because the read API does not have"),
        (("nodes", "--kubeconfig=k"), "--scheduler cannot be used with --kubeconfig or --context"),
        (("grants", "--check"), "--scheduler cannot be used with --check"),
        (("gpus", "--view", "gpushare"), "--scheduler cannot be used with --view gpushare"),
        (("namespaces", "-n", "A/b"), "invalid value 'A/b' for --namespace: must be an RFC 1123 label"),
        (("gpus", "-w", "-o", "json"), "--watch supports only table output"),
    ],
)
def test_options_that_the_read_api_cannot_serve_are_refused(tmp_path, words, says):
    (tmp_path / "token").write_text("t")
    code, out, err = here("get", *words, "--scheduler=https://127.0.0.1:1", f"--token-file={tmp_path / 'token'}")
    assert (code, out, err.count("\n")) == (MISUSED, "", 1)
    assert says in err


@pytest.mark.parametrize("what", ["gpus", "nodes", "namespaces"])
def test_a_namespace_and_a_token_are_of_a_scheduler(what):
    assert here("get", what, "-n", "a") == (MISUSED, "", "purser: --namespace requires --scheduler\n")
    assert "require --scheduler" in here("get", what, "--token-file", "t")[2]
    assert "--scheduler requires a token" in here("get", what, "--scheduler", "https://h:1")[2]


async def test_changes_are_shown_also_after_a_restart(tmp_path):
    out, err = io.StringIO(), io.StringIO()

    def shown(state):
        return get_tables.node_rows(shown_of_state(state)), get_tables.node_columns()[:2]

    def lines(text=out):
        return [" ".join(line.split()) for line in text.getvalue().splitlines()]

    async with scheduler_to_ask(tmp_path) as scheduler:
        world, url = scheduler.world, f"https://127.0.0.1:{scheduler.port}"
        api = ReadApi(url, token_from_file(tmp_path / "token"), tmp_path / "ca.crt")
        with pytest.raises(KubeError, match="cannot be reached"):
            await watch_scheduler(api, HastyClock(), shown, OutputFormat.TABLE, headers=True)
        await add_node(world, "a1")
        clock = HastyClock()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            async with contextlib.AsyncExitStack() as stack:
                async with scheduler.restarted():
                    watch = watch_scheduler(api, clock, shown, OutputFormat.TABLE, headers=True)
                    await stack.enter_async_context(running(watch))
                    await eventually(lambda: lines() == ["NODE STATUS", "a1 Ready"])
                    await add_node(world, "t1")
                    await eventually(lambda: lines()[2:] == ["t1 NotReady"])
                assert len(lines()) == 3
                await eventually(lambda: "not up to date" in err.getvalue())
                attempts = len(clock.slept)
                await eventually(lambda: len(clock.slept) > attempts + 9)
                await world.client.patch_merge(NODES, "a1", {"spec": {"unschedulable": True}})
                await eventually(lambda: world.cache.node("a1").spec.unschedulable)
                async with scheduler.restarted():
                    await eventually(lambda: lines()[3:] == ["a1 Ready,SchedulingDisabled"])
                    said = lines(err)
        assert all(each.startswith("purser: not up to date: ") for each in said)
        assert not any(map(eq, said, said[1:])), "an outage is not said again at each attempt"


def test_devices_of_other_vendors_do_not_count_against_quotas_of_gpus():
    for resource, held in (("nvidia.com/gpu", 100), ("hygon.com/dcunum", 0)):
        device = msgspec.structs.replace(states.gpu(), resource=resource)
        shown = shown_of_state(states.cluster((states.node("n", device),), (states.grant("p"),)))
        (row,) = get_tables.namespace_rows(shown, {}, {})
        assert (row.pods, row.held.memory_mib) == (1, held)


def test_words_of_a_newer_scheduler_are_shown_as_they_are():
    instances = ("odd", f"odd at {'9' * 5000}")
    odd = msgspec.structs.replace(states.gpu(), mode="new-mode", enforcement="new-hold", instances=instances)
    shown = shown_of_state(states.cluster((states.node("n", odd),), (states.grant("p"),)))
    (row,) = get_tables.gpu_rows(shown)
    cells = {column.head: column.read(row) for column in get_tables.gpu_columns()}
    assert (cells["MODE"], cells["ENFORCES"], cells["INSTANCES"]) == ("new-mode", "new-hold", ["odd at 0"] * 2)
    document = get_tables.gpu_document(row)
    assert (document["mode"], document["enforcement"]) == ("new-mode", "new-hold")
    (row,) = get_tables.node_rows(shown)
    assert row.status == "", "schedulers of before do not tell it"


@pytest.mark.parametrize(
    ("health", "cordoned", "reason", "shown"),
    [
        (StateGpuHealth.UNHEALTHY, True, "Xid 79", ("Unhealthy", "Xid 79")),
        (StateGpuHealth.CORDONED, True, "", ("Cordoned", "")),
        (StateGpuHealth.CORDONED, True, "two pods hold it", ("Cordoned", "two pods hold it")),
        (StateGpuHealth.DISPUTED, False, "two pods hold it", ("Disputed", "two pods hold it")),
        (StateGpuHealth.HEALTHY, False, "", ("Healthy", "")),
    ],
)
def test_why_a_gpu_takes_no_pods_is_as_the_scheduler_says(health, cordoned, reason, shown):
    told = msgspec.structs.replace(states.gpu(health=health), cordoned=cordoned, reason=reason)
    (row,) = get_tables.gpu_rows(shown_of_state(states.cluster((states.node("n", told),))))
    cells = {column.head: column.read(row) for column in get_tables.gpu_columns()}
    assert (cells["HEALTH"], cells["REASON"]) == shown
