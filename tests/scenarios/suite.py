"""The scenarios. Each is a test function over a fixture ``cluster``; import this module's names into a test module.

They hold on any cluster that fulfils `Cluster`: the embedded lab and a real Kubernetes alike.
"""

import asyncio
import re
from collections.abc import Callable

import pytest

from purser.adapters.objects import read_objects
from purser.core.names import GRANT_ANNOTATION, GRANT_SIGNATURE_ANNOTATION, SCHEDULER_NAME
from purser.kube.errors import ApiError
from purser.kube.resource_quotas import RESOURCE_QUOTAS
from purser.kube.resources import EVENTS, PODS, untyped_resource
from purser.scheduler.explaining import ChangeKind, Explainer
from tests.scenarios.actions import (
    absent,
    allocatable,
    cards,
    check_books,
    check_environment,
    create,
    delete,
    event,
    eventually,
    gone,
    grant_of,
    has_event,
    hears_of_its_gpu,
    is_running,
    no_gpu_is_left,
    offers,
    pod_named,
    pods,
    pods_per_card,
    reports_unhealthy,
    running,
    without_volatile,
)
from tests.scenarios.cluster import Cluster
from tests.scenarios.pods import (
    GPU,
    GPUCORES,
    GPUMEM,
    GPUMEM_PERCENTAGE,
    OWNERS,
    Raw,
    container,
    half,
    owner,
    pod,
    replica_set,
    share,
    whole,
)

__all__ = [
    "test_a_card_that_dies_takes_only_its_own_slots_and_gives_them_back_when_it_recovers",
    "test_a_pod_that_does_not_fit_waits_says_why_and_runs_when_room_appears",
    "test_a_pod_that_waits_is_told_what_change_makes_it_fit_and_so_changed_it_runs",
    "test_an_app_container_takes_over_the_card_of_its_init_container",
    "test_eight_whole_gpu_pods_get_eight_cards_and_one_pod_gets_all_eight",
    "test_gpu_pod_that_slipped_past_the_webhook_gets_no_device_and_an_event_says_what_to_do",
    "test_grant_annotations_of_a_bound_pod_cannot_be_changed",
    "test_more_devices_than_any_node_has_is_a_warning_not_a_refusal",
    "test_only_the_last_of_many_nodes_fits_and_gets_the_pod_at_the_first_try",
    "test_pods_without_gpus_are_untouched_with_and_without_the_webhook",
    "test_refusals_say_what_to_change",
    "test_running_pods_survive_restarts_and_no_share_is_lost_or_given_twice",
    "test_sixteen_half_gpu_pods_at_once_are_two_on_every_gpu",
    "test_three_shares_pack_or_spread_and_all_books_agree",
    "test_while_nothing_of_the_scheduler_is_there_owners_gpu_pods_wait_and_afterwards_they_run",
    "test_while_the_agent_is_away_new_pods_wait_and_afterwards_they_run",
]

REPLICA_SETS = untyped_resource("apps", "v1", "replicasets", "ReplicaSet")
SLOTS = 80


# --- 1


@pytest.mark.parametrize(
    ("annotation", "policy", "card_count"),
    [
        ("purser.dev/gpu-policy", "binpack", 1),
        ("purser.dev/gpu-policy", "spread", 3),
        pytest.param("hami.io/gpu-scheduler-policy", "spread", 3, marks=pytest.mark.gate),
    ],
)
async def test_three_shares_pack_or_spread_and_all_books_agree(cluster: Cluster, annotation, policy, card_count):
    names = ("one", "two", "three")
    for name in names:
        await create(cluster, pod(cluster, name, share(), annotations={annotation: policy}))
    found = await running(cluster, names)
    assert len(pods_per_card(found.values())) == card_count
    for one in found.values():
        env = await check_environment(cluster, one)
        assert env["NVIDIA_VISIBLE_DEVICES"] == cards(one)[0]
        assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "10240m"
        assert env["CUDA_DEVICE_SM_LIMIT"] == "30"
    await check_books(cluster)


@pytest.mark.oldest
async def test_an_app_container_takes_over_the_card_of_its_init_container(cluster: Cluster):
    init = container(cluster, share(), "prepare", command=["true"])
    await create(cluster, pod(cluster, "staged", share(), init_containers=[init]))
    found = (await running(cluster, ["staged"]))["staged"]
    assert cards(found, "prepare") == cards(found, "main")
    await check_books(cluster)


# --- 2


@pytest.mark.oldest
async def test_a_pod_that_does_not_fit_waits_says_why_and_runs_when_room_appears(cluster: Cluster):
    holders = [f"holder-{place}" for place in range(8)]
    await create(cluster, *(pod(cluster, name, share(memory=30000, cores=10)) for name in holders))
    await running(cluster, holders)
    await create(cluster, pod(cluster, "late", share(memory=20000, cores=10)))
    message = await event(cluster, "late", "FailedScheduling", "nodes are available", "no suitable GPU")
    assert "8 GPUs on 1 node have less than 20000 MiB of memory free" in message
    late = await pod_named(cluster, "late")
    assert late["status"]["phase"] == "Pending"
    assert grant_of(late) is None
    await delete(cluster, holders[3])
    found = await running(cluster, ["late"])
    assert cards(found["late"])
    await check_books(cluster)


@pytest.mark.gate
async def test_a_pod_that_waits_is_told_what_change_makes_it_fit_and_so_changed_it_runs(cluster: Cluster):
    holders = [f"holder-{place}" for place in range(8)]
    await create(cluster, *(pod(cluster, name, share(memory=30000, cores=10)) for name in holders))
    await running(cluster, holders)
    await create(cluster, pod(cluster, "late", share(memory=20000, cores=10)))
    message = await event(cluster, "late", "FitsIfChanged", "There is room now if container main requests")
    fits = re.search(rf"{GPUMEM}: (\d+) instead of 20000$", message)
    assert fits, message

    quota = {"metadata": {"name": "ample"}, "spec": {"hard": {f"limits.{GPUMEM}": "1000000"}}}
    await cluster.client.create(RESOURCE_QUOTAS, quota, cluster.namespace)  # for kube-scheduler to try it again
    await eventually(cluster, "the condition ends with the advice", lambda: _is_advised(cluster, fits[0]))
    await cluster.client.delete(RESOURCE_QUOTAS, "ample", cluster.namespace)

    await create(cluster, pod(cluster, "larger", share(memory=int(fits[1]) + 1, cores=10)))
    await event(cluster, "larger", "FailedScheduling", "no suitable GPU")
    await create(cluster, pod(cluster, "changed", share(memory=int(fits[1]), cores=10)))
    assert cards((await running(cluster, ["changed"]))["changed"])
    await check_books(cluster)


async def _is_advised(cluster: Cluster, advice: str) -> bool:
    conditions = (await pod_named(cluster, "late"))["status"].get("conditions") or ()
    found = [each.get("message", "") for each in conditions if each["type"] == "PodScheduled"]
    assert any("; there is room if container main requests" in each and advice in each for each in found), found
    return True


# --- 3


async def test_eight_whole_gpu_pods_get_eight_cards_and_one_pod_gets_all_eight(cluster: Cluster):
    names = [f"whole-{place}" for place in range(8)]
    await create(cluster, *(pod(cluster, name, whole()) for name in names))
    found = await running(cluster, names)
    assert pods_per_card(found.values()) == dict.fromkeys(cluster.uuids, 1)
    await check_books(cluster)
    await delete(cluster, *names)
    await create(cluster, pod(cluster, "all", whole(8)))
    found = await running(cluster, ["all"])
    assert sorted(cards(found["all"])) == sorted(cluster.uuids)
    await check_books(cluster)


# --- 4

ROUNDS = 3
"""How often sixteen pods come at once: in another order each time, the last time in KAI's words, whose own scheduler
has put three on one GPU then (its issue 2153)."""


@pytest.mark.gate
async def test_sixteen_half_gpu_pods_at_once_are_two_on_every_gpu(cluster: Cluster):
    for turn in range(ROUNDS):
        names = [f"half-{turn}-{place}" for place in range(16)]
        in_kais_words = turn == ROUNDS - 1
        wanted = {"annotations": {"gpu-fraction": "0.5"}, "schedulerName": SCHEDULER_NAME} if in_kais_words else {}
        limits = None if in_kais_words else half()
        await create(cluster, *(pod(cluster, name, limits, **wanted) for name in names))
        found = await running(cluster, names)
        if in_kais_words:
            portions = {(await check_environment(cluster, one))["GPU_PORTION"] for one in found.values()}
            assert portions == {"0.50"}
        assert pods_per_card(found.values()) == dict.fromkeys(cluster.uuids, 2), f"round {turn}"
        await check_books(cluster)
        await delete(cluster, *names)


# --- 5


DOWN_S = 0.5
"""How long a component stays dead while pods come and go."""


async def restart_kubelet(cluster: Cluster) -> None:
    await cluster.restart_kubelet(cluster.gpu_node)


async def kill_and_start_agent(cluster: Cluster) -> None:
    await cluster.kill_agent(cluster.gpu_node)
    await asyncio.sleep(DOWN_S)
    await cluster.start_agent(cluster.gpu_node)


async def kill_and_start_scheduler(cluster: Cluster) -> None:
    await cluster.kill_scheduler()
    await asyncio.sleep(DOWN_S)
    await cluster.start_scheduler()


@pytest.mark.gate
@pytest.mark.oldest
@pytest.mark.parametrize("restart", [restart_kubelet, kill_and_start_agent, kill_and_start_scheduler])
async def test_running_pods_survive_restarts_and_no_share_is_lost_or_given_twice(cluster: Cluster, restart):
    steady = ["steady-share", "steady-whole"]
    await create(cluster, pod(cluster, steady[0], share()), pod(cluster, steady[1], whole(2)))
    before = await running(cluster, steady)
    envs = {name: await check_environment(cluster, before[name]) for name in steady}
    # A ReplicaSet replaces what kubelet rejects while its plugin is away, as on any cluster.
    await cluster.client.create(REPLICA_SETS, replica_set(cluster, "churn", 6, share(4000, 10)), cluster.namespace)
    churning = asyncio.create_task(_churn(cluster))
    try:
        for _ in range(2):
            await asyncio.sleep(DOWN_S)
            await restart(cluster)
        await offers(cluster, SLOTS)
    finally:
        churning.cancel()
        await asyncio.gather(churning, return_exceptions=True)
    await offers(cluster, SLOTS)
    await _replicas_run(cluster, 6)
    after = await running(cluster, steady)
    for name in steady:
        assert without_volatile(after[name]) == without_volatile(before[name])
        assert await cluster.container_env(name, "main") == envs[name]
    await check_books(cluster)
    await create(cluster, pod(cluster, "new", whole()))
    found = await running(cluster, ["new"])
    assert not set(cards(found["new"])) & set(cards(after["steady-whole"]))
    await check_books(cluster)


async def _churn(cluster: Cluster) -> None:
    """Delete a replica now and then, so that pods come and go all the time."""
    while True:
        replicas = [one for one in await pods(cluster) if one["metadata"]["name"].startswith("churn-")]
        for one in replicas[:1]:
            await cluster.client.delete(PODS, one["metadata"]["name"], cluster.namespace, grace_period_seconds=0)
        await asyncio.sleep(0.2)


async def _replicas_run(cluster: Cluster, count: int) -> None:
    async def probe() -> bool:
        found = [one for one in await pods(cluster) if one["metadata"]["name"].startswith("churn-")]
        assert sum(map(is_running, found)) == count, f"{sum(map(is_running, found))} run"
        return True

    await eventually(cluster, f"{count} replicas run", probe)


# --- 6


@pytest.mark.gate
@pytest.mark.oldest
async def test_a_card_that_dies_takes_only_its_own_slots_and_gives_them_back_when_it_recovers(cluster: Cluster):
    await offers(cluster, SLOTS)
    await create(cluster, pod(cluster, "before", share()))
    before = (await running(cluster, ["before"]))["before"]
    lost = (cluster.uuids.index(cards(before)[0]) + 1) % 8
    chosen = {"nvidia.com/use-gpuuuid": cluster.uuids[lost]}
    await create(cluster, pod(cluster, "holder", share(), annotations=chosen))
    await running(cluster, ["holder"])
    try:
        await cluster.lose_gpu(cluster.gpu_node, lost)
        await offers(cluster, SLOTS - 10)
        await reports_unhealthy(cluster, {cluster.uuids[lost]})
        await hears_of_its_gpu(cluster, "holder", True)
        names = [f"after-{place}" for place in range(7)]
        await create(cluster, *(pod(cluster, name, share(20000, 50)) for name in names))
        found = await running(cluster, names)
        assert cluster.uuids[lost] not in pods_per_card(found.values())
        assert len(pods_per_card(found.values())) >= 4
        assert without_volatile(await pod_named(cluster, "before")) == without_volatile(before)
        await check_books(cluster)
    finally:
        await cluster.recover_gpu(cluster.gpu_node, lost)
    await offers(cluster, SLOTS)
    await hears_of_its_gpu(cluster, "holder", False)
    await delete(cluster, "before", "holder", *names)
    await create(cluster, pod(cluster, "all", whole(8)))
    await running(cluster, ["all"])


# --- 7


@pytest.mark.parametrize(
    ("limits", "pod_fields", "parts"),
    [
        (share(), {"container_fields": {"securityContext": {"privileged": True}}}, ["privileged", '"main"']),
        (share(), {"nodeName": "somewhere"}, ["nodeName", "node selector"]),
        (share(memory="16Gi"), {}, [GPUMEM, "16Gi", '"main"']),
        ({GPU: "1", GPUMEM_PERCENTAGE: "101"}, {}, [GPUMEM_PERCENTAGE, "101", '"main"']),
        (share(cores=101), {}, [GPUCORES, "101", '"main"']),
        (
            share(),
            {"annotations": {GRANT_ANNOTATION: "{}", GRANT_SIGNATURE_ANNOTATION: "eA=="}},
            [GRANT_ANNOTATION, "Remove"],
        ),
    ],
    ids=["privileged", "node name", "quantity", "percentage 101", "cores 101", "forged grant"],
)
async def test_refusals_say_what_to_change(cluster: Cluster, limits, pod_fields, parts):
    with pytest.raises(ApiError) as caught:
        await create(cluster, pod(cluster, "refused", limits, **pod_fields))
    for part in parts:
        assert part in str(caught.value)
    assert await absent(cluster, "refused")


@pytest.mark.oldest
async def test_grant_annotations_of_a_bound_pod_cannot_be_changed(cluster: Cluster):
    await create(cluster, pod(cluster, "bound", share()))
    bound = (await running(cluster, ["bound"]))["bound"]
    for value in ('{"forged": true}', None):
        patch = {"metadata": {"annotations": {GRANT_ANNOTATION: value}}}
        with pytest.raises(ApiError) as caught:
            await cluster.client.patch_merge(PODS, "bound", patch, cluster.namespace)
        assert GRANT_ANNOTATION in str(caught.value)
    assert grant_of(await pod_named(cluster, "bound")) == grant_of(bound)


async def test_more_devices_than_any_node_has_is_a_warning_not_a_refusal(cluster: Cluster):
    await create(cluster, pod(cluster, "giant", whole(9)))
    await event(cluster, "giant", "FailedScheduling", "nodes are available")
    giant = await pod_named(cluster, "giant")
    assert (giant["status"]["phase"], grant_of(giant)) == ("Pending", None)


# --- 8


async def test_pods_without_gpus_are_untouched_with_and_without_the_webhook(cluster: Cluster):
    async def plain(name: str) -> None:
        await create(cluster, pod(cluster, name, None))
        found = (await running(cluster, [name]))[name]
        assert found["spec"]["schedulerName"] == "default-scheduler"
        assert not any("purser" in key or "hami" in key for key in found["metadata"].get("annotations") or {})
        assert "resources" not in found["spec"]["containers"][0] or not found["spec"]["containers"][0]["resources"]

    await plain("with")
    await cluster.stop_webhook()
    try:
        await plain("without")
    finally:
        await cluster.start_webhook()


@pytest.mark.oldest
async def test_gpu_pod_that_slipped_past_the_webhook_gets_no_device_and_an_event_says_what_to_do(cluster: Cluster):
    # Naming the node, it needs no scheduler either: the refusal of scenario 7 did not meet it.
    slipped = owner(cluster, "Deployment", "slipped", share())
    slipped["spec"]["template"]["spec"]["nodeName"] = cluster.gpu_node

    async def waits() -> Raw | None:
        return next(filter(_waits_for_its_grant, await pods(cluster)), None)

    await cluster.stop_webhook()
    try:
        await cluster.client.create(OWNERS["Deployment"], slipped, cluster.namespace)
        # kubelet fails a pod that it does not admit, and its controller would make another at once.
        found = await eventually(cluster, "the pod is admitted, and does not start", waits)
    finally:
        await cluster.start_webhook()
    message = await event(cluster, found["metadata"]["name"], "NoGrant", "grant")
    assert "purser" in message.lower()
    await create(cluster, pod(cluster, "proper", share()))
    await running(cluster, ["proper"])
    await cluster.client.delete(OWNERS["Deployment"], "slipped", cluster.namespace)
    await gone(cluster, found["metadata"]["name"])
    await check_books(cluster)


def _waits_for_its_grant(found: Raw) -> bool:
    waiting = [each["state"].get("waiting") or {} for each in found["status"].get("containerStatuses", ())]
    messages = [each.get("message", "") for each in waiting if each.get("reason") == "CreateContainerConfigError"]
    return found["status"]["phase"] == "Pending" and any("has no grant from Purser" in each for each in messages)


@pytest.mark.gate
@pytest.mark.oldest
async def test_while_nothing_of_the_scheduler_is_there_owners_gpu_pods_wait_and_afterwards_they_run(cluster: Cluster):
    """They are bound by the default scheduler, for nobody gave them another. None fails, and none is made twice."""
    kinds = [kind for kind in OWNERS if kind != "Job"]
    wanted = [(kind, limits) for kind in kinds for limits in (whole(), share(2048, 10), None)]

    async def all_are(what: str, is_so: Callable[[Raw], bool]) -> list[Raw]:
        async def probe() -> list[Raw]:
            found = await pods(cluster)
            assert not [each["status"] for each in found if each["status"].get("phase") not in ("Pending", "Running")]
            others = sorted(each["metadata"]["name"] for each in found if not is_so(each))
            assert len(found) == len(wanted) and not others, others
            return found

        return await eventually(cluster, what, probe)

    def asks(each: Raw) -> bool:
        return bool(each["spec"]["containers"][0].get("resources", {}).get("limits"))

    await cluster.kill_scheduler()
    try:
        for place, (kind, limits) in enumerate(wanted):
            body = owner(cluster, kind, f"{kind.lower()}-{place}", limits)
            await cluster.client.create(OWNERS[kind], body, cluster.namespace)
        waiting = await all_are("all wait", lambda each: _waits_for_its_grant(each) if asks(each) else is_running(each))
        events = (await cluster.client.list(EVENTS, cluster.namespace)).items
        refused = [each.message for each in events if each.reason in ("UnexpectedAdmissionError", "FailedCreate")]
        # StatefulSets' controller of 1.20 may create a pod that is there already, before it has heard of it.
        refused = [each for each in refused if "please try again" not in each]
        assert not refused, refused
    finally:
        await cluster.start_scheduler()
    found = await all_are("all run", is_running)
    plain = {each["metadata"]["uid"] for each in waiting if not asks(each)}
    assert {each["metadata"]["uid"] for each in waiting} & {each["metadata"]["uid"] for each in found} == plain
    assert all(bool(grant_of(each)) == asks(each) for each in found)
    await check_books(cluster)
    for place, (kind, _) in enumerate(wanted):
        await cluster.client.delete(OWNERS[kind], f"{kind.lower()}-{place}", cluster.namespace)


@pytest.mark.oldest
async def test_while_the_agent_is_away_new_pods_wait_and_afterwards_they_run(cluster: Cluster):
    await create(cluster, pod(cluster, "before", share()))
    await running(cluster, ["before"])
    await cluster.kill_agent(cluster.gpu_node)

    await no_gpu_is_left(cluster)
    await create(cluster, pod(cluster, "plain", None))
    await cluster.client.create(OWNERS["Deployment"], owner(cluster, "Deployment", "d", share()), cluster.namespace)
    await running(cluster, ["before", "plain"])

    async def owned() -> Raw | None:
        return next((each for each in await pods(cluster) if each["metadata"]["name"].startswith("d-")), None)

    first = (await eventually(cluster, "the Deployment has a pod", owned))["metadata"]["name"]
    await event(cluster, first, "FailedScheduling", GPU)
    why = Explainer(await read_objects(cluster.client)).explain(cluster.namespace, first)
    assert any("lists 0 nvidia.com/gpu" in each.text for each in why.reasons), why.reasons
    assert (ChangeKind.AGENT, cluster.gpu_node) in {(each.kind, each.change.node) for each in why.suggestions}
    await cluster.start_agent(cluster.gpu_node)
    await running(cluster, ["before", first])
    await check_books(cluster)
    await cluster.client.delete(OWNERS["Deployment"], "d", cluster.namespace)


# --- 9


@pytest.mark.gate
async def test_only_the_last_of_many_nodes_fits_and_gets_the_pod_at_the_first_try(cluster: Cluster, hollow_count):
    async with cluster.hollow_nodes(hollow_count) as names:
        await _nodes_known(cluster, names)
        # A real controller-manager takes minutes to lift the taint "not ready" from so many new nodes.
        wanted = pod(
            cluster,
            "rare",
            share(memory=60000, cores=30),
            nodeSelector={"purser.dev/hollow": "true"},
            tolerations=[{"operator": "Exists"}],
        )
        await create(cluster, wanted)

        async def bound():
            found = await pod_named(cluster, "rare")
            return found if found["spec"].get("nodeName") else None

        found = await eventually(cluster, "the pod is bound", bound)
        assert found["spec"]["nodeName"] == names[-1]
        assert cards(found) == (f"GPU-{names[-1]}",)
        assert not await has_event(cluster, "rare", "FailedScheduling")
        await delete(cluster, "rare")  # Kubernetes would take a minute to notice that its node is gone


async def _nodes_known(cluster: Cluster, names: tuple[str, ...]) -> None:
    """The schedulers know all nodes: informers hear of them in one order, and of the last one no later than of a pod
    that is bound there."""
    last = {"kubernetes.io/hostname": names[-1]}
    await create(cluster, pod(cluster, "first", share(1, 1), nodeSelector=last, tolerations=[{"operator": "Exists"}]))

    async def bound() -> bool:
        return bool((await pod_named(cluster, "first"))["spec"].get("nodeName"))

    await eventually(cluster, "a pod is bound to the last hollow node", bound)
    await delete(cluster, "first")
    assert await allocatable(cluster) == SLOTS
