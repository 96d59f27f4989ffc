"""Quotas that pods wait for: what the pages show of them, to whom, and of which pods."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.top.states import cluster, gpu, grant, node, waiting

from purser.core.model import ContainerKind
from purser.core.state import StateQuota
from purser.web.quotas import MAX_HOLDERS, MAX_QUOTAS, quotas_of_groups, quotas_of_pod
from purser.web.tables import waiting_groups

from .pages import Source, served
from .test_logins import PART, ReadApi, browser, get, log_in, named, server
from .test_pages import HOSTILE, text_of

MEMORY, CORES = "limits.nvidia.com/gpumem", "limits.nvidia.com/gpucores"
NODES = (node("n", gpu(0)),)
EXCEEDED = "exceeded quota: gpus, requested: limits.nvidia.com/gpumem=900, used: ..."
WAITS = waiting("p", "ResourceQuotaNotFit", EXCEEDED)


def quota(held, limit, namespace="default", resource=MEMORY, name="gpus", family=""):
    return StateQuota(namespace, name, resource, family, held, limit)


def limited(*quotas, nodes=NODES, grants=(), waits=(WAITS,)):
    return msgspec.structs.replace(cluster(nodes, grants, waits), quotas=quotas)


async def test_a_pod_that_waits_for_a_quota_shows_what_is_held_of_it_and_by_which_pods_most():
    sizes = {"small": 1000, "large": 9000, "none": 0, "middle": 5000, "tiny": 10, "least": 1}
    grants = [grant(name, memory=size) for name, size in sizes.items()]
    elsewhere = named(grant("elsewhere", memory=99_000), "team-b")
    state = limited(quota(15_011, 16_000), grants=(*grants, elsewhere))
    async with served(Source(state)) as (client, _):
        for path in ("/waiting", "/pods/default/p"):
            text = " ".join((await text_of(client, path)).split())
            assert '<meter min="0" max="100" value="94">94%</meter> 15,011 of 16,000 MiB' in text
            row = text[text.index(MEMORY) :].partition("</tr>")[0]
            assert [name for name in sizes if f"/pods/default/{name}" in row] == ["small", "large", "middle"]
            assert row.index("large</a> (9,000 MiB)") < row.index("middle</a> (5,000 MiB)") < row.index("small</a>")
            assert 'and <a href="/?find=default/">2 other pods</a>' in row
            assert "elsewhere" not in text


async def test_quotas_of_pods_that_wait_for_something_else_are_not_shown():
    async with served(Source(limited(quota(1, 2), waits=(waiting("p"),)))) as (client, _):
        assert MEMORY not in await text_of(client, "/waiting")
        assert MEMORY not in await text_of(client, "/pods/default/p")


async def test_a_quota_that_only_some_nodes_name_and_a_pod_that_is_searched_for():
    reason = msgspec.structs.replace(WAITS.reasons[0], reason="ResourceQuotaNotFit")
    other = waiting("q")
    also = msgspec.structs.replace(other, reasons=(*other.reasons, reason))
    b = named(WAITS, "team-b")
    state = limited(quota(1, 2), quota(3, 4, "team-b"), waits=(also, b))
    async with served(Source(state)) as (client, _):
        assert "1 of 2 MiB" in await text_of(client, "/waiting?find=q")
        found = await text_of(client, "/waiting?find=team-b")
        assert "3 of 4 MiB" in found and "1 of 2 MiB" not in found


async def test_a_scheduler_that_reports_no_quotas_leaves_it_to_kubectl():
    async with served(Source(limited())) as (client, _):
        for path in ("/waiting", "/pods/default/p"):
            text = await text_of(client, path)
            assert "How much is held of the quotas of default is not known here." in text
            assert "kubectl describe quota -n default" in text


async def test_a_viewer_of_a_namespace_sees_its_own_quota_alone():
    waits = named(WAITS, "team-a")
    part = limited(quota(7, 9, "team-a"), nodes=(), grants=(named(grant("own", memory=7), "team-a"),), waits=(waits,))
    async with server(ReadApi(viewer__teama=part, other__teama=PART)) as url, browser(url) as client:
        await log_in(client, "viewer", "team-a")
        _, _, text = await get(client, "/waiting")
        assert "7 of 9 MiB" in text and "/pods/team-a/own" in text and "team-b" not in text
        assert "kubectl purser why deployment/NAME -n team-a\n" in text
        assert "kubectl get events -n team-a --field-selector reason=FailedCreate" in text


async def test_what_is_refused_before_it_exists_has_a_command_also_while_nothing_waits():
    async with served(Source(limited(waits=()))) as (client, _):
        text = await text_of(client, "/waiting")
        assert "No pod that asks for a GPU is waiting." in text
        assert "kubectl purser why deployment/NAME -n NAMESPACE" in text
        assert "kubectl get events --all-namespaces --field-selector reason=FailedCreate" in text


async def test_names_of_quotas_never_become_markup():
    waits = named(WAITS, HOSTILE)
    held = named(grant(HOSTILE), HOSTILE)
    state = limited(quota(1, 2, HOSTILE, HOSTILE, HOSTILE), grants=(held,), waits=(waits,))
    for each in (state, msgspec.structs.replace(state, quotas=())):
        async with served(Source(each)) as (client, _):
            text = await text_of(client, "/waiting")
            assert "&lt;script&gt;" in text and "<script>alert" not in text


def rows(state):
    (found,) = quotas_of_groups(state, waiting_groups(state))
    return found.rows


def test_compute_is_in_percent_and_the_fullest_limit_comes_first():
    share = grant("p-0").containers[0].shares[0]
    half = msgspec.structs.replace(share, cores_percent=50)
    container = msgspec.structs.replace(grant("p-0").containers[0], shares=(half, half))
    init = msgspec.structs.replace(container, kind=ContainerKind.INIT)
    held = msgspec.structs.replace(grant("p-0"), containers=(init, container))
    state = limited(quota(1, 100), quota(100, 100, resource=CORES), quota(0, 0, name="closed"), grants=(held,))
    found = rows(state)
    assert [(row.quota.quota, row.unit, row.amount.percent) for row in found] == [
        ("closed", " MiB", 0),
        ("gpus", "%", 100),
        ("gpus", " MiB", 1),
    ]
    assert [(each.pod, each.amount) for each in found[1].holders] == [("p-0", 100)], "init containers and apps once"


def test_a_quota_over_other_vendors_devices_counts_these_in_their_units():
    hygon = msgspec.structs.replace(gpu(1), uuid="GPU-1", resource="hygon.com/dcunum")
    on = {
        "dcu": msgspec.structs.replace(grant("dcu").containers[0].shares[0], gpu="GPU-1", memory_mib=300),
        "nvidia": grant("nvidia").containers[0].shares[0],
    }
    grants = tuple(
        msgspec.structs.replace(
            grant(name), containers=(msgspec.structs.replace(grant(name).containers[0], shares=(share,)),)
        )
        for name, share in on.items()
    )
    quotas = (quota(100, 1000), quota(300, 400, resource="limits.hygon.com/dcumem", family="hygon.com/dcunum"))
    found = rows(limited(*quotas, nodes=(node("n", gpu(0), hygon),), grants=grants))
    assert [[(each.pod, each.amount) for each in row.holders] for row in found] == [[("dcu", 300)], [("nvidia", 100)]]


@pytest.mark.parametrize("family", ["example.com/new", "<b>"])
def test_a_quota_over_devices_that_only_a_newer_scheduler_knows_is_shown_without_pods(family):
    (row,) = rows(limited(quota(5, 9, resource="limits.example.com/x", family=family), grants=(grant("p"),)))
    assert (row.amount.held, row.unit, row.holders, row.others) == (5, "", (), 0)


def test_of_many_quotas_the_fullest_are_shown():
    waits = tuple(named(waiting("p", "ResourceQuotaNotFit"), f"ns-{n}") for n in range(MAX_QUOTAS + 5))
    state = limited(*(quota(n, 100, f"ns-{n}") for n in range(MAX_QUOTAS + 5)), waits=waits)
    (found,) = quotas_of_groups(state, waiting_groups(state))
    assert (len(found.rows), found.total, found.rows[0].quota.namespace) == (MAX_QUOTAS, MAX_QUOTAS + 5, "ns-54")


_namespaces = st.sampled_from(("alpha", "bravo", "crane"))


@given(
    st.lists(st.tuples(_namespaces, st.integers(0, 5), st.integers(-1, 5)), max_size=8),
    st.lists(st.tuples(_namespaces, st.integers(0, 5)), max_size=12),
    st.lists(st.tuples(_namespaces, st.booleans()), min_size=1, max_size=6),
)
def test_a_waiting_pod_shows_quotas_and_pods_of_its_own_namespace_alone(quotas, held, waits):
    grants = tuple(named(grant(f"{ns}-held-{n}", memory=amount), ns) for n, (ns, amount) in enumerate(held))
    reasons = {True: "ResourceQuotaNotFit", False: "CardInsufficientMemory"}
    pods = tuple(named(waiting(f"{ns}-waits-{n}", reasons[is_over]), ns) for n, (ns, is_over) in enumerate(waits))
    limits = tuple(quota(amount, limit, ns, name=f"{ns}-{n}") for n, (ns, amount, limit) in enumerate(quotas))
    state = limited(*limits, grants=grants, waits=pods)
    for pod in pods:
        found = quotas_of_pod(state, pod)
        is_over = pod.reason == "ResourceQuotaNotFit"
        assert [row.quota for row in found.rows] == sorted(
            (each for each in limits if each.namespace == pod.namespace and is_over),
            key=lambda each: (-each.held / each.limit if each.limit > 0 else float("-inf"), each.quota),
        )
        assert {name for row in found.rows for name in (row.quota.namespace, *(h.namespace for h in row.holders))} <= {
            pod.namespace
        }
        own = sum(amount > 0 for ns, amount in held if ns == pod.namespace)
        assert all((len(row.holders), row.others) == (min(own, MAX_HOLDERS), max(own - 3, 0)) for row in found.rows)
        assert list(found.unknown) == ([pod.namespace] if is_over and not found.rows else [])
