"""Pods: what is filled in, what is refused, binding, and deletion with grace."""

from typing import Any

import pytest

from .client import JSON_PATCH, MERGE, STRATEGIC, Api, until
from .objects import binding, pod


async def test_defaults_that_clients_rely_on(api: Api, ns: str) -> None:
    asked = pod("a")
    del asked["spec"]["schedulerName"]
    body = (await api.post(f"{ns}/pods", asked)).ok().body
    spec = body["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["enableServiceLinks"] is True
    assert spec["serviceAccountName"] == spec["serviceAccount"] == "default"
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert spec["securityContext"] == {}
    container = spec["containers"][0]
    assert (container["imagePullPolicy"], container["resources"]) == ("IfNotPresent", {})
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    keys = [toleration["key"] for toleration in spec["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


async def test_requests_follow_limits_and_quantities_become_canonical(api: Api, ns: str) -> None:
    limits = {"cpu": "0.5", "memory": "1024Mi", "nvidia.com/gpu": 1, "ephemeral-storage": "1e3"}
    body = (await api.post(f"{ns}/pods", pod("a", resources={"limits": limits, "requests": {"cpu": 0.25}}))).ok().body
    resources = body["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1", "ephemeral-storage": "1e3"}
    assert resources["requests"] == {**resources["limits"], "cpu": "250m"}


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        ({}, {}, "BestEffort"),
        ({"nvidia.com/gpu": "1"}, {}, "BestEffort"),
        ({"cpu": "1", "memory": "1Gi"}, {}, "Guaranteed"),
        ({"cpu": "1", "memory": "1Gi"}, {"cpu": "500m"}, "Burstable"),
        ({}, {"cpu": "1"}, "Burstable"),
    ],
)
async def test_quality_of_service(api: Api, ns: str, limits: Any, requests: Any, expected: str) -> None:
    resources = {"limits": limits, "requests": requests}
    body = (await api.post(f"{ns}/pods", pod("a", resources=resources))).ok().body
    assert body["status"]["qosClass"] == expected


async def test_status_is_not_the_creators_to_set(api: Api, ns: str) -> None:
    body = {**pod("a"), "status": {"phase": "Running"}}
    assert (await api.post(f"{ns}/pods", body)).body["status"]["phase"] == "Pending"


async def test_missing_parts_are_required(api: Api, ns: str) -> None:
    body = pod("a")
    body["spec"]["containers"] = []
    answer = await api.post(f"{ns}/pods", body)
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == 'Pod "a" is invalid: spec.containers: Required value'
    body["spec"]["containers"] = [{"name": "x"}]
    answer = await api.post(f"{ns}/pods", body)
    assert answer.message == 'Pod "a" is invalid: spec.containers[0].image: Required value'
    body["spec"]["containers"] = [{"image": "x"}]
    assert ("FieldValueRequired", "spec.containers[0].name") in (await api.post(f"{ns}/pods", body)).causes


async def test_duplicate_and_bad_container_names_are_invalid(api: Api, ns: str) -> None:
    body = pod("a")
    body["spec"]["containers"] *= 2
    answer = await api.post(f"{ns}/pods", body)
    assert answer.causes == {("FieldValueDuplicate", "spec.containers[1].name")}
    body["spec"]["containers"] = [{"name": "Bad_Name", "image": "x"}]
    answer = await api.post(f"{ns}/pods", body)
    assert answer.causes == {("FieldValueInvalid", "spec.containers[0].name")}


async def test_a_containers_ports_and_mounts_do_not_come_twice(api: Api, ns: str) -> None:
    body = pod("a", volumes=[{"name": "v", "emptyDir": {}}])
    container = body["spec"]["containers"][0]
    container["ports"] = [{"name": "x", "containerPort": 80}, {"name": "x", "containerPort": 81}]
    answer = await api.post(f"{ns}/pods", body)
    assert answer.causes == {("FieldValueDuplicate", "spec.containers[0].ports[1].name")}
    del container["ports"]
    container["volumeMounts"] = [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a", "subPath": "b"}]
    answer = await api.post(f"{ns}/pods", body)
    assert answer.causes == {("FieldValueInvalid", "spec.containers[0].volumeMounts[1].mountPath")}


async def test_an_unknown_restart_policy_is_not_supported(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/pods", pod("a", restartPolicy="Sometimes"))
    assert answer.causes == {("FieldValueNotSupported", "spec.restartPolicy")}
    assert 'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "' in answer.message


async def test_a_request_above_its_limit_is_invalid(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/pods", pod("a", resources={"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}))
    assert answer.causes == {("FieldValueInvalid", "spec.containers[0].resources.requests")}
    assert 'Invalid value: "2": must be less than or equal to cpu limit' in answer.message


async def test_extended_resources_are_not_overcommitted(api: Api, ns: str) -> None:
    gpu = "nvidia.com/gpu"
    answer = await api.post(f"{ns}/pods", pod("a", resources={"limits": {gpu: "2"}, "requests": {gpu: "1"}}))
    assert answer.causes == {("FieldValueInvalid", "spec.containers[0].resources.requests")}
    assert 'Invalid value: "1": must be equal to nvidia.com/gpu limit' in answer.message
    answer = await api.post(f"{ns}/pods", pod("a", resources={"requests": {gpu: "1"}}))
    assert answer.causes == {("FieldValueRequired", "spec.containers[0].resources.limits")}
    assert "Limit must be set for non overcommitable resources" in answer.message


async def test_extended_resources_are_whole_numbers(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/pods", pod("a", resources={"limits": {"nvidia.com/gpu": "500m"}}))
    assert ("FieldValueInvalid", "spec.containers[0].resources.limits[nvidia.com/gpu]") in answer.causes
    assert "must be an integer" in answer.message


async def test_resource_names_are_standard_or_qualified(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/pods", pod("a", resources={"limits": {"gpu": "1"}}))
    assert answer.status == 422
    assert "must be a standard resource type or fully qualified" in answer.message


async def test_a_quantity_that_is_none_cannot_be_read(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/pods", pod("a", resources={"limits": {"cpu": "many"}}))
    assert answer.status == 400
    assert "quantities must match the regular expression" in answer.message


async def test_an_unknown_priority_class_is_forbidden(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/pods", pod("a", priorityClassName="nothing-like-it"))
    assert (answer.status, answer.reason) == (403, "Forbidden")
    assert answer.message == 'pods "a" is forbidden: no PriorityClass with name nothing-like-it was found'


async def test_a_priority_class_gives_the_priority(api: Api, ns: str, unique: str) -> None:
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    (await api.post(path, {"metadata": {"name": unique}, "value": 77, "preemptionPolicy": "Never"})).ok()
    spec = (await api.post(f"{ns}/pods", pod("a", priorityClassName=unique))).ok().body["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (77, "Never")
    await api.delete(f"{path}/{unique}")


async def test_most_of_a_pods_spec_cannot_change(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"hostname": "other"}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueForbidden", "spec")}
    assert "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`" in answer.message
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"nodeName": "n"}})
    assert answer.causes == {("FieldValueForbidden", "spec")}


async def test_image_deadline_labels_and_more_tolerations_can_change(api: Api, ns: str) -> None:
    live = (await api.post(f"{ns}/pods", pod("a"))).body["spec"]["tolerations"]
    patch = {
        "metadata": {"labels": {"x": "y"}, "annotations": {"a": "b"}},
        "spec": {
            "activeDeadlineSeconds": 60,
            "containers": [{"name": "main", "image": "registry.example/app:2"}],
            "tolerations": [*live, {"key": "k", "operator": "Exists"}],
        },
    }
    body = (await api.patch(f"{ns}/pods/a", patch, STRATEGIC)).ok().body
    assert body["spec"]["containers"][0]["image"] == "registry.example/app:2"
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"tolerations": live[:1]}})
    assert answer.status == 422
    assert any(field.startswith("spec.tolerations") for _, field in answer.causes)


async def test_gates_can_only_be_removed_and_until_then_the_selector_can_become_narrower(api: Api, ns: str) -> None:
    if api.minor < 27:
        pytest.skip("gates came in 1.26, and changes of a gated pod's selector in 1.27")
    gates = [{"name": "contract.dev/a"}, {"name": "contract.dev/b"}]
    body = (await api.post(f"{ns}/pods", pod("a", schedulingGates=gates, nodeSelector={"x": "1"}))).ok().body
    (condition,) = body["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    answer = await api.post(f"{ns}/pods/a/binding", binding("a", "n1"))
    assert answer.status == 409 and "pod a has non-empty .spec.schedulingGates" in answer.message
    more = [*gates, {"name": "contract.dev/c"}]
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"schedulingGates": more}})
    assert answer.causes == {("FieldValueForbidden", "spec.schedulingGates[2].name")}
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"nodeSelector": {"x": "2"}}})
    assert answer.causes == {("FieldValueInvalid", "spec.nodeSelector")}
    (await api.patch(f"{ns}/pods/a", {"spec": {"nodeSelector": {"y": "1"}, "schedulingGates": gates[1:]}})).ok()
    body = (await api.patch(f"{ns}/pods/a", {"spec": {"schedulingGates": None}})).ok().body
    assert "schedulingGates" not in body["spec"] and body["spec"]["nodeSelector"] == {"x": "1", "y": "1"}
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"nodeSelector": {"z": "1"}}})
    assert answer.causes == {("FieldValueForbidden", "spec")}
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"schedulingGates": gates}})
    assert ("FieldValueForbidden", "spec.schedulingGates[0].name") in answer.causes


@pytest.mark.parametrize(
    ("patch", "kind", "left"),
    [
        ({"spec": {"schedulingGates": []}}, MERGE, []),
        ([{"op": "remove", "path": "/spec/schedulingGates"}], JSON_PATCH, []),
        ([{"op": "remove", "path": "/spec/schedulingGates/0"}], JSON_PATCH, ["contract.dev/b"]),
        (
            {"spec": {"schedulingGates": [{"$patch": "delete", "name": "contract.dev/b"}]}},
            STRATEGIC,
            ["contract.dev/a"],
        ),
    ],
    ids=["an empty list", "all by JSON patch", "one by JSON patch", "one by its name"],
)
async def test_gates_are_removed_by_any_patch(api: Api, ns: str, patch: Any, kind: str, left: list[str]) -> None:
    if api.minor < 26:
        pytest.skip("gates came in 1.26")
    gates = [{"name": "contract.dev/a"}, {"name": "contract.dev/b"}]
    (await api.post(f"{ns}/pods", pod("a", schedulingGates=gates))).ok()
    body = (await api.patch(f"{ns}/pods/a", patch, kind)).ok().body
    assert [each["name"] for each in body["spec"].get("schedulingGates", ())] == left


async def test_a_binding_sets_node_annotations_and_condition_in_one_write(api: Api, ns: str) -> None:
    version = (await api.get(f"{ns}/pods")).version
    created = (await api.post(f"{ns}/pods", pod("a"))).body
    answer = await api.post(
        f"{ns}/pods/a/binding", binding("a", "n1", uid=created["metadata"]["uid"], annotations={"contract.dev/g": "1"})
    )
    assert (answer.status, answer.body["status"]) == (201, "Success")
    async with api.watch(f"{ns}/pods", resourceVersion=version) as watch:
        assert (await watch.next())["type"] == "ADDED"
        bound = await watch.next()
    assert bound["type"] == "MODIFIED"
    body = bound["object"]
    assert body["spec"]["nodeName"] == "n1"
    assert body["metadata"]["annotations"] == {"contract.dev/g": "1"}
    condition = body["status"]["conditions"][0]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


async def test_a_bound_pod_cannot_be_bound_again(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    (await api.post(f"{ns}/pods/a/binding", binding("a", "n1"))).ok()
    answer = await api.post(f"{ns}/pods/a/binding", binding("a", "n2"))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
    )


async def test_a_binding_for_another_uid_is_refused(api: Api, ns: str) -> None:
    if api.minor < 22:  # older servers bind whatever has the name
        return
    await api.post(f"{ns}/pods", pod("a"))
    answer = await api.post(f"{ns}/pods/a/binding", binding("a", "n1", uid="11111111-2222-3333-4444-555555555555"))
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 11111111-2222-3333-4444-555555555555" in answer.message
    assert "nodeName" not in (await api.get(f"{ns}/pods/a")).body["spec"]


async def test_a_binding_needs_a_pod_and_a_target(api: Api, ns: str) -> None:
    assert (await api.post(f"{ns}/pods/none/binding", binding("none", "n1"))).status == 404
    await api.post(f"{ns}/pods", pod("a"))
    body = binding("a", "n1")
    del body["target"]["name"]
    assert (await api.post(f"{ns}/pods/a/binding", body)).status in (422, 500)


async def test_a_pod_being_deleted_cannot_be_bound(api: Api, ns: str) -> None:
    body = pod("a")
    body["metadata"]["finalizers"] = ["contract.dev/hold"]
    await api.post(f"{ns}/pods", body)
    await api.delete(f"{ns}/pods/a")
    answer = await api.post(f"{ns}/pods/a/binding", binding("a", "n1"))
    assert answer.status == 409
    assert "pod a is being deleted, cannot be assigned to a host" in answer.message
    await api.patch(f"{ns}/pods/a", {"metadata": {"finalizers": None}})


async def test_an_unbound_pod_goes_at_once(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    answer = await api.delete(f"{ns}/pods/a")
    assert answer.status == 200
    assert answer.body["kind"] == "Pod"
    assert (await api.get(f"{ns}/pods/a")).status == 404


async def test_a_bound_pod_stays_until_its_kubelet_lets_it_go(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a", terminationGracePeriodSeconds=100))
    (await api.post(f"{ns}/pods/a/binding", binding("a", "no-such-node-1"))).ok()
    deleted = (await api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 50})).ok().body
    assert deleted["metadata"]["deletionGracePeriodSeconds"] == 50
    assert deleted["metadata"]["deletionTimestamp"] > deleted["metadata"]["creationTimestamp"]
    shorter = (await api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 20})).ok().body
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 20
    longer = (await api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 90})).ok().body
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 20
    assert (await api.get(f"{ns}/pods/a")).status == 200
    (await api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 0})).ok()
    assert (await api.get(f"{ns}/pods/a")).status == 404


async def test_a_bound_pod_that_has_ended_goes_at_once(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    (await api.post(f"{ns}/pods/a/binding", binding("a", "no-such-node-2"))).ok()
    await api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Failed"}})
    (await api.delete(f"{ns}/pods/a")).ok()
    assert (await api.get(f"{ns}/pods/a")).status == 404


async def test_eviction_deletes_and_budgets_refuse(api: Api, ns: str) -> None:
    version = "v1" if api.minor >= 22 else "v1beta1"
    eviction = {"apiVersion": f"policy/{version}", "kind": "Eviction", "metadata": {"name": "a"}}
    await api.post(f"{ns}/pods", pod("a"))
    (await api.post(f"{ns}/pods/a/eviction", eviction)).ok()
    assert (await api.get(f"{ns}/pods/a")).status == 404

    budgets = ns.replace("/api/v1", f"/apis/policy/{version}") + "/poddisruptionbudgets"
    budget = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    (await api.post(budgets, budget)).ok()
    await api.post(f"{ns}/pods", pod("a", labels={"app": "x"}))
    (await api.post(f"{ns}/pods/a/binding", binding("a", "no-such-node-3"))).ok()
    await api.patch(f"{ns}/pods/a/status", {"status": {"phase": "Running"}})

    async def refused() -> bool:
        answer = await api.post(f"{ns}/pods/a/eviction", eviction)
        return answer.status == 429 and answer.reason == "TooManyRequests"

    assert await until("the budget refuses", refused)
    assert "deletionTimestamp" not in (await api.get(f"{ns}/pods/a")).body["metadata"]


async def test_an_unscheduled_pod_has_no_logs(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    assert (await api.get(f"{ns}/pods/a/log")).status == 204
    assert (await api.get(f"{ns}/pods/a/log", container="other")).status == 400
    assert (await api.get(f"{ns}/pods/none/log")).status == 404


async def test_a_nodes_own_status_comes_with_its_creation(api: Api, unique: str) -> None:
    status = {"capacity": {"cpu": "8", "nvidia.com/gpu": "8"}, "conditions": [{"type": "Ready", "status": "True"}]}
    created = (await api.post("/api/v1/nodes", {"metadata": {"name": unique}, "status": status})).ok().body
    assert created["status"]["capacity"]["nvidia.com/gpu"] == "8"
    assert created["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    patch = {"status": {"allocatable": {"nvidia.com/gpu": "6"}}}
    await api.patch(f"/api/v1/nodes/{unique}", patch)
    unchanged = (await api.get(f"/api/v1/nodes/{unique}")).body
    assert unchanged["status"]["allocatable"]["nvidia.com/gpu"] == "8"
    changed = (await api.patch(f"/api/v1/nodes/{unique}/status", patch, STRATEGIC)).ok().body
    assert changed["status"]["allocatable"]["nvidia.com/gpu"] == "6"
    await api.delete(f"/api/v1/nodes/{unique}")


@pytest.mark.parametrize(
    ("resources", "cause"),
    [
        ({"limits": {"nvidia.com/gpu": "1"}}, ("FieldValueNotSupported", "spec.resources.limits[nvidia.com/gpu]")),
        (
            {"requests": {"ephemeral-storage": "1"}},
            ("FieldValueNotSupported", "spec.resources.requests[ephemeral-storage]"),
        ),
        ({"requests": {"cpu": "100m"}}, ("FieldValueInvalid", "spec.resources.requests[cpu]")),
        ({"limits": {"cpu": "100m"}}, ("FieldValueInvalid", "spec.resources.containers[0][cpu].limits")),
    ],
)
async def test_a_pod_as_a_whole_asks_for_cpu_memory_and_huge_pages(
    api: Api, ns: str, resources: Any, cause: tuple[str, str]
) -> None:
    if api.minor < 34:
        pytest.skip("older servers drop what a pod asks for as a whole")
    answer = await api.post(f"{ns}/pods", _whole(resources))
    assert cause in answer.causes
    if cause[0] == "FieldValueNotSupported":
        assert 'supported values: "cpu", "hugepages-", "memory"' in answer.message


async def test_what_a_pod_asks_for_as_a_whole_decides_its_quality_of_service(api: Api, ns: str) -> None:
    if api.minor < 34:
        pytest.skip("older servers drop what a pod asks for as a whole")
    limits = {"cpu": "1", "memory": "1Gi"}
    body = (await api.post(f"{ns}/pods", _whole({"limits": limits}))).ok().body
    assert body["spec"]["resources"]["requests"] == {"cpu": "200m", "memory": "1Gi"}
    assert body["status"]["qosClass"] == "Burstable"
    whole = {**_whole({"limits": limits, "requests": limits}), "metadata": {"name": "b"}}
    assert (await api.post(f"{ns}/pods", whole)).ok().body["status"]["qosClass"] == "Guaranteed"


def _whole(resources: Any) -> dict[str, Any]:
    body = pod("a", resources={"limits": {"cpu": "200m"}})
    body["spec"]["resources"] = resources
    return body
