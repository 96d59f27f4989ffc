"""Lists: form, order, selectors, pages, versions."""

import asyncio

import pytest

from purser.lab.apiserver import ApiServer

from .client import Answer, Api
from .objects import binding, config_map, pod


def names(answer: Answer) -> list[str]:
    return [item["metadata"]["name"] for item in answer.ok().body["items"]]


async def test_a_list_has_kind_and_version_and_its_items_have_not(api: Api, ns: str) -> None:
    created = await api.post(f"{ns}/configmaps", config_map("a"))
    answer = await api.get(f"{ns}/configmaps")
    assert (answer.body["kind"], answer.body["apiVersion"]) == ("ConfigMapList", "v1")
    assert int(answer.version) >= int(created.version)
    assert "a" in names(answer)


async def test_an_empty_list_is_a_list(api: Api, ns: str) -> None:
    assert (await api.get(f"{ns}/pods")).ok().body["items"] == []
    assert (await api.get("/api/v1/namespaces/nowhere/pods")).ok().body["items"] == []


async def test_items_come_by_namespace_and_name(api: Api, ns: str) -> None:
    for name in ("c", "a", "b"):
        await api.post(f"{ns}/secrets", {"metadata": {"name": name}, "type": "contract"})
    assert names(await api.get(f"{ns}/secrets", fieldSelector="type=contract")) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=x", ["a", "b"]),
        ("app==x", ["a", "b"]),
        ("app!=x", ["c", "d"]),
        ("app", ["a", "b", "c"]),
        ("!app", ["d"]),
        ("app in (x, y)", ["a", "b", "c"]),
        ("app notin (x)", ["c", "d"]),
        ("app=x,tier=1", ["a"]),
        ("tier>1", ["b"]),
        ("tier<2", ["a"]),
    ],
)
async def test_label_selectors(api: Api, ns: str, selector: str, expected: list[str]) -> None:
    labels = {"a": {"app": "x", "tier": "1"}, "b": {"app": "x", "tier": "2"}, "c": {"app": "y"}, "d": {}}
    path = f"{ns}/secrets"
    await asyncio.gather(
        *(api.post(path, {"metadata": {"name": n, "labels": each}, "type": "contract"}) for n, each in labels.items())
    )
    answer = await api.get(path, labelSelector=selector, fieldSelector="type=contract")
    assert names(answer) == expected


async def test_selectors_that_cannot_be_read_are_bad_requests(api: Api, ns: str) -> None:
    assert (await api.get(f"{ns}/pods", labelSelector="a b c")).status == 400
    answer = await api.get(f"{ns}/pods", fieldSelector="spec.nothing=1")
    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "field label not supported: spec.nothing" in answer.message


async def test_pods_are_selected_by_node_phase_and_scheduler(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a", schedulerName="mine"))
    await api.post(f"{ns}/pods", pod("b"))
    (await api.post(f"{ns}/pods/b/binding", binding("b", "some-node"))).ok()
    assert names(await api.get(f"{ns}/pods", fieldSelector="spec.nodeName=some-node")) == ["b"]
    assert names(await api.get(f"{ns}/pods", fieldSelector="spec.nodeName=")) == ["a"]
    assert names(await api.get(f"{ns}/pods", fieldSelector="spec.nodeName!=some-node")) == ["a"]
    assert names(await api.get(f"{ns}/pods", fieldSelector="spec.schedulerName=mine")) == ["a"]
    assert names(await api.get(f"{ns}/pods", fieldSelector="status.phase=Pending")) == ["a", "b"]
    assert names(await api.get(f"{ns}/pods", fieldSelector="status.phase!=Pending")) == []
    assert names(await api.get(f"{ns}/pods", fieldSelector="metadata.name=a,status.phase=Pending")) == ["a"]
    namespace = ns.rsplit("/", 1)[1]
    everywhere = await api.get("/api/v1/pods", fieldSelector=f"metadata.namespace={namespace}")
    assert names(everywhere) == ["a", "b"]


async def test_events_are_selected_by_the_object_they_are_about(api: Api, ns: str) -> None:
    namespace = ns.rsplit("/", 1)[1]
    for name, about in (("e1", "p1"), ("e2", "p2")):
        involved = {"kind": "Pod", "namespace": namespace, "name": about, "uid": "u-" + about}
        event = {
            "metadata": {"name": name},
            "involvedObject": involved,
            "reason": "Why",
            "type": "Normal",
            "message": "m",
        }
        (await api.post(f"{ns}/events", event)).ok()
    assert names(await api.get(f"{ns}/events", fieldSelector="involvedObject.name=p1")) == ["e1"]
    assert names(await api.get(f"{ns}/events", fieldSelector="involvedObject.uid=u-p2,reason=Why")) == ["e2"]


async def test_events_have_a_second_face(api: Api, ns: str) -> None:
    namespace = ns.rsplit("/", 1)[1]
    path = ns.replace("/api/v1", "/apis/events.k8s.io/v1") + "/events"
    if api.minor < 19:
        return
    event = {
        "metadata": {"name": "e"}, "eventTime": "2026-01-02T03:04:05.000006Z", "reportingController": "contract",
        "reportingInstance": "contract-0", "action": "Testing", "reason": "Why", "type": "Warning", "note": "told",
        "regarding": {"kind": "Pod", "namespace": namespace, "name": "p"},
    }  # fmt: skip
    (await api.post(path, event)).ok()
    core = (await api.get(f"{ns}/events/e")).ok().body
    assert core["apiVersion"] == "v1"
    assert (core["message"], core["involvedObject"]["name"], core["reportingComponent"]) == ("told", "p", "contract")
    new = (await api.get(f"{path}/e")).ok().body
    assert (new["apiVersion"], new["note"], new["regarding"]["name"]) == ("events.k8s.io/v1", "told", "p")


async def test_pages_show_one_moment_and_count_what_is_left(api: Api, ns: str) -> None:
    path = f"{ns}/configmaps"
    for number in range(5):
        await api.post(path, config_map(f"m{number}", labels={"paged": "yes"}))
    first = await api.get(path, limit=2, fieldSelector="metadata.name!=kube-root-ca.crt")
    assert names(first) == ["m0", "m1"]
    assert "remainingItemCount" not in first.body["metadata"]
    await api.post(path, config_map("m3a"))
    await api.delete(f"{path}/m4")
    await api.patch(f"{path}/m3", {"data": {"late": "yes"}})
    second = await api.get(path, limit=2, fieldSelector="metadata.name!=kube-root-ca.crt",
                           **{"continue": first.body["metadata"]["continue"]})  # fmt: skip
    assert names(second) == ["m2", "m3"]
    assert "data" not in second.body["items"][1]
    assert second.version == first.version
    last = await api.get(path, limit=2, fieldSelector="metadata.name!=kube-root-ca.crt",
                         **{"continue": second.body["metadata"]["continue"]})  # fmt: skip
    assert names(last) == ["m4"]
    assert "continue" not in last.body["metadata"]


async def test_a_page_counts_the_remaining_items_where_nothing_selects(api: Api, ns: str) -> None:
    for number in range(3):
        await api.post(f"{ns}/limitranges", {"metadata": {"name": f"m{number}"}, "spec": {"limits": []}})
    answer = await api.get(f"{ns}/limitranges", limit=1)
    assert answer.body["metadata"]["remainingItemCount"] == 2


async def test_a_token_that_was_made_up_is_a_bad_request(api: Api, ns: str) -> None:
    answer = await api.get(f"{ns}/configmaps", limit=1, **{"continue": "made-up"})
    assert answer.status == 400


async def test_a_token_older_than_the_history_is_gone(api: Api, ns: str, server: ApiServer | None) -> None:
    if server is None:
        pytest.skip("a real etcd is not compacted by a test")
    for number in range(3):
        await api.post(f"{ns}/configmaps", config_map(f"m{number}"))
    first = await api.get(f"{ns}/configmaps", limit=1)
    server.drop_history()
    await api.post(f"{ns}/configmaps", config_map("new"))
    server.drop_history()
    answer = await api.get(f"{ns}/configmaps", limit=1, **{"continue": first.body["metadata"]["continue"]})
    assert (answer.status, answer.reason) == (410, "Expired")


async def test_an_exact_version_lists_the_past(api: Api, ns: str) -> None:
    await api.post(f"{ns}/limitranges", {"metadata": {"name": "a"}, "spec": {"limits": []}})
    then = await api.get(f"{ns}/limitranges")
    await api.delete(f"{ns}/limitranges/a")
    answer = await api.get(f"{ns}/limitranges", resourceVersion=then.version, resourceVersionMatch="Exact")
    assert names(answer) == ["a"]


async def test_a_version_from_the_future_times_out(api: Api, ns: str) -> None:
    answer = await api.get(f"{ns}/configmaps", resourceVersion=10**9)
    assert (answer.status, answer.reason) == (504, "Timeout")
    assert answer.message.startswith("Timeout: Too large resource version: 1000000000, current: ")


async def test_a_table_has_columns_and_rows(api: Api, ns: str) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    body = (await api.request("GET", f"{ns}/pods", headers=accept)).body
    assert (body["kind"], body["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    columns = [column["name"] for column in body["columnDefinitions"]]
    assert columns == ["Name", "Ready", "Status", "Restarts", "Age", "IP", "Node", "Nominated Node", "Readiness Gates"]
    row = body["rows"][0]
    assert [str(cell) for cell in row["cells"][:4]] == ["a", "0/1", "Pending", "0"]
    assert row["object"]["kind"] == "PartialObjectMetadata"


async def test_metadata_alone_can_be_asked_for(api: Api, ns: str) -> None:
    await api.post(f"{ns}/secrets", {"metadata": {"name": "a"}, "type": "contract"})
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"}
    body = (await api.request("GET", f"{ns}/secrets", headers=accept, fieldSelector="type=contract")).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert body["items"][0]["metadata"]["name"] == "a" and "type" not in body["items"][0]


async def test_an_unknown_representation_is_not_acceptable(api: Api, ns: str) -> None:
    answer = await api.request("GET", f"{ns}/pods", headers={"Accept": "image/png"})
    assert answer.status == 406
