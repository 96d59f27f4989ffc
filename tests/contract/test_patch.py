"""The patch types other than apply."""

from .client import JSON_PATCH, MERGE, STRATEGIC, Api
from .objects import config_map, deployment, pod


async def test_merge_patch_merges_and_null_deletes(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", {"x": "1", "y": "1"}, labels={"l": "1"}))
    answer = await api.patch(f"{ns}/configmaps/a", {"data": {"x": None, "z": "2"}}, MERGE)
    assert answer.ok().body["data"] == {"y": "1", "z": "2"}
    assert answer.body["metadata"]["labels"] == {"l": "1"}


async def test_merge_patch_with_a_stale_version_is_a_conflict(api: Api, ns: str) -> None:
    created = await api.post(f"{ns}/configmaps", config_map("a"))
    await api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}})
    stale = {"metadata": {"resourceVersion": created.version}, "data": {"x": "2"}}
    answer = await api.patch(f"{ns}/configmaps/a", stale)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified; please apply your changes to the latest version" in answer.message


async def test_patch_of_an_absent_object_is_not_found(api: Api, ns: str) -> None:
    assert (await api.patch(f"{ns}/configmaps/a", {"data": {}})).status == 404


async def test_json_patch_operations(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}, annotations={"a/b": "1"}))
    operations = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "replace", "path": "/data/x", "value": "2"},
        {"op": "add", "path": "/data/y", "value": "3"},
        {"op": "remove", "path": "/metadata/annotations/a~1b"},
        {"op": "copy", "from": "/data/y", "path": "/data/z"},
        {"op": "move", "from": "/data/x", "path": "/data/w"},
    ]
    answer = await api.patch(f"{ns}/configmaps/a", operations, JSON_PATCH)
    assert answer.ok().body["data"] == {"y": "3", "z": "3", "w": "2"}
    assert "annotations" not in answer.body["metadata"]


async def test_a_failed_test_is_unprocessable(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}))
    answer = await api.patch(f"{ns}/configmaps/a", [{"op": "test", "path": "/data/x", "value": "2"}], JSON_PATCH)
    assert (answer.status, answer.reason) == (422, "Invalid")
    answer = await api.patch(f"{ns}/configmaps/a", [{"op": "remove", "path": "/data/none"}], JSON_PATCH)
    assert answer.status == 422


async def test_a_patch_that_is_no_patch_is_a_bad_request(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a"))
    assert (await api.patch(f"{ns}/configmaps/a", {"op": "add"}, JSON_PATCH)).status in (400, 500)
    assert (await api.patch(f"{ns}/configmaps/a", b"{", MERGE)).status in (400, 500)
    assert (await api.patch(f"{ns}/configmaps/a", {}, "application/json")).status == 415


async def test_strategic_merge_finds_list_items_by_key(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments"
    body = deployment("a", replicas=0)
    container = body["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    (await api.post(path, body)).ok()
    change = {"name": "main", "env": [{"name": "B", "value": "3"}, {"name": "A", "$patch": "delete"},
                                      {"name": "C", "value": "4"}]}  # fmt: skip
    sidecar = {"name": "side", "image": "registry.example/side:1"}
    patch = {"spec": {"template": {"spec": {"containers": [change, sidecar]}}}}
    answer = await api.patch(f"{path}/a", patch, STRATEGIC)
    containers = {each["name"]: each for each in answer.ok().body["spec"]["template"]["spec"]["containers"]}
    assert containers["main"]["env"] == [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]
    assert containers["main"]["image"] == "registry.example/app:1"
    assert containers["side"]["image"] == "registry.example/side:1"


async def test_strategic_merge_orders_and_replaces(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments"
    body = deployment("a", replicas=0)
    body["spec"]["template"]["spec"]["containers"].append({"name": "b", "image": "registry.example/b:1"})
    (await api.post(path, body)).ok()
    order = {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "main"}],
             "containers": [{"name": "c", "image": "registry.example/c:1"}]}  # fmt: skip
    answer = await api.patch(f"{path}/a", {"spec": {"template": {"spec": order}}}, STRATEGIC)
    assert [each["name"] for each in answer.ok().body["spec"]["template"]["spec"]["containers"]] == ["c", "b", "main"]
    replaced = {"containers": [{"$patch": "replace"}, {"name": "z", "image": "registry.example/z:1"}]}
    answer = await api.patch(f"{path}/a", {"spec": {"template": {"spec": replaced}}}, STRATEGIC)
    assert [each["name"] for each in answer.ok().body["spec"]["template"]["spec"]["containers"]] == ["z"]


async def test_items_that_are_new_come_where_the_patch_has_them(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments"
    body = deployment("a", replicas=0)
    body["spec"]["template"]["spec"]["containers"] += [{"name": name, "image": "i:1"} for name in ("b", "c")]
    (await api.post(path, body)).ok()
    change = [{"name": "new", "image": "i:1"}, {"name": "b", "image": "i:2"}]
    answer = await api.patch(f"{path}/a", {"spec": {"template": {"spec": {"containers": change}}}}, STRATEGIC)
    names = [each["name"] for each in answer.ok().body["spec"]["template"]["spec"]["containers"]]
    assert names == ["new", "main", "b", "c"]


async def test_strategic_merge_retains_only_the_named_keys(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments"
    (await api.post(path, deployment("a", replicas=0))).ok()
    strategy = {"$retainKeys": ["type"], "type": "Recreate"}
    answer = await api.patch(f"{path}/a", {"spec": {"strategy": strategy}}, STRATEGIC)
    assert answer.ok().body["spec"]["strategy"] == {"type": "Recreate"}


async def test_strategic_merge_deletes_members_of_plain_lists(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", finalizers=["contract.dev/one", "contract.dev/two"]))
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["contract.dev/one"]}}
    answer = await api.patch(f"{ns}/configmaps/a", patch, STRATEGIC)
    assert answer.ok().body["metadata"]["finalizers"] == ["contract.dev/two"]
    answer = await api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": ["contract.dev/three"]}}, STRATEGIC)
    assert set(answer.ok().body["metadata"]["finalizers"]) == {"contract.dev/two", "contract.dev/three"}
    await api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": None}})


async def test_atomic_lists_are_replaced_by_a_strategic_patch(api: Api, ns: str) -> None:
    taint = {"key": "a", "value": "1", "effect": "NoSchedule"}
    await api.post(f"{ns}/pods", pod("a", tolerations=[{"key": "one", "operator": "Exists"}]))
    live = (await api.get(f"{ns}/pods/a")).body["spec"]["tolerations"]
    more = [*live, {"key": taint["key"], "operator": "Exists"}]
    answer = await api.patch(f"{ns}/pods/a", {"spec": {"tolerations": more}}, STRATEGIC)
    assert answer.ok().body["spec"]["tolerations"] == more


async def test_the_status_endpoint_changes_status_only(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    patch = {"status": {"phase": "Running", "podIP": "10.0.0.1"}, "spec": {"activeDeadlineSeconds": 5}}
    answer = await api.patch(f"{ns}/pods/a/status", patch, STRATEGIC)
    assert answer.ok().body["status"]["phase"] == "Running"
    assert "activeDeadlineSeconds" not in answer.body["spec"]
    answer = await api.patch(f"{ns}/pods/a", {"status": {"phase": "Failed"}, "spec": {"activeDeadlineSeconds": 5}})
    assert answer.ok().body["status"]["phase"] == "Running"
    assert answer.body["spec"]["activeDeadlineSeconds"] == 5


async def test_conditions_merge_by_type(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    for kind in ("Ready", "Initialized"):
        condition = {"type": kind, "status": "True"}
        await api.patch(f"{ns}/pods/a/status", {"status": {"conditions": [condition]}}, STRATEGIC)
    answer = await api.patch(
        f"{ns}/pods/a/status", {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, STRATEGIC
    )
    conditions = {each["type"]: each["status"] for each in answer.ok().body["status"]["conditions"]}
    assert conditions == {"Ready": "False", "Initialized": "True"}


async def test_scale_is_read_and_written(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/replicasets"
    (await api.post(path, {**deployment("a", replicas=0), "kind": "ReplicaSet"})).ok()
    scale = (await api.get(f"{path}/a/scale")).ok().body
    assert (scale["kind"], scale["apiVersion"], scale["spec"]) == ("Scale", "autoscaling/v1", {})
    assert scale["status"]["selector"] == "app=a"
    paused = {**deployment("b", replicas=0), "kind": "ReplicaSet"}
    (await api.post(path, paused)).ok()
    answer = await api.patch(f"{path}/b/scale", {"spec": {"replicas": 0}})
    assert answer.ok().body["spec"].get("replicas", 0) == 0
    scale["spec"]["replicas"] = 2
    del scale["metadata"]["resourceVersion"]  # the controller writes status meanwhile
    assert (await api.put(f"{path}/a/scale", scale)).ok().body["spec"]["replicas"] == 2
    assert (await api.get(f"{path}/a")).body["spec"]["replicas"] == 2
