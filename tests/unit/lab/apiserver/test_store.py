"""The store against a simple model: history, snapshots, indexes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purser.lab.apiserver.errors import StatusError
from purser.lab.apiserver.store import ADDED, DELETED, MODIFIED, Collection, ObjectStore, Selection, StoreEvent

STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove"]), st.sampled_from("ab"), st.sampled_from("xyz"), st.sampled_from("12")),
    max_size=25,
)


def obj(namespace: str, name: str, node: str = "") -> dict[str, Any]:
    metadata = {"namespace": namespace, "name": name, "uid": f"{namespace}/{name}"}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


def pods(store: ObjectStore) -> Collection:
    return store.collection("pods", lambda each: {"spec.nodeName": each["spec"]["nodeName"]}, "spec.nodeName")


def play(collection: Collection, steps: Any) -> dict[int, dict[tuple[str, str], str]]:
    """Carry the steps out; the state after each revision."""
    state: dict[tuple[str, str], str] = {}
    states: dict[int, dict[tuple[str, str], str]] = {0: {}}
    for action, namespace, name, node in steps:
        if action == "put":
            record = collection.put(obj(namespace, name, node))
            state[namespace, name] = node
        elif (namespace, name) in state:
            record = collection.remove(obj(namespace, name, state.pop((namespace, name))))
        else:
            continue
        states[record.revision] = dict(state)
    return states


def summary(records: Any) -> dict[tuple[str, str], str]:
    return {record.key: record.fields["spec.nodeName"] for record in records}


@given(STEPS)
def test_every_moment_can_be_listed_again(steps: Any) -> None:
    collection = pods(ObjectStore(history=100))
    for revision, state in play(collection, steps).items():
        assert summary(collection.records_at(revision, Selection())) == state


@given(STEPS, st.sampled_from("ab"), st.sampled_from("12"))
def test_selections_find_what_a_look_at_everything_finds(steps: Any, namespace: str, node: str) -> None:
    collection = pods(ObjectStore(history=100))
    play(collection, steps)
    everything = collection.records()
    assert [record.key for record in everything] == sorted(record.key for record in everything)
    inside = collection.records(Selection(namespace=namespace))
    assert inside == [record for record in everything if record.key[0] == namespace]
    on_node = Selection(matches=lambda record: record.fields["spec.nodeName"] == node, index_value=node)
    assert collection.records(on_node) == [r for r in everything if r.fields["spec.nodeName"] == node]
    one = collection.records(Selection(namespace=namespace, name="x"))
    assert one == [record for record in everything if record.key == (namespace, "x")]


@given(STEPS, st.integers(0, 30))
def test_events_since_a_revision_lead_from_that_state_to_the_present(steps: Any, since: int) -> None:
    collection = pods(ObjectStore(history=100))
    states = play(collection, steps)
    moment = max(revision for revision in states if revision <= since)
    state = dict(states[moment])
    for event in collection.events_since(moment):
        if event.type == DELETED:
            del state[event.after.key]
        else:
            assert (event.type == ADDED) == (event.after.key not in state)
            state[event.after.key] = event.after.fields["spec.nodeName"]
    assert state == summary(collection.records())


def test_what_left_the_history_is_expired() -> None:
    collection = pods(ObjectStore(history=2))
    revisions = [collection.put(obj("a", name)).revision for name in ("x", "y", "z")]
    assert len(collection.events_since(revisions[0])) == 2
    for look in (lambda: collection.events_since(0), lambda: collection.records_at(0, Selection())):
        with pytest.raises(StatusError) as error:
            look()
        assert (error.value.code, error.value.reason) == (410, "Expired")


def test_a_compaction_leaves_only_the_present() -> None:
    store = ObjectStore(history=10)
    collection = pods(store)
    before = collection.put(obj("a", "x")).revision
    store.collection("others", lambda each: {}).put(obj("a", "other"))
    store.drop_history()
    assert collection.events_since(store.revision) == []
    with pytest.raises(StatusError):
        collection.events_since(before)


def test_subscribers_of_an_index_value_see_arrivals_and_departures() -> None:
    collection = pods(ObjectStore(history=10))
    seen: list[StoreEvent] = []
    unsubscribe = collection.subscribe(seen.append, "1")
    collection.put(obj("a", "x", "2"))
    collection.put(obj("a", "x", "1"))
    collection.put(obj("a", "x", "2"))
    assert [(event.type, event.after.fields["spec.nodeName"]) for event in seen] == [(MODIFIED, "1"), (MODIFIED, "2")]
    unsubscribe()
    collection.put(obj("a", "x", "1"))
    assert len(seen) == 2


def test_dependents_are_found_by_their_owners_uid() -> None:
    store = ObjectStore(history=10)
    collection = pods(store)
    child = obj("a", "child")
    child["metadata"]["ownerReferences"] = [{"uid": "parent"}]
    collection.put(child)
    assert store.dependents == {"parent": {("pods", ("a", "child"))}}
    collection.put(obj("a", "child"))
    assert store.dependents == {}
    collection.put(child)
    collection.remove(child)
    assert store.dependents == {} and store.by_uid == {}


def test_an_object_is_encoded_once_per_view() -> None:
    record = pods(ObjectStore(history=10)).put(obj("a", "x"))
    made: list[int] = []

    def make(each: Any) -> Any:
        made.append(1)
        return {"name": each["metadata"]["name"]}

    assert record.view("short", make) == record.view("short", make) == b'{"name":"x"}'
    assert made == [1]
