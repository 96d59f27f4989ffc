"""CustomResourceDefinitions: from a schema to a served resource."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio

from .client import STRATEGIC, Api, until
from .objects import definition

SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
                "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
                "port": {"x-kubernetes-int-or-string": True},
                "nested": {"type": "object", "properties": {"deep": {"type": "string", "default": "d"}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "maybe": {"type": "string", "nullable": True},
                "items": {
                    "type": "array",
                    "maxItems": 2,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["key"],
                    "items": {
                        "type": "object",
                        "required": ["key"],
                        "properties": {"key": {"type": "string"}, "value": {"type": "string", "default": "v"}},
                    },
                },
            },
        },
        "status": {"type": "object", "properties": {"state": {"type": "string"}}},
    },
}


@asynccontextmanager
async def served_group(api: Api, group: str) -> AsyncIterator[str]:
    """A group with a namespaced resource `things`, which has a status subresource."""
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Mode", "type": "string", "jsonPath": ".spec.mode", "priority": 1},
    ]
    body = definition("things", group, SCHEMA, subresources={"status": {}}, additionalPrinterColumns=columns)
    (await api.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)).ok()

    async def served() -> bool:
        return (await api.get(f"/apis/{group}/v1/things")).status == 200

    await until("the resource is served", served)
    yield group
    await api.delete(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def group(api: Api) -> AsyncIterator[str]:
    """One for all tests that leave its definition alone: a real server takes two seconds to serve each."""
    async with served_group(api, f"t{secrets.token_hex(4)}.contract.dev") as group:
        yield group


@pytest.fixture
def things(ns: str, group: str) -> str:
    """Path of the shared resource in the test's namespace."""
    return ns.replace("/api/v1", f"/apis/{group}/v1") + "/things"


@pytest_asyncio.fixture(loop_scope="session")
async def own_things(api: Api, ns: str, unique: str) -> AsyncIterator[str]:
    """Path of a resource in the test's namespace whose definition is the test's own."""
    async with served_group(api, f"{unique}.contract.dev") as group:
        yield ns.replace("/api/v1", f"/apis/{group}/v1") + "/things"


def thing(things: str, spec: Any, name: str = "a", **more: Any) -> dict[str, Any]:
    group = things.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Things", "metadata": {"name": name}, "spec": spec, **more}


async def test_a_definition_becomes_established_and_discoverable(api: Api, things: str) -> None:
    group = things.split("/")[2]
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{group}"

    async def conditions() -> Any:
        status = (await api.get(path)).body["status"]
        return {c["type"]: c["status"] for c in status.get("conditions", ())}.get("Established") == "True" and status

    status = await until("established", conditions)
    assert status["acceptedNames"]["plural"] == "things" and status["acceptedNames"]["singular"] == "things"
    assert status["storedVersions"] == ["v1"]

    async def discovered() -> Any:
        answer = await api.get(f"/apis/{group}/v1")
        return answer.status == 200 and {each["name"] for each in answer.body["resources"]}

    assert await until("discovery", discovered) == {"things", "things/status"}


async def test_an_object_gets_defaults_and_loses_unknown_fields(api: Api, things: str) -> None:
    spec = {
        "size": 1,
        "unknown": 1,
        "nested": {"x": 1},
        "free": {"x": {"y": 1}},
        "items": [{"key": "k"}],
        "port": "http",
    }
    body = (await api.post(things, thing(things, spec, other=1))).ok().body
    assert body["spec"] == {
        "size": 1, "mode": "a", "nested": {"deep": "d"}, "free": {"x": {"y": 1}},
        "items": [{"key": "k", "value": "v"}], "port": "http",
    }  # fmt: skip
    assert "other" not in body
    assert body["metadata"]["generation"] == 1


async def test_nulls_are_dropped_unless_nullable(api: Api, things: str) -> None:
    body = (await api.post(things, thing(things, {"size": 1, "mode": None, "maybe": None}))).ok().body
    assert body["spec"] == {"size": 1, "mode": "a", "maybe": None}


@pytest.mark.parametrize(
    ("spec", "reason", "field"),
    [
        ({}, "FieldValueRequired", "spec.size"),
        ({"size": 0}, "FieldValueInvalid", "spec.size"),
        ({"size": 10}, "FieldValueInvalid", "spec.size"),
        ({"size": 1, "mode": "z"}, "FieldValueNotSupported", "spec.mode"),
        ({"size": 1, "name": "A"}, "FieldValueInvalid", "spec.name"),
        ({"size": 1, "items": [{"value": "x"}]}, "FieldValueRequired", "spec.items[0].key"),
        ({"size": 1, "items": [{"key": "x"}, {"key": "x"}]}, "FieldValueDuplicate", "spec.items[1]"),
    ],
)
async def test_values_are_checked(api: Api, things: str, spec: Any, reason: str, field: str) -> None:
    answer = await api.post(things, thing(things, spec))
    assert (answer.status, answer.reason) == (422, "Invalid")
    if api.minor < 25:  # older servers leave the index out of some paths
        field = field.replace("items[0].key", "items.key")
    assert (reason, field) in answer.causes


async def test_the_message_says_what_the_schema_demands(api: Api, things: str) -> None:
    answer = await api.post(things, thing(things, {"size": 0}))
    assert "spec.size in body should be greater than or equal to 1" in answer.message
    answer = await api.post(things, thing(things, {"size": "x"}))
    assert 'spec.size in body must be of type integer: "string"' in answer.message
    answer = await api.post(things, thing(things, {}))
    assert "spec.size: Required value" in answer.message
    answer = await api.post(things, thing(things, {"size": 1, "mode": "z"}))
    assert 'spec.mode: Unsupported value: "z": supported values: "a", "b"' in answer.message


async def test_status_has_its_own_endpoint_and_generation_counts_spec(api: Api, things: str) -> None:
    created = (await api.post(things, thing(things, {"size": 1}, status={"state": "x"}))).ok().body
    assert "status" not in created
    created["status"] = {"state": "new"}
    created["spec"]["size"] = 5
    created["metadata"]["labels"] = {"x": "y"}
    body = (await api.put(f"{things}/a/status", created)).ok().body
    assert (body["status"], body["spec"]["size"], body["metadata"]["generation"]) == ({"state": "new"}, 1, 1)
    assert "labels" not in body["metadata"]
    body = (await api.patch(f"{things}/a", {"spec": {"size": 2}, "status": {"state": "other"}})).ok().body
    assert (body["status"], body["metadata"]["generation"]) == ({"state": "new"}, 2)


async def test_replacing_needs_a_version_and_strategic_patches_are_refused(api: Api, things: str) -> None:
    (await api.post(things, thing(things, {"size": 1}))).ok()
    answer = await api.put(f"{things}/a", thing(things, {"size": 2}))
    assert answer.status == 422
    none = "0x0" if api.minor < 34 else "0"
    assert f"metadata.resourceVersion: Invalid value: {none}: must be specified for an update" in answer.message
    answer = await api.patch(f"{things}/a", {"spec": {"size": 2}}, STRATEGIC)
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_keyed_lists_of_custom_objects_are_applied_by_item(api: Api, things: str) -> None:
    (await api.apply(f"{things}/a", thing(things, {"size": 1, "items": [{"key": "x", "value": "1"}]}), "one")).ok()
    answer = await api.apply(f"{things}/a", thing(things, {"size": 1, "items": [{"key": "y", "value": "2"}]}), "two")
    if api.minor < 25:  # older servers lose the keys of schemas that OpenAPI v2 cannot express
        return
    assert {each["key"] for each in answer.ok().body["spec"]["items"]} == {"x", "y"}
    answer = await api.apply(f"{things}/a", thing(things, {"size": 2}), "two")
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == 'Apply failed with 1 conflict: conflict with "one": .spec.size'


async def test_printer_columns_make_the_table(api: Api, things: str) -> None:
    (await api.post(things, thing(things, {"size": 3}))).ok()
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    body = (await api.request("GET", things, headers=accept)).body
    assert [(c["name"], c["priority"]) for c in body["columnDefinitions"]] == [("Name", 0), ("Size", 0), ("Mode", 1)]
    assert body["rows"][0]["cells"] == ["a", 3, "a"]


async def test_custom_objects_are_watched_and_selected(api: Api, things: str) -> None:
    version = (await api.get(things)).version
    (await api.post(things, thing(things, {"size": 3}))).ok()
    async with api.watch(things, resourceVersion=version, fieldSelector="metadata.name=a") as watch:
        event = await watch.next()
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Things")
    body = (await api.get(things)).body
    assert (body["kind"], body["items"][0]["kind"]) == ("ThingsList", "Things")


async def test_a_schema_change_is_in_force_at_once(api: Api, own_things: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{own_things.split('/')[2]}"
    live = (await api.get(path)).body
    spec = live["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["extra"] = {"type": "string", "default": "new"}
    (await api.put(path, live)).ok()

    async def defaulted() -> bool:
        answer = await api.post(own_things, thing(own_things, {"size": 3}), dryRun="All")
        if answer.status == 503:  # a real server's, which came while it replaced the resource's storage
            return False
        return answer.ok().body["spec"].get("extra") == "new"

    await until("the new default is filled in", defaulted)


async def test_deleting_the_definition_deletes_its_objects(api: Api, own_things: str) -> None:
    body = thing(own_things, {"size": 3})
    body["metadata"]["finalizers"] = ["contract.dev/hold"]
    version = (await api.post(own_things, body)).ok().version
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.{own_things.split('/')[2]}"
    (await api.delete(path)).ok()
    async with api.watch(own_things, resourceVersion=version) as watch:
        marked = await watch.next()
        assert marked["object"]["metadata"]["deletionTimestamp"]
        assert (await api.get(path)).status == 200
        (await api.patch(f"{own_things}/a", {"metadata": {"finalizers": None}})).ok()
        assert (await watch.next())["type"] == "DELETED"

    async def gone() -> bool:
        return (await api.get(path)).status == 404 and (await api.get(own_things)).status == 404

    await until("definition and resource are gone", gone)


async def test_definitions_are_checked(api: Api, unique: str) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    body = definition("things", f"{unique}.dev", {"type": "object"})
    body["metadata"]["name"] = "other"
    answer = await api.post(path, body)
    assert answer.status == 422
    assert ("FieldValueInvalid", "metadata.name") in answer.causes
    body = definition("things", f"{unique}.dev", {"type": "object"})
    del body["spec"]["versions"][0]["schema"]
    answer = await api.post(path, body)
    assert ("FieldValueRequired", "spec.versions[0].schema.openAPIV3Schema") in answer.causes


async def test_versions_of_equal_shape_share_their_objects(api: Api, ns: str, unique: str) -> None:
    group = f"{unique}.contract.dev"
    body = definition("things", group, SCHEMA)
    newer = {**body["spec"]["versions"][0], "name": "v2", "storage": False}
    body["spec"]["versions"].append(newer)
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    (await api.post(definitions, body)).ok()
    first, second = (ns.replace("/api/v1", f"/apis/{group}/{version}") + "/things" for version in ("v1", "v2"))

    async def served() -> bool:
        return (await api.get(second)).status == 200

    await until("the resource is served", served)
    made = (await api.post(second, thing(second, {"size": 1}) | {"apiVersion": f"{group}/v2"})).ok()
    assert made.body["apiVersion"] == f"{group}/v2"
    old = (await api.get(f"{first}/a")).ok().body
    assert (old["apiVersion"], old["metadata"]["uid"]) == (f"{group}/v1", made.body["metadata"]["uid"])
    assert (await api.get(second)).body["items"][0]["apiVersion"] == f"{group}/v2"
    async with api.watch(second, resourceVersion=0) as watch:
        assert (await watch.next())["object"]["apiVersion"] == f"{group}/v2"
    (await api.patch(f"{second}/a", {"spec": {"size": 2}})).ok()
    assert (await api.get(f"{first}/a")).body["spec"]["size"] == 2
    await api.delete(f"{definitions}/things.{group}")
