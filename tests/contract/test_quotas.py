"""ResourceQuotas over pods, and LimitRanges: what they refuse, in which words, and what quotas say is used."""

from typing import Any

import pytest

from .client import Api, until
from .objects import pod

GPU = "requests.nvidia.com/gpu"


async def quota(api: Api, ns: str, name: str, hard: dict[str, Any], **spec: Any) -> None:
    """A quota that is counted already."""
    body = {"metadata": {"name": name}, "spec": {"hard": hard, **spec}}
    (await api.post(f"{ns}/resourcequotas", body)).ok()
    await used(api, ns, name)


async def used(api: Api, ns: str, name: str, **expected: str) -> dict[str, str]:
    """What is used of it, once what is expected is."""

    async def probe() -> Any:
        there = (await api.get(f"{ns}/resourcequotas/{name}")).body.get("status", {}).get("used")
        return there if there and {**there, **expected} == there else None

    return await until(f"{name} uses {expected}", probe)  # type: ignore[no-any-return]


def asks(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts}


def gpus(count: int) -> dict[str, Any]:
    return {"limits": {"nvidia.com/gpu": count}}


async def test_a_quota_refuses_what_is_too_much_until_pods_end_or_are_gone(api: Api, ns: str) -> None:
    await quota(api, ns, "gpus", {GPU: 3, "pods": 9, "count/pods": 9})
    (await api.post(f"{ns}/pods", pod("a", resources=gpus(2)))).ok()
    (await api.post(f"{ns}/pods", pod("b", resources=gpus(1)), dryRun="All")).ok()
    (await api.post(f"{ns}/pods", pod("b", resources=gpus(1)))).ok()
    answer = await api.post(f"{ns}/pods", pod("c", resources=gpus(1)))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    why = f"exceeded quota: gpus, requested: {GPU}=1, used: {GPU}=3, limited: {GPU}=3"
    assert answer.message == f'pods "c" is forbidden: {why}'
    assert answer.body["details"] == {"name": "c", "kind": "pods"}
    (await api.patch(f"{ns}/pods/a", {"metadata": {"labels": {"full": "yes"}}})).ok()
    (await api.post(f"{ns}/pods", pod("none"))).ok()
    assert await used(api, ns, "gpus") == {GPU: "3", "pods": "3", "count/pods": "3"}
    (await api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Succeeded"}})).ok()
    await used(api, ns, "gpus", **{GPU: "1", "pods": "2", "count/pods": "3"})
    (await api.delete(f"{ns}/pods/b", gracePeriodSeconds=0)).ok()
    await used(api, ns, "gpus", **{GPU: "0", "pods": "1", "count/pods": "2"})
    (await api.post(f"{ns}/pods", pod("c", resources=gpus(3)))).ok()


async def test_a_list_of_quotas_shows_what_is_used(api: Api, ns: str) -> None:
    if api.minor < 36:
        pytest.skip("earlier releases have the columns in another order")
    await quota(api, ns, "gpus", {GPU: 3, "pods": 9, "limits.memory": "1Gi", "limits.nvidia.com/gpumem": 4096})
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    body = (await api.request("GET", f"{ns}/resourcequotas", headers=accept)).ok().body
    assert [column["name"] for column in body["columnDefinitions"]] == ["Name", "Request", "Limit", "Age"]
    name, *amounts, _ = body["rows"][0]["cells"]
    limits = "limits.memory: 0/1Gi, limits.nvidia.com/gpumem: 0/4096"
    assert (name, *amounts) == ("gpus", f"pods: 0/9, {GPU}: 0/3", limits)


async def test_a_quota_counts_in_the_largest_phase_of_a_pod_and_names_all_that_is_too_much(api: Api, ns: str) -> None:
    await quota(api, ns, "small", {"cpu": 2, "requests.memory": "2Gi", "limits.memory": "4Gi", "requests.cpu": 9})
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
    image = "registry.example/app:1"
    before = {"name": "before", "image": image, "resources": {**resources, "requests": {"cpu": 1, "memory": "1Gi"}}}
    beside = {"name": "beside", "image": image, "resources": resources, "restartPolicy": "Always"}
    if api.minor < 29:
        pytest.skip("sidecars came in 1.28, and for everybody in 1.29")
    asked = pod("a", resources=resources, initContainers=[beside, before])
    (await api.post(f"{ns}/pods", asked)).ok()
    counted = await used(api, ns, "small")
    assert counted == {"cpu": "1500m", "requests.memory": "2Gi", "limits.memory": "2Gi", "requests.cpu": "1500m"}
    answer = await api.post(f"{ns}/pods", {**asked, "metadata": {"name": "b"}})
    assert answer.message == (
        'pods "b" is forbidden: exceeded quota: small, requested: cpu=1500m,requests.memory=2Gi, '
        "used: cpu=1500m,requests.memory=2Gi, limited: cpu=2,requests.memory=2Gi"
    )


async def test_where_a_quota_is_over_cpu_or_memory_every_container_has_to_say_it(api: Api, ns: str) -> None:
    await quota(api, ns, "all", {"limits.cpu": 4, "requests.memory": "4Gi", GPU: 1, "requests.ephemeral-storage": 1})
    init = {"name": "init", "image": "registry.example/app:1"}
    asked = pod("a", resources={"requests": {"memory": "1Gi"}}, initContainers=[init])
    answer = await api.post(f"{ns}/pods", asked)
    why = "must specify limits.cpu for: init,main; requests.memory for: init"
    assert (answer.status, answer.message) == (403, f'pods "a" is forbidden: failed quota: all: {why}')


async def test_a_status_keeps_what_others_write_of_lines_that_are_not_counted(api: Api, ns: str) -> None:
    memory = "limits.nvidia.com/gpumem"
    await quota(api, ns, "gpus", {GPU: 3, memory: 4096})
    assert await used(api, ns, "gpus") == {GPU: "0"}
    path = f"{ns}/resourcequotas/gpus"
    (await api.patch(f"{path}/status", {"status": {"used": {memory: "1024", "requests.other.com/x": "1"}}})).ok()
    (await api.post(f"{ns}/pods", pod("a", resources=gpus(1)))).ok()
    await used(api, ns, "gpus", **{GPU: "1", memory: "1024"})
    (await api.patch(path, {"spec": {"hard": {GPU: 2}}})).ok()

    async def hard() -> Any:
        return (await api.get(path)).body["status"]["hard"][GPU] == "2"

    await until("the status has the new limit", hard)
    # kube-controller-manager counts anew for the new limit, and may not have seen the pod yet.
    assert await used(api, ns, "gpus", **{GPU: "1", memory: "1024"}) == {GPU: "1", memory: "1024"}


@pytest.mark.parametrize(
    ("scope", "counted", "others"),
    [
        ({"scopes": ["BestEffort"]}, {}, {"resources": asks(cpu="1")}),
        ({"scopes": ["NotBestEffort"]}, {"resources": asks(cpu="1")}, {}),
        ({"scopes": ["Terminating"]}, {"activeDeadlineSeconds": 60}, {}),
        ({"scopes": ["NotTerminating"]}, {}, {"activeDeadlineSeconds": 60}),
        (
            {"scopeSelector": [{"scopeName": "PriorityClass", "operator": "In", "values": ["system-node-critical"]}]},
            {"priorityClassName": "system-node-critical"},
            {"priorityClassName": "system-cluster-critical"},
        ),
        (
            {"scopeSelector": [{"scopeName": "PriorityClass", "operator": "DoesNotExist"}]},
            {},
            {"priorityClassName": "system-cluster-critical"},
        ),
    ],
)
async def test_scopes_choose_the_pods_that_count(
    api: Api, ns: str, scope: dict[str, Any], counted: dict[str, Any], others: dict[str, Any]
) -> None:
    if "scopeSelector" in scope:
        scope = {"scopeSelector": {"matchExpressions": scope["scopeSelector"]}}
    await quota(api, ns, "one", {"pods": 1}, **scope)
    for name in ("other", "another"):
        (await api.post(f"{ns}/pods", pod(name, **others))).ok()
    assert await used(api, ns, "one") == {"pods": "0"}
    (await api.post(f"{ns}/pods", pod("a", **counted))).ok()
    answer = await api.post(f"{ns}/pods", pod("b", **counted))
    assert "exceeded quota: one, requested: pods=1, used: pods=1, limited: pods=1" in answer.message


async def test_a_pod_that_comes_into_a_scope_is_held_to_its_quota(api: Api, ns: str) -> None:
    await quota(api, ns, "one", {"pods": 0}, scopes=["Terminating"])
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"activeDeadlineSeconds": 60}})
    assert "exceeded quota: one, requested: pods=1, used: pods=0, limited: pods=0" in answer.message


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"hard": {"gpus": 1}}, {("FieldValueInvalid", "spec.hard[gpus]")}),
        ({"hard": {"pods": -1}}, {("FieldValueInvalid", "spec.hard[pods]")}),
        (
            {"hard": {"pods": "1500m", "limits.nvidia.com/gpumem": "0.5", GPU: "0.5"}},
            {("FieldValueInvalid", "spec.hard[pods]"), ("FieldValueInvalid", "spec.hard[limits.nvidia.com/gpumem]")},
        ),
        ({"hard": {"pods": 1}, "scopes": ["Sometimes"]}, {("FieldValueInvalid", "spec.scopes")}),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In"}]}},
            {("FieldValueRequired", "spec.scopeSelector.matchExpressions.values")},
        ),
        (
            {"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort", "operator": "DoesNotExist"}]}},
            {("FieldValueInvalid", "spec.scopeSelector.matchExpressions.operator")},
        ),
    ],
)
async def test_a_quota_that_cannot_be_is_refused(api: Api, ns: str, spec: Any, causes: Any) -> None:
    answer = await api.post(f"{ns}/resourcequotas", {"metadata": {"name": "a"}, "spec": spec})
    assert answer.status == 422 and answer.causes == causes


async def limit_range(api: Api, ns: str, **item: Any) -> Any:
    body = {"metadata": {"name": "range"}, "spec": {"limits": [item]}}
    return (await api.post(f"{ns}/limitranges", body)).ok().body


async def test_a_limit_range_completes_containers_before_quotas_are_asked(api: Api, ns: str) -> None:
    body = await limit_range(
        api, ns, type="Container", max={"cpu": "2", "memory": "2Gi"}, min={"cpu": "0.1", "ephemeral-storage": "1Mi"},
        default={"memory": "1Gi"}, defaultRequest={"memory": "512Mi"},
    )  # fmt: skip
    [item] = body["spec"]["limits"]
    assert item["default"] == {"cpu": "2", "memory": "1Gi"}
    assert item["defaultRequest"] == {"cpu": "2", "memory": "512Mi", "ephemeral-storage": "1Mi"}
    await quota(api, ns, "all", {"requests.cpu": 2})
    init = {"name": "init", "image": "registry.example/app:1", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}
    asked = pod("a", resources={"requests": {"cpu": "500m"}}, initContainers=[init])
    body = (await api.post(f"{ns}/pods", asked)).ok().body
    main, init = body["spec"]["containers"][0]["resources"], body["spec"]["initContainers"][0]["resources"]
    assert main["limits"] == {"cpu": "2", "memory": "1Gi"}
    assert main["requests"] == {"cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Mi"}
    assert init["requests"] == {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Mi"}
    assert body["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: ephemeral-storage, memory request for container main; cpu, memory limit for container "
        "main; ephemeral-storage request for init container init"
    )
    assert (await used(api, ns, "all")) == {"requests.cpu": "1"}


@pytest.mark.parametrize(
    ("item", "resources", "why"),
    [
        (
            {"type": "Container", "max": {"nvidia.com/gpu": 1}},
            gpus(2),
            "maximum nvidia.com/gpu usage per Container is 1, but limit is 2",
        ),
        (
            {"type": "Container", "min": {"memory": "1Gi"}},
            asks(memory="512Mi"),
            "minimum memory usage per Container is 1Gi, but request is 512Mi",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": 2}},
            {"requests": {"cpu": "300m"}, "limits": {"cpu": "1"}},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.333333",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": 2}},
            None,
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
        ),
        ({"type": "Pod", "max": {"cpu": 1}}, None, "maximum cpu usage per Pod is 1.  No limit is specified"),
        ({"type": "Pod", "min": {"cpu": 1}}, None, "minimum cpu usage per Pod is 1.  No request is specified"),
        (
            {"type": "Pod", "max": {"cpu": 1}, "min": {"memory": "1Gi"}},
            asks(memory="1Mi"),
            "[minimum memory usage per Pod is 1Gi, but request is 1Mi, maximum cpu usage per Pod is 1.  "
            "No limit is specified]",
        ),
    ],
)
async def test_a_limit_range_refuses_in_the_plugins_words(
    api: Api, ns: str, item: dict[str, Any], resources: Any, why: str
) -> None:
    await limit_range(api, ns, **item)
    answer = await api.post(f"{ns}/pods", pod("a", resources=resources))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == f'pods "a" is forbidden: {why}'


def _causes(*fields: str, reason: str = "FieldValueInvalid") -> set[tuple[str, str]]:
    return {(reason, f"spec.limits[0].{field}") for field in fields}


CONTAINER, POD, CLAIM = ({"type": kind} for kind in ("Container", "Pod", "PersistentVolumeClaim"))
GPU_CAUSES = _causes("default[nvidia.com/gpu]", "defaultRequest[nvidia.com/gpu]")


@pytest.mark.parametrize(
    ("item", "causes"),
    [
        ({"type": "Node", "max": {"cpu": 1}}, _causes("type")),
        ({**CONTAINER, "max": {"gpus": 1}}, _causes("max[gpus]", "default[gpus]", "defaultRequest[gpus]")),
        ({**POD, "max": {"storage": 1}}, _causes("max[storage]")),
        ({**POD, "default": {"cpu": 1}}, _causes("default", reason="FieldValueForbidden")),
        ({**CLAIM, "max": {"cpu": 1}}, _causes("limits", reason="FieldValueRequired")),
        ({**POD, "min": {"cpu": 2}, "max": {"cpu": 1}}, _causes("min[cpu]")),
        ({**CONTAINER, "min": {"cpu": 2}, "defaultRequest": {"cpu": 1}}, _causes("defaultRequest[cpu]")),
        ({**CONTAINER, "default": {"cpu": 1}, "defaultRequest": {"cpu": 2}}, _causes("defaultRequest[cpu]")),
        (
            {
                **CONTAINER,
                "max": {"nvidia.com/gpu": 1},
                "default": {"nvidia.com/gpu": 2},
                "defaultRequest": {"nvidia.com/gpu": 1},
            },
            GPU_CAUSES,
        ),
        (
            {**CONTAINER, "default": {"nvidia.com/gpu": 2}, "defaultRequest": {"nvidia.com/gpu": 1}},
            _causes("defaultRequest[nvidia.com/gpu]"),
        ),
        ({**POD, "maxLimitRequestRatio": {"cpu": "500m"}}, _causes("maxLimitRequestRatio[cpu]")),
        (
            {**POD, "min": {"cpu": 1}, "max": {"cpu": 2}, "maxLimitRequestRatio": {"cpu": 3}},
            _causes("maxLimitRequestRatio[cpu]"),
        ),
    ],
)
async def test_a_limit_range_that_cannot_be_is_refused(api: Api, ns: str, item: Any, causes: Any) -> None:
    body = {"metadata": {"name": "a"}, "spec": {"limits": [item]}}
    answer = await api.post(f"{ns}/limitranges", body)
    assert answer.status == 422
    assert answer.causes == causes
