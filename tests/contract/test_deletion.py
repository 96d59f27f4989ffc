"""Deletion: preconditions, finalizers, owners, namespaces, collections."""

from typing import Any

from .client import Api, until
from .objects import config_map, pod


async def created(api: Api, ns: str, name: str, **metadata: Any) -> dict[str, Any]:
    return (await api.post(f"{ns}/configmaps", config_map(name, **metadata))).ok().body["metadata"]  # type: ignore[no-any-return]


def owner(of: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": of["name"], "uid": of["uid"], **more}


async def gone(api: Api, path: str) -> None:
    async def absent() -> bool:
        return (await api.get(path)).status == 404

    await until(f"{path} is gone", absent)


async def test_deleting_answers_with_success_and_the_uid(api: Api, ns: str) -> None:
    metadata = await created(api, ns, "a")
    answer = await api.delete(f"{ns}/configmaps/a")
    assert answer.status == 200
    assert (answer.body["kind"], answer.body["status"]) == ("Status", "Success")
    assert answer.body["details"] == {"name": "a", "kind": "configmaps", "uid": metadata["uid"]}
    assert (await api.delete(f"{ns}/configmaps/a")).status == 404


async def test_preconditions_guard_against_the_wrong_object(api: Api, ns: str) -> None:
    metadata = await created(api, ns, "a")
    options = {"preconditions": {"uid": "11111111-2222-3333-4444-555555555555"}}
    answer = await api.delete(f"{ns}/configmaps/a", options)
    assert (answer.status, answer.reason) == (409, "Conflict")
    assert answer.message == (
        'Operation cannot be fulfilled on ConfigMap "a": the UID in the precondition '
        f"(11111111-2222-3333-4444-555555555555) does not match the UID in record ({metadata['uid']}). "
        "The object might have been deleted and then recreated"
    )
    answer = await api.delete(f"{ns}/configmaps/a", {"preconditions": {"resourceVersion": "1"}})
    assert answer.status == 409
    options = {"preconditions": {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}}
    (await api.delete(f"{ns}/configmaps/a", options)).ok()


async def test_finalizers_hold_an_object_until_they_are_taken_off(api: Api, ns: str) -> None:
    await created(api, ns, "a", finalizers=["contract.dev/hold"])
    answer = await api.delete(f"{ns}/configmaps/a")
    assert answer.body["metadata"]["deletionTimestamp"]
    assert answer.body["metadata"]["deletionGracePeriodSeconds"] == 0
    again = await api.delete(f"{ns}/configmaps/a")
    assert again.version == answer.version
    changed = await api.patch(f"{ns}/configmaps/a", {"data": {"x": "1"}})
    assert changed.ok().body["metadata"]["deletionTimestamp"]
    answer = await api.patch(
        f"{ns}/configmaps/a", {"metadata": {"finalizers": ["contract.dev/hold", "contract.dev/new"]}}
    )
    assert answer.status == 422
    (await api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": None}})).ok()
    await gone(api, f"{ns}/configmaps/a")


async def test_a_watch_sees_the_mark_and_then_the_end(api: Api, ns: str) -> None:
    version = (await created(api, ns, "a", finalizers=["contract.dev/hold"]))["resourceVersion"]
    await api.delete(f"{ns}/configmaps/a")
    await api.patch(f"{ns}/configmaps/a", {"metadata": {"finalizers": []}})
    async with api.watch(f"{ns}/configmaps", resourceVersion=version, fieldSelector="metadata.name=a") as watch:
        events = [await watch.next() for _ in range(2)]
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED"]


async def test_dependents_follow_their_owner(api: Api, ns: str) -> None:
    parent = await created(api, ns, "parent")
    child = await created(api, ns, "child", ownerReferences=[owner(parent)])
    await created(api, ns, "grandchild", ownerReferences=[owner(child)])
    (await api.delete(f"{ns}/configmaps/parent", {"propagationPolicy": "Background"})).ok()
    await gone(api, f"{ns}/configmaps/child")
    await gone(api, f"{ns}/configmaps/grandchild")


async def test_foreground_deletion_takes_the_dependents_first(api: Api, ns: str) -> None:
    parent = await created(api, ns, "parent")
    reference = owner(parent, blockOwnerDeletion=True)
    await created(api, ns, "child", ownerReferences=[reference], finalizers=["contract.dev/hold"])
    await api.delete(f"{ns}/configmaps/parent", {"propagationPolicy": "Foreground"})

    async def child_marked() -> bool:
        return "deletionTimestamp" in (await api.get(f"{ns}/configmaps/child")).body["metadata"]

    await until("the child is being deleted", child_marked)
    waiting = (await api.get(f"{ns}/configmaps/parent")).ok().body["metadata"]
    assert waiting["finalizers"] == ["foregroundDeletion"]
    await api.patch(f"{ns}/configmaps/child", {"metadata": {"finalizers": None}})
    await gone(api, f"{ns}/configmaps/child")
    await gone(api, f"{ns}/configmaps/parent")


async def test_orphans_lose_their_owner_and_stay(api: Api, ns: str) -> None:
    parent = await created(api, ns, "parent")
    await created(api, ns, "child", ownerReferences=[owner(parent)])
    await api.delete(f"{ns}/configmaps/parent", {"propagationPolicy": "Orphan"})
    await gone(api, f"{ns}/configmaps/parent")
    assert "ownerReferences" not in (await api.get(f"{ns}/configmaps/child")).ok().body["metadata"]


async def test_an_object_with_another_living_owner_stays(api: Api, ns: str) -> None:
    first, second = await created(api, ns, "first"), await created(api, ns, "second")
    await created(api, ns, "child", ownerReferences=[owner(first), owner(second)])
    (await api.delete(f"{ns}/configmaps/first", {"propagationPolicy": "Background"})).ok()

    async def disowned() -> bool:
        references = (await api.get(f"{ns}/configmaps/child")).body["metadata"]["ownerReferences"]
        return [each["name"] for each in references] == ["second"]

    await until("the dead owner is forgotten", disowned)


async def test_an_object_whose_owner_never_was_is_collected(api: Api, ns: str) -> None:
    missing = {"name": "never", "uid": "11111111-2222-3333-4444-555555555555"}
    await created(api, ns, "child", ownerReferences=[owner(missing)])
    await gone(api, f"{ns}/configmaps/child")


async def test_a_collection_is_deleted_by_selector(api: Api, ns: str) -> None:
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        await created(api, ns, name, labels={"app": label})
    answer = await api.delete(f"{ns}/configmaps", labelSelector="app=x")
    assert answer.ok().status == 200
    for name, status in (("a", 404), ("b", 404), ("c", 200)):
        assert (await api.get(f"{ns}/configmaps/{name}")).status == status


async def test_a_namespace_takes_everything_with_it(api: Api, unique: str) -> None:
    path = f"/api/v1/namespaces/{unique}-gone"
    await api.post("/api/v1/namespaces", {"metadata": {"name": f"{unique}-gone"}})
    await api.post(f"{path}/configmaps", config_map("a", finalizers=["contract.dev/hold"]))
    answer = await api.delete(path)
    assert answer.body["status"]["phase"] == "Terminating"

    async def closed() -> bool:
        return (await api.post(f"{path}/configmaps", config_map("b"), dryRun="All")).status == 403

    await until("the namespace takes nothing new", closed)
    refused = await api.post(f"{path}/configmaps", config_map("b"))
    assert refused.reason == "Forbidden"
    assert f"unable to create new content in namespace {unique}-gone because it is being terminated" in refused.message

    async def marked() -> bool:
        return "deletionTimestamp" in (await api.get(f"{path}/configmaps/a")).body["metadata"]

    await until("the content is being deleted", marked)
    assert (await api.get(path)).status == 200
    await api.patch(f"{path}/configmaps/a", {"metadata": {"finalizers": None}})
    await gone(api, path)


async def test_pods_are_collected_like_everything_else(api: Api, ns: str) -> None:
    parent = await created(api, ns, "parent")
    body = pod("a")
    body["metadata"]["ownerReferences"] = [owner(parent)]
    (await api.post(f"{ns}/pods", body)).ok()
    await api.delete(f"{ns}/configmaps/parent", {"propagationPolicy": "Background"})
    await gone(api, f"{ns}/pods/a")
