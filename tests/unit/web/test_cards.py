"""What counts as a GPU, and which health it has, is the same on all pages."""

import msgspec
import pytest
from tests.unit.top.states import cluster, gpu, grant, node

from purser.core.names import AGENT_AWAY, AGENT_STOPPING, NOT_LISTED
from purser.core.state import StateGpuHealth
from purser.web.cards import Health, device_name, health_of, mig_profile, takes_pods
from purser.web.fleet import fleet_of, summary_of
from purser.web.tables import node_rows, use_by_model, use_by_namespace

from .pages import Source, served
from .test_pages import text_of


def part(name, *, of=1, resource="nvidia.com/mig-1g.5gb", held=0, health=StateGpuHealth.HEALTHY):
    device = gpu(of, uuid=f"MIG-{name}", held=held, health=health)
    return msgspec.structs.replace(device, parent=f"GPU-{of}", mode="mig", resource=resource, slots=1, reason="")


CUT = node("n", gpu(0), part("a"), part("b", held=100, health=StateGpuHealth.UNHEALTHY), gpu(2))
PAUSED = msgspec.structs.replace(gpu(0, health=StateGpuHealth.UNHEALTHY), reason=AGENT_STOPPING)


def test_a_gpu_that_is_cut_counts_once_with_the_gravest_health_of_its_devices():
    state = cluster((CUT,))
    found = summary_of(state)
    assert (found.gpus, found.unhealthy, found.cores_percent) == (3, 1, 300)
    (row,) = node_rows(state)
    assert (row.gpus, row.unusable) == (3, [(Health.UNHEALTHY, 1)])


def test_a_node_has_the_compute_that_the_cluster_has():
    full = msgspec.structs.replace(gpu(0), cores_held_percent=100)
    busy, *idle = (part(name) for name in "abcdefg")
    cut = (msgspec.structs.replace(busy, cores_held_percent=100), *idle)
    state = cluster((node("n", full, *cut),))
    (row,), found = node_rows(state), summary_of(state)
    assert (row.cores.held, row.cores.total) == (found.cores_held_percent, found.cores_percent) == (114, 200)


def test_a_pod_with_two_devices_of_one_gpu_holds_one_gpu():
    holder = grant("p")
    (container,) = holder.containers
    shares = tuple(msgspec.structs.replace(container.shares[0], gpu=uuid) for uuid in ("MIG-a", "MIG-b"))
    holder = msgspec.structs.replace(holder, containers=(msgspec.structs.replace(container, shares=shares),))
    state = cluster((node("n", part("a", held=1), part("b", held=1)),), (holder,))
    assert [row.gpus for row in (*use_by_namespace(state), *use_by_model(state))] == [1, 1]


def test_a_degraded_gpu_takes_pods_and_is_not_healthy_to_look_at():
    worn = msgspec.structs.replace(gpu(0), degraded_reason="2 of 12 NVLinks are down")
    state = cluster((node("n", worn, gpu(1)),))
    found = summary_of(state)
    assert (found.gpus, found.degraded, found.unhealthy) == (2, 1, 0)
    (tile, _) = fleet_of(state)["n"].gpus
    assert (tile.state.health, tile.state.reason) == (Health.DEGRADED, "2 of 12 NVLinks are down")
    (row,) = node_rows(state, health="Degraded")
    assert row.unusable == [(Health.DEGRADED, 1)]
    assert takes_pods(node("n", worn)), "a note says where nothing on a node does"
    assert summary_of(cluster((node("n", worn, cordoned=True),))).cordoned == 1
    lost = msgspec.structs.replace(worn, health=StateGpuHealth.UNHEALTHY, reason="Xid 79")
    assert health_of(lost) is Health.UNHEALTHY


async def test_pages_say_what_is_wrong_with_a_degraded_gpu():
    worn = msgspec.structs.replace(gpu(0, held=100), degraded_reason="2 of 12 NVLinks are down")
    state = cluster((node("n", worn),), (grant("p"),))
    async with served(Source(state)) as (client, _):
        assert "1 GPU degraded" in await text_of(client, "/nodes?health=Degraded")
        assert ">Degraded</span>: 2 of 12 NVLinks are down" in await text_of(client, "/gpus/GPU-0")
        assert "which is degraded: 2 of 12 NVLinks are down" in await text_of(client, "/pods/default/p")


def test_gpus_of_an_agent_that_restarts_are_paused_and_not_unhealthy():
    found = summary_of(cluster((node("n", PAUSED, gpu(1)),)))
    assert (found.unhealthy, found.paused) == (0, 1)
    (tile, _) = fleet_of(cluster((node("n", PAUSED, gpu(1)),)))["n"].gpus
    assert tile.state.health is health_of(PAUSED) is Health.PAUSED
    assert health_of(msgspec.structs.replace(PAUSED, reason=AGENT_AWAY)) is Health.PAUSED
    of_another_plugin = msgspec.structs.replace(PAUSED, reason=NOT_LISTED)
    assert health_of(of_another_plugin) is Health.UNHEALTHY, "no agent of Purser's is missed there"
    lost = msgspec.structs.replace(PAUSED, reason="Xid 79")
    assert health_of(lost) is Health.UNHEALTHY


async def test_the_page_of_a_node_without_an_agent_says_what_to_look_for():
    paused = msgspec.structs.replace(PAUSED, uuid="GPU-p")
    nodes = (
        node("none", paused),
        node("some", gpu(0), msgspec.structs.replace(PAUSED, uuid="GPU-q")),
        node("all", gpu(0)),
    )
    async with served(Source(cluster(nodes))) as (client, _):
        pages = {each.name: await text_of(client, f"/nodes/{each.name}") for each in nodes}
    assert {name for name, page in pages.items() if "No GPU takes new pods" in page} == {"none"}
    assert {name for name, page in pages.items() if "Takes pods" in page} == {"some", "all"}
    asks = "-l app.kubernetes.io/component=agent --field-selector spec.nodeName="
    assert {name for name, page in pages.items() if "find out why the agent does not run" in page} == {"none", "some"}
    assert {name for name, page in pages.items() if f"{asks}{name}" in page} == {"none", "some"}


@pytest.mark.parametrize(
    ("resource", "profile", "name"),
    [
        ("nvidia.com/mig-1g.5gb", "1g.5gb", "MIG device 1g.5gb of GPU 1"),
        ("nvidia.com/mig-1g.10gb.me", "1g.10gb+me", "MIG device 1g.10gb+me of GPU 1"),
        ("nvidia.com/mig-2g.10gb.shared", "2g.10gb", "MIG device 2g.10gb of GPU 1"),
        ("nvidia.com/gpu", "", "MIG device of GPU 1"),
    ],
)
def test_a_mig_device_is_named_by_its_profile_and_its_gpu(resource, profile, name):
    device = part("a", resource=resource)
    assert (mig_profile(device), device_name(device)) == (profile, name)
    assert device_name(gpu(1)) == "GPU 1"


async def test_pages_name_mig_devices_beside_their_gpu():
    async with served(Source(cluster((CUT, node("m", PAUSED))))) as (client, _):
        page = await text_of(client, "/nodes/n")
        assert "3 GPUs of n, with a row for each MIG device" in page and page.count(">1, MIG 1g.5gb</a>") == 2
        assert page.index(">0</a>") < page.index(">1, MIG 1g.5gb</a>") < page.index(">2</a>")
        assert "<h1>MIG device 1g.5gb of GPU 1 of" in await text_of(client, "/gpus/MIG-a")
        assert "1 GPU paused" in await text_of(client, "/nodes?health=Paused")


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        ("find=default/holder", {"n"}),
        ("find=HOLDER+gpu-0", {"n"}),
        ("find=holder+gpu-1", set()),
        ("find=n+tesla", {"n"}),
        ("find=gpu-0&health=Paused", {"m"}),
        ("find=mig-b&health=Unhealthy", {"n"}),
        ("find=gpu-2&health=Unhealthy", set()),
    ],
)
async def test_the_table_finds_what_the_fleets_page_finds(query, nodes):
    state = cluster((CUT, node("m", msgspec.structs.replace(PAUSED, uuid="GPU-0m"))), (grant("holder"),))
    async with served(Source(state)) as (client, _):
        text = await text_of(client, f"/nodes?{query}")
    assert {name for name in ("n", "m") if f'href="/nodes/{name}"' in text} == nodes
