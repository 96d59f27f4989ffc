"""A pod is read once, and again where it says something else."""

import pytest
from msgspec.structs import replace

from purser.core.dialects import DialectError
from purser.core.names import SCHEDULER_NAME
from purser.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from purser.scheduler.cache.readings import Readings


def a_pod(gpus: str = "1", **metadata: object) -> Pod:
    container = Container(name="c", resources=ResourceRequirements(limits={"nvidia.com/gpu": gpus}))
    return Pod(
        ObjectMeta(name="p", namespace="default", uid="u", **metadata),
        PodSpec(containers=(container,), scheduler_name=SCHEDULER_NAME),
    )


def test_equal_annotations_are_read_once_whatever_else_has_changed():
    readings = Readings()
    first = readings.of(a_pod(resource_version="1"))
    again = replace(a_pod(resource_version="2"), status=replace(Pod().status, phase="Pending"))
    assert readings.of(again) is first
    assert first.request() is readings.of(a_pod()).request()


@pytest.mark.parametrize(
    "other",
    [
        a_pod("2"),
        a_pod(annotations={"a": "b"}),
        a_pod(labels={"a": "b"}),
        replace(a_pod(), metadata=ObjectMeta(uid="u")),
    ],
    ids=["limits", "annotations", "labels", "name"],
)
def test_other_words_under_the_same_uid_are_read_again(other: Pod):
    readings = Readings()
    first = readings.of(a_pod())
    assert readings.of(other) is not first
    assert readings.of(other).pod is other


def test_a_malformed_pod_is_refused_each_time_it_is_asked_for():
    reading = Readings().of(a_pod(annotations={"purser.dev/gpu-policy": "nonsense"}))
    for _ in range(2):
        with pytest.raises(DialectError, match="nonsense"):
            reading.request()


@pytest.mark.parametrize("said", [{"scheduler_name": "default-scheduler"}, {"node_name": "n"}], ids=["others", "bound"])
def test_what_nobody_will_ask_about_is_read_and_not_kept(said: dict[str, str]):
    readings, pod = Readings(), a_pod()
    there = replace(pod, spec=replace(pod.spec, **said))
    assert readings.of(there).asks_for_devices
    assert "u" not in readings


WORD, SAYS = "volcano.sh/gpu-memory", "purser.dev/memory-units"


@pytest.mark.parametrize(
    ("cluster", "said", "placed"),
    [
        ({}, None, True),
        ({}, f"{WORD}=1024", False),
        ({}, "nonsense", False),
        ({WORD: 10}, f"{WORD}=10", True),
        ({WORD: 10}, f"{WORD}=1024", False),
        ({WORD: 10}, None, False),
        (None, f"{WORD}=1024", True),
    ],
)
def test_a_pod_counts_in_the_clusters_units_whatever_it_says(cluster, said, placed):
    """``None``: a command that does not know them shows what is there."""
    container = Container(name="c", resources=ResourceRequirements(limits={WORD: "1", "nvidia.com/gpu": "1"}))
    metadata = ObjectMeta(name="p", namespace="default", uid="u", annotations={SAYS: said} if said else {})
    pod = Pod(metadata, PodSpec(containers=(container,), scheduler_name=SCHEDULER_NAME))
    objection = Readings(units_mib=cluster).of(pod).objection
    assert (objection == "") is placed, objection
    assert placed or SAYS in objection
