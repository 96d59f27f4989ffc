"""Server-side apply: who owns what."""

from typing import Any

from .client import APPLY, MERGE, Api
from .objects import config_map, deployment


def managers(body: dict[str, Any]) -> dict[tuple[str, str], Any]:
    entries = body["metadata"]["managedFields"]
    return {(entry["manager"], entry["operation"]): entry["fieldsV1"] for entry in entries}


async def test_apply_creates_and_records_what_was_set(api: Api, ns: str) -> None:
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}, labels={"l": "1"}), "one")
    assert answer.status == 201
    assert managers(answer.body) == {("one", "Apply"): {"f:data": {"f:x": {}}, "f:metadata": {"f:labels": {"f:l": {}}}}}
    entry = answer.body["metadata"]["managedFields"][0]
    assert (entry["apiVersion"], entry["fieldsType"]) == ("v1", "FieldsV1")
    again = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}, labels={"l": "1"}), "one")
    assert again.status == 200 and again.version == answer.version


async def test_apply_needs_a_manager(api: Api, ns: str) -> None:
    answer = await api.patch(f"{ns}/configmaps/a", config_map("a"), APPLY)
    assert answer.status in (400, 422)
    assert "fieldManager" in answer.message


async def test_two_appliers_share_an_object(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}), "one")
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"y": "2"}), "two")
    assert answer.ok().body["data"] == {"x": "1", "y": "2"}


async def test_what_an_applier_gives_up_goes_away(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1", "y": "1", "z": "1"}), "one")
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"y": "1"}), "two")
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"z": "1"}), "one")
    assert answer.ok().body["data"] == {"y": "1", "z": "1"}


async def test_another_value_for_an_owned_field_is_a_conflict(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}), "one")
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "2"}), "two")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert answer.body["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]
    assert (await api.get(f"{ns}/configmaps/a")).body["data"] == {"x": "1"}


async def test_several_conflicts_are_listed_by_manager(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1", "y": "1"}), "one")
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "2", "y": "2"}), "two")
    assert answer.message == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.x\n- .data.y'


async def test_force_takes_the_field_over(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}), "one")
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "2"}), "two", force=True)
    assert answer.ok().body["data"] == {"x": "2"}
    assert list(managers(answer.body)) == [("two", "Apply")]


async def test_the_same_value_is_owned_together(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}), "one")
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}), "two")
    assert set(managers(answer.ok().body)) == {("one", "Apply"), ("two", "Apply")}
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a"), "one")
    assert answer.ok().body["data"] == {"x": "1"}


async def test_updates_own_what_they_change_and_take_it_from_appliers(api: Api, ns: str) -> None:
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1", "y": "1"}), "one")
    answer = await api.patch(f"{ns}/configmaps/a", {"data": {"x": "2"}}, MERGE, fieldManager="hand")
    assert managers(answer.ok().body) == {
        ("one", "Apply"): {"f:data": {"f:y": {}}},
        ("hand", "Update"): {"f:data": {"f:x": {}}},
    }
    answer = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1", "y": "1"}), "one")
    assert answer.status == 409
    assert answer.message == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.x'


async def test_created_objects_belong_to_the_user_agent(api: Api, ns: str) -> None:
    body = (await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}))).body
    assert managers(body) == {("contract", "Update"): {"f:data": {".": {}, "f:x": {}}}}


async def test_keyed_lists_are_merged_by_item(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments/a"
    (await api.apply(path, deployment("a", replicas=0), "one")).ok()
    side = deployment("a", replicas=None)
    side["spec"]["template"]["spec"]["containers"] = [{"name": "side", "image": "registry.example/side:1"}]
    del side["spec"]["selector"], side["spec"]["template"]["metadata"]
    answer = await api.apply(path, side, "two")
    names = {each["name"] for each in answer.ok().body["spec"]["template"]["spec"]["containers"]}
    assert names == {"main", "side"}
    image = deployment("a", image="registry.example/app:2")
    answer = await api.apply(path, image, "two")
    assert answer.message == (
        'Apply failed with 1 conflict: conflict with "one": .spec.template.spec.containers[name="main"].image'
    )
    only_replicas = {**side, "spec": {"replicas": 0}}
    answer = await api.apply(path, only_replicas, "two")
    assert [each["name"] for each in answer.ok().body["spec"]["template"]["spec"]["containers"]] == ["main"]


async def test_items_are_recorded_by_key(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/deployments/a"
    body = deployment("a", replicas=0)
    body["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"containerPort": 80}]
    if api.minor < 21:  # the key's default protocol came later
        body["spec"]["template"]["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    fields = managers((await api.apply(path, body, "one")).ok().body)[("one", "Apply")]
    container = fields["f:spec"]["f:template"]["f:spec"]["f:containers"]['k:{"name":"main"}']
    assert container["."] == {} and container["f:image"] == {}
    assert 'k:{"containerPort":80,"protocol":"TCP"}' in container["f:ports"]


async def test_apply_of_status_belongs_to_the_subresource(api: Api, unique: str) -> None:
    await api.post("/api/v1/nodes", {"metadata": {"name": unique}})
    path = f"/api/v1/nodes/{unique}/status"
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique},
            "status": {"conditions": [{"type": "Contract", "status": "True"}]}}  # fmt: skip
    answer = await api.apply(path, body, "one")
    conditions = [each["type"] for each in answer.ok().body["status"]["conditions"]]
    assert "Contract" in conditions
    await api.delete(f"/api/v1/nodes/{unique}")


async def test_a_status_sent_to_the_main_endpoint_is_not_owned(api: Api, ns: str) -> None:
    if api.minor < 22:
        return
    body = {**deployment("a", replicas=0), "status": {"replicas": 5}}
    answer = await api.apply(ns.replace("/api/v1", "/apis/apps/v1") + "/deployments/a", body, "one")
    assert "f:status" not in managers(answer.ok().body)["one", "Apply"]
    assert answer.body["status"].get("replicas", 0) == 0


async def test_managed_fields_in_the_body_are_refused(api: Api, ns: str) -> None:
    body = config_map(
        "a", managedFields=[{"manager": "x", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {}}]
    )
    answer = await api.apply(f"{ns}/configmaps/a", body, "one")
    assert answer.status == 400
    assert "metadata.managedFields must be nil" in answer.message


async def test_apply_with_a_stale_version_is_a_conflict(api: Api, ns: str) -> None:
    first = await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "1"}), "one")
    await api.apply(f"{ns}/configmaps/a", config_map("a", {"x": "2"}), "one")
    stale = config_map("a", {"x": "3"}, resourceVersion=first.version)
    answer = await api.apply(f"{ns}/configmaps/a", stale, "one")
    assert (answer.status, answer.reason) == (409, "Conflict")
