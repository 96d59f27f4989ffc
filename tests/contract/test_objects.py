"""Create, read, replace: identity, versions, and the errors that clients tell apart."""

import re
from typing import Any

import pytest

from .client import Api
from .objects import config_map, deployment, service


async def test_a_created_object_gets_identity_and_a_version(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}))
    assert answer.status == 201
    metadata = answer.body["metadata"]
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", metadata["creationTimestamp"])
    assert metadata["namespace"] == ns.rsplit("/", 1)[1]
    assert int(metadata["resourceVersion"]) > 0
    assert answer.body["kind"] == "ConfigMap" and answer.body["apiVersion"] == "v1"


async def test_versions_grow_across_the_whole_store(api: Api, ns: str) -> None:
    first = await api.post(f"{ns}/configmaps", config_map("a"))
    second = await api.post(f"{ns}/secrets", {"metadata": {"name": "b"}})
    third = await api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}})
    assert int(first.version) < int(second.version) < int(third.version)


async def test_a_taken_name_is_already_exists(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a"))
    answer = await api.post(f"{ns}/configmaps", config_map("a"))
    assert (answer.status, answer.reason, answer.message) == (409, "AlreadyExists", 'configmaps "a" already exists')
    assert answer.body["details"] == {"name": "a", "kind": "configmaps"}


async def test_an_absent_object_is_not_found(api: Api, ns: str) -> None:
    answer = await api.get(f"{ns}/pods/none")
    assert (answer.status, answer.reason, answer.message) == (404, "NotFound", 'pods "none" not found')
    answer = await api.get(ns.replace("/api/v1", "/apis/apps/v1") + "/deployments/none")
    assert answer.message == 'deployments.apps "none" not found'
    assert answer.body["details"] == {"name": "none", "group": "apps", "kind": "deployments"}


async def test_an_absent_namespace_is_not_found_on_create(api: Api, unique: str) -> None:
    answer = await api.post(f"/api/v1/namespaces/{unique}/configmaps", config_map("a"))
    assert (answer.status, answer.message) == (404, f'namespaces "{unique}" not found')


async def test_generate_name_adds_five_characters(api: Api, ns: str) -> None:
    body = {"metadata": {"generateName": "made-"}}
    names = {(await api.post(f"{ns}/configmaps", body)).body["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"made-[a-z0-9]{5}", name) for name in names)


async def test_a_name_is_demanded(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", {"metadata": {}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert ("FieldValueRequired", "metadata.name") in answer.causes


async def test_a_bad_name_is_invalid(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", config_map("Not_A_Name"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueInvalid", "metadata.name")}
    assert answer.message.startswith('ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": a')


async def test_bad_labels_and_huge_annotations_are_invalid(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", config_map("a", labels={"a b": "c"}))
    assert answer.causes == {("FieldValueInvalid", "metadata.labels")}
    answer = await api.post(f"{ns}/configmaps", config_map("a", labels={"a": "c d"}))
    assert answer.causes == {("FieldValueInvalid", "metadata.labels")}
    answer = await api.post(f"{ns}/configmaps", config_map("a", annotations={"a": "x" * 300_000}))
    assert answer.causes == {("FieldValueTooLong", "metadata.annotations")}


async def test_a_namespace_that_contradicts_the_path_is_refused(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", config_map("a", namespace="elsewhere"))
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message == "the namespace of the provided object does not match the namespace sent on the request"


async def test_a_version_on_create_is_refused(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", config_map("a", resourceVersion="1"))
    assert answer.status in (400, 500)
    assert answer.message == "resourceVersion should not be set on objects to be created"


async def test_broken_json_and_wrong_kinds_are_bad_requests(api: Api, ns: str) -> None:
    assert (await api.post(f"{ns}/configmaps", b"{")).status == 400
    answer = await api.post(f"{ns}/configmaps", {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}})
    assert (answer.status, answer.reason) == (400, "BadRequest")
    answer = await api.post(f"{ns}/configmaps", {"metadata": {"name": "a"}, "data": {"x": 1}})
    assert answer.status == 400
    assert "cannot unmarshal number" in answer.message or "ReadString" in answer.message


async def test_replace_with_a_stale_version_is_a_conflict(api: Api, ns: str) -> None:
    created = (await api.post(f"{ns}/configmaps", config_map("a"))).body
    (await api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}})).ok()
    answer = await api.put(f"{ns}/configmaps/a", {**created, "data": {"x": "2"}})
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )


async def test_replace_without_a_version_is_unconditional_for_config_maps(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", {"x": "1", "y": "1"}))
    answer = await api.put(f"{ns}/configmaps/a", config_map("a", {"x": "2"}))
    assert answer.ok().body["data"] == {"x": "2"}


async def test_replace_with_another_uid_is_a_conflict(api: Api, ns: str) -> None:
    created = (await api.post(f"{ns}/configmaps", config_map("a"))).body
    created["metadata"]["uid"] = "11111111-2222-3333-4444-555555555555"
    answer = await api.put(f"{ns}/configmaps/a", created)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: 11111111-2222-3333-4444-555555555555" in answer.message


async def test_replace_of_an_absent_object_is_not_found_except_for_leases(api: Api, ns: str) -> None:
    assert (await api.put(f"{ns}/configmaps/a", config_map("a"))).status == 404
    leases = ns.replace("/api/v1", "/apis/coordination.k8s.io/v1") + "/leases"
    assert (await api.put(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "me"}})).status == 201
    answer = await api.put(f"{leases}/a", {"metadata": {"name": "a"}, "spec": {"holderIdentity": "you"}})
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert "metadata.resourceVersion: Invalid value" in answer.message


async def test_a_write_that_changes_nothing_makes_no_version(api: Api, ns: str) -> None:
    created = await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}))
    again = await api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}})
    assert again.version == created.version
    assert (await api.put(f"{ns}/configmaps/a", created.body)).version == created.version


async def test_generation_counts_changes_of_the_spec_only(api: Api, ns: str) -> None:
    path = ns.replace("/api/v1", "/apis/apps/v1") + "/replicasets"
    body = {**deployment("a", replicas=0), "kind": "ReplicaSet"}
    assert (await api.post(path, body)).ok().body["metadata"]["generation"] == 1
    labelled = await api.patch(f"{path}/a", {"metadata": {"labels": {"x": "y"}}})
    assert labelled.body["metadata"]["generation"] == 1
    changed = await api.patch(f"{path}/a", {"spec": {"minReadySeconds": 1}})
    assert changed.body["metadata"]["generation"] == 2


async def test_dry_run_answers_but_does_not_write(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", config_map("a"), dryRun="All")
    assert answer.status == 201 and answer.body["metadata"]["uid"]
    assert (await api.get(f"{ns}/configmaps/a")).status == 404
    await api.post(f"{ns}/configmaps", config_map("a"))
    assert (await api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}}, dryRun="All")).body["data"] == {"x": "1"}
    assert (await api.delete(f"{ns}/configmaps/a", dryRun="All")).status == 200
    assert "data" not in (await api.get(f"{ns}/configmaps/a")).body


async def test_yaml_bodies_are_read(api: Api, ns: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  x: '1'\n"
    answer = await api.post(f"{ns}/configmaps", text, content_type="application/yaml")
    assert answer.ok().body["data"] == {"x": "1"}


async def test_an_unknown_body_type_is_unsupported(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", b"x", content_type="text/csv")
    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


async def test_unknown_fields_are_dropped(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/configmaps", {**config_map("a"), "wrong": 1})
    assert "wrong" not in answer.ok().body


async def test_strict_field_validation_names_unknown_fields(api: Api, ns: str) -> None:
    if api.minor < 27:
        return
    body = {**config_map("a"), "wrong": 1}
    answer = await api.post(f"{ns}/configmaps", body, fieldValidation="Strict")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert answer.message.endswith('strict decoding error: unknown field "wrong"')
    answer = await api.post(f"{ns}/configmaps", body)
    assert answer.headers.getall("Warning") == ['299 - "unknown field \\"wrong\\""']


async def test_secrets_take_plain_strings(api: Api, ns: str) -> None:
    answer = await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}, "stringData": {"x": "hello"}})
    assert answer.body["data"] == {"x": "aGVsbG8="} and answer.body["type"] == "Opaque"
    assert "stringData" not in answer.body


async def test_immutable_config_maps_refuse_changes(api: Api, ns: str) -> None:
    await api.post(f"{ns}/configmaps", {**config_map("a", {"x": "1"}), "immutable": True})
    answer = await api.patch(f"{ns}/configmaps/a", {"data": {"x": "2"}})
    assert answer.status == 422
    assert answer.causes == {("FieldValueForbidden", "data")}


async def test_a_method_that_makes_no_sense_is_not_allowed(api: Api, ns: str) -> None:
    answer = await api.put(f"{ns}/configmaps", config_map("a"))
    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")


async def test_the_ports_of_a_service_have_names_of_their_own(api: Api, ns: str) -> None:
    first, second = {"name": "a", "port": 80}, {"name": "a", "port": 81}
    answer = await api.post(f"{ns}/services", service("s", first, second))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == 'Service "s" is invalid: spec.ports[1].name: Duplicate value: "a"'
    answer = await api.post(f"{ns}/services", service("s", {"port": 80}, second))
    assert answer.causes == {("FieldValueRequired", "spec.ports[0].name")}
    (await api.post(f"{ns}/services", service("s", {"port": 80}))).ok()


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"schedule": "61 * * * *"}, ("FieldValueInvalid", "spec.schedule")),
        ({"schedule": "now and then"}, ("FieldValueInvalid", "spec.schedule")),
        ({"timeZone": "Mars/Olympus"}, ("FieldValueInvalid", "spec.timeZone")),
        ({"concurrencyPolicy": "Perhaps"}, ("FieldValueNotSupported", "spec.concurrencyPolicy")),
    ],
)
async def test_a_cron_job_says_when(api: Api, ns: str, fields: Any, cause: tuple[str, str]) -> None:
    if api.minor < 27:
        pytest.skip("CronJobs with a time zone came to batch/v1 with 1.27")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec = {"schedule": "*/5 * * * mon-fri", "timeZone": "Asia/Tokyo", "jobTemplate": {"spec": {"template": template}}}
    path = ns.replace("/api/v1", "/apis/batch/v1") + "/cronjobs"
    made = (await api.post(path, {"metadata": {"name": "good"}, "spec": spec})).ok().body
    assert (made["spec"]["concurrencyPolicy"], made["spec"]["failedJobsHistoryLimit"]) == ("Allow", 1)
    answer = await api.post(path, {"metadata": {"name": "bad"}, "spec": {**spec, **fields}})
    assert cause in answer.causes


async def test_a_replication_controller_selects_by_its_templates_labels(api: Api, ns: str) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    body = {"metadata": {"name": "r"}, "spec": {"replicas": 0, "template": template}}
    made = (await api.post(f"{ns}/replicationcontrollers", body)).ok().body
    assert made["spec"]["selector"] == made["metadata"]["labels"] == {"app": "x"}
    other = {"metadata": {"name": "s"}, "spec": {**body["spec"], "selector": {"app": "y"}}}
    answer = await api.post(f"{ns}/replicationcontrollers", other)
    assert answer.causes == {("FieldValueInvalid", "spec.template.metadata.labels")}


async def test_a_device_taint_rule_counts_from_its_creation(api: Api, unique: str) -> None:
    if api.minor < 37:
        pytest.skip("DeviceTaintRules came to resource.k8s.io/v1 with 1.37")
    path = "/apis/resource.k8s.io/v1/devicetaintrules"
    taint = {"key": "example.dev/broken", "effect": "None"}
    spec = {"deviceSelector": {"driver": "none.contract.dev"}, "taint": taint}
    made = (await api.post(path, {"metadata": {"name": unique}, "spec": spec, "status": {}})).ok().body
    assert made["metadata"]["generation"] == 1
    assert made["spec"]["taint"] == {**taint, "timeAdded": made["metadata"]["creationTimestamp"]}
    answer = await api.put(f"{path}/{unique}", {"metadata": {"name": unique}, "spec": spec})
    assert answer.causes == {("FieldValueInvalid", "metadata.resourceVersion")}
    changed = (await api.patch(f"{path}/{unique}", {"spec": {"taint": {"value": "x"}}})).ok().body
    assert changed["metadata"]["generation"] == 2
    await api.delete(f"{path}/{unique}")
