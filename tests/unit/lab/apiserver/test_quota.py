"""ResourceQuotas over pods: what a pod uses, and that quotas always say what their pods use together."""

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.lab.apiserver import StatusError, deletion, quota, quotakeeping, writes
from purser.lab.apiserver.amounts import add
from purser.lab.apiserver.bootstrap import fill
from purser.lab.apiserver.cluster import ApiRequest, Cluster
from purser.lab.apiserver.quantity import added, parse, subtracted
from purser.lab.apiserver.store import Selection

GPU = "requests.nvidia.com/gpu"


def container(requests: dict[str, str] | None = None, limits: dict[str, str] | None = None, **more: Any) -> Any:
    return {"name": "c", "image": "x", "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def of(*containers: Any, init: Any = (), **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": list(containers), "initContainers": list(init), **spec}}


ONE = {"count/pods": "1", "pods": "1"}


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        (of(container()), ONE),
        (
            of(container({"cpu": "1", "ephemeral-storage": "1Gi"}, {"cpu": "2", "memory": "1Gi"})),
            {
                "cpu": "1",
                "requests.cpu": "1",
                "limits.cpu": "2",
                "limits.memory": "1Gi",
                "ephemeral-storage": "1Gi",
                "requests.ephemeral-storage": "1Gi",
            },
        ),
        # Only requests of devices count, only with their prefix.
        (of(container({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "2"})), {GPU: "2"}),
        (of(container({"hugepages-2Mi": "4Mi"})), {"hugepages-2Mi": "4Mi", "requests.hugepages-2Mi": "4Mi"}),
        (of(container({"example.kubernetes.io/x": "1", "attachable-volumes-x": "1"})), {}),
        # The larger of the containers together and of an init container beside the sidecars before it.
        (
            of(
                *(container({"nvidia.com/gpu": "1"}), container({"nvidia.com/gpu": "2"})),
                init=[
                    container({"nvidia.com/gpu": "4"}),
                    container({"nvidia.com/gpu": "1"}, restartPolicy="Always"),
                    container({"nvidia.com/gpu": "4"}),
                ],
            ),
            {GPU: "5"},
        ),
        # What the pod as a whole says stands in place of its containers'; overhead is added to limits that there are.
        (
            of(
                container({"cpu": "1", "nvidia.com/gpu": "1"}, {"memory": "1Gi"}),
                resources={"requests": {"cpu": "3"}},
                overhead={"cpu": "250m", "memory": "64Mi"},
            ),
            {
                "cpu": "3250m",
                "requests.cpu": "3250m",
                GPU: "1",
                "memory": "64Mi",
                "requests.memory": "64Mi",
                "limits.memory": "1088Mi",
            },
        ),
    ],
)
def test_what_a_pod_uses(pod: dict[str, Any], expected: dict[str, str]) -> None:
    assert quota.usage(pod) == {**ONE, **expected}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_is_an_object_and_nothing_more(phase: str) -> None:
    assert quota.usage({**of(container({"cpu": "1"})), "status": {"phase": phase}}) == {"count/pods": "1"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, True) for name in ("pods", "count/pods", "cpu", "limits.memory", GPU, "requests.hugepages-1Gi")),
        ("requests.deviceclass.resource.kubernetes.io/gpu", True),
        *((name, False) for name in ("limits.nvidia.com/gpumem", "nvidia.com/gpu", "services", "count/jobs.batch")),
        ("requests.storage", False),
        ("requests.example.kubernetes.io/x", False),
    ],
)
def test_which_lines_are_counted(name: str, expected: bool) -> None:
    assert quota.is_counted(name) is expected


def test_pods_that_say_what_they_take_as_a_whole_need_not_say_it_by_container() -> None:
    wanted = {"spec": {"hard": {"limits.cpu": "4"}}}
    assert quota.missing_amounts(wanted, of(container())) == "must specify limits.cpu for: c"
    assert quota.missing_amounts(wanted, of(container(), resources={"requests": {"cpu": "1"}})) == ""


def test_sums_are_written_as_the_first_amount_that_is_not_zero() -> None:
    assert [added("1Gi", "512Mi"), added("0", "1Gi"), added("1Gi", "1G"), added("1", "500m")] == [
        *("1536Mi", "1Gi", "2073741824", "1500m")
    ]
    assert [subtracted("1Gi", "1Gi"), subtracted("2", "500m")] == ["0", "1500m"]


NAMES = ("a", "b", "c", "d")
ASKED = st.fixed_dictionaries({"nvidia.com/gpu": st.integers(0, 3), "cpu": st.sampled_from(["250m", "1", "2"])})
STEPS = st.one_of(
    st.tuples(st.just("create"), st.sampled_from(NAMES), ASKED),
    st.tuples(st.just("delete"), st.sampled_from(NAMES), st.sampled_from([0, 30])),
    st.tuples(st.just("end"), st.sampled_from(NAMES), st.sampled_from(["Succeeded", "Failed"])),
    st.tuples(st.just("bind"), st.sampled_from(NAMES), st.just("n")),
    st.tuples(st.just("deadline"), st.sampled_from(NAMES), st.just(60)),
    st.tuples(st.just("limit"), st.sampled_from(("all", "ending")), st.integers(0, 6)),
)


@given(st.lists(STEPS, max_size=25))
def test_a_quota_always_says_what_its_pods_use_and_is_exceeded_only_by_being_lowered(steps: list[Any]) -> None:
    asyncio.run(_live(steps))


async def _live(steps: list[Any]) -> None:
    cluster = Cluster(1000)
    fill(cluster)
    quotakeeping.follow(cluster)
    hard = {GPU: "4", "cpu": "3", "pods": "3", "count/pods": "4"}
    for name, scopes in (("all", []), ("ending", ["Terminating"])):
        spec = {"hard": hard, "scopes": scopes}
        await writes.create(cluster, _call(cluster, "resourcequotas"), {"metadata": {"name": name}, "spec": spec})
    for step in steps:
        allowed = {each["metadata"]["name"]: _within(each) for each in _all(cluster, "resourcequotas")}
        try:
            await _take(cluster, *step)
        except StatusError as error:
            assert error.code in (403, 404, 409, 422)
        for each in _all(cluster, "resourcequotas"):
            name = each["metadata"]["name"]
            assert each["status"]["used"] == _sum(cluster, each)
            assert each["status"]["hard"] == each["spec"]["hard"]
            assert _within(each) >= allowed[name] or step[:2] == ("limit", name)


async def _take(cluster: Cluster, what: str, name: str, more: Any) -> None:
    if what == "create":
        resources = {"limits": {"nvidia.com/gpu": more["nvidia.com/gpu"]}, "requests": {"cpu": more["cpu"]}}
        spec = {"containers": [{"name": "c", "image": "x", "resources": resources}]}
        await writes.create(cluster, _call(cluster, "pods"), {"metadata": {"name": name}, "spec": spec})
    elif what == "delete":
        await deletion.delete(cluster, _call(cluster, "pods", name), {"gracePeriodSeconds": more})
    elif what == "end":
        call = _call(cluster, "pods", name, "status")
        await writes.patch(cluster, call, writes.MERGE, {"status": {"phase": more}})
    elif what == "bind":
        pod = cluster.object("pods", "default", name)
        if pod:
            cluster.store.collections["pods"].put({**pod, "spec": {**pod["spec"], "nodeName": more}})
    elif what == "deadline":
        call = _call(cluster, "pods", name)
        await writes.patch(cluster, call, writes.MERGE, {"spec": {"activeDeadlineSeconds": more}})
    else:
        call = _call(cluster, "resourcequotas", name)
        await writes.patch(cluster, call, writes.MERGE, {"spec": {"hard": {GPU: more}}})


def _call(cluster: Cluster, storage: str, name: str = "", subresource: str = "") -> ApiRequest:
    return ApiRequest(cluster.resource(storage), "default", name, subresource)


def _all(cluster: Cluster, storage: str) -> list[Any]:
    return [record.object() for record in cluster.store.collections[storage].records(Selection(namespace="default"))]


def _within(each: Any) -> bool:
    used, hard = each["status"]["used"], each["status"]["hard"]
    return all(parse(used[name]) <= parse(hard[name]) for name in hard)


def _sum(cluster: Cluster, each: Any) -> dict[str, str]:
    """Told by hand: which pods are in it, and what these ask for."""
    total = dict.fromkeys(each["spec"]["hard"], "0")
    for pod in _all(cluster, "pods"):
        if each["metadata"]["name"] == "ending" and "activeDeadlineSeconds" not in pod["spec"]:
            continue
        total = add(total, {"count/pods": "1"})
        if pod["status"]["phase"] not in ("Succeeded", "Failed"):
            asked = pod["spec"]["containers"][0]["resources"]["requests"]
            total = add(total, {"pods": "1", "cpu": asked["cpu"], GPU: asked["nvidia.com/gpu"]})
    return total
