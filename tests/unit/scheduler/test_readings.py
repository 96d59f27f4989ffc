"""A pod is read once, and anew where it says something else."""

import pytest
from msgspec.structs import replace

from purser.core.dialects import DialectError
from purser.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements
from purser.scheduler.readings import Readings


def a_pod(gpus: str = "1", **metadata: object) -> Pod:
    container = Container(name="c", resources=ResourceRequirements(limits={"nvidia.com/gpu": gpus}))
    return Pod(ObjectMeta(name="p", namespace="default", uid="u", **metadata), PodSpec(containers=(container,)))


def test_equal_words_are_read_once_whoever_says_them_and_whatever_else_has_changed_of_the_pod():
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
def test_other_words_under_the_same_uid_are_read_anew(other: Pod):
    readings = Readings()
    first = readings.of(a_pod())
    assert readings.of(other) is not first
    assert readings.of(other).pod is other


def test_what_makes_no_sense_is_told_each_time_it_is_asked_for():
    reading = Readings().of(a_pod(annotations={"purser.dev/gpu-policy": "nonsense"}))
    for _ in range(2):
        with pytest.raises(DialectError, match="nonsense"):
            reading.request()
