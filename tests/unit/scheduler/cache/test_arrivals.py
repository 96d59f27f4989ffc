"""What a scheduler learns of the pods to expect, from those that come."""

import msgspec

from purser.core.names import SCHEDULER_NAME
from purser.core.placement.mix import LearnedMix
from purser.core.placement.shape import PodShape
from purser.kube.codec import codec_of
from purser.kube.objects import Pod
from purser.kube.resources import PODS
from purser.scheduler.cache.arrivals import Arrivals
from purser.scheduler.cache.readings import Readings


class Heard(LearnedMix):
    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[PodShape] = []

    def arrived(self, shape: PodShape) -> None:
        self.shapes.append(shape)


def arrivals(readings: Readings | None = None) -> tuple[Arrivals, list[PodShape]]:
    found, heard = Arrivals(readings or Readings(), SCHEDULER_NAME), Heard()
    found.mix = heard
    return found, heard.shapes


def pod(uid: str, *, scheduler: str = "default-scheduler", phase: str = "Pending", **limits: str) -> Pod:
    named = {name.replace("__", "/").replace("_", "."): amount for name, amount in limits.items()}
    container = {"name": "c", "image": "i", "resources": {"limits": named}}
    body = {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {"schedulerName": scheduler, "containers": [container]},
        "status": {"phase": phase},
    }
    return codec_of(PODS).object(msgspec.json.encode(body))


SHARE = {"nvidia_com__gpu": "1", "nvidia_com__gpumem": "4000", "cpu": "2"}


def test_a_pod_counts_once_however_often_it_changes_and_again_when_another_comes() -> None:
    found, shapes = arrivals()
    for _ in range(3):
        found.put_pod(pod("a", **SHARE))
    assert shapes == [PodShape(2000, 0, 1, 4000)]
    found.put_pod(pod("b", **SHARE))
    assert len(shapes) == 2


def test_pods_without_gpus_count_where_this_scheduler_places_them() -> None:
    found, shapes = arrivals()
    found.put_pod(pod("a", cpu="2", memory="1Gi"))
    found.put_pod(pod("b", scheduler=SCHEDULER_NAME, cpu="2", memory="1Gi"))
    assert shapes == [PodShape(2000, 1024)]


def test_what_has_ended_or_makes_no_sense_does_not_count() -> None:
    found, shapes = arrivals()
    found.put_pod(pod("a", phase="Succeeded", **SHARE))
    found.put_pod(pod("b", nvidia_com__gpu="1", nvidia_com__gpumem="16Gi"))
    found.put_pod(pod("c", scheduler=SCHEDULER_NAME, cpu="nonsense"))
    assert shapes == []


def test_of_several_containers_the_one_that_asks_for_the_most_counts() -> None:
    found, shapes = arrivals()
    one = pod("a", nvidia_com__gpu="2")
    small = pod("b", **SHARE).spec.containers[0]
    containers = (msgspec.structs.replace(small, name="small"), *one.spec.containers)
    found.put_pod(msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, containers=containers)))
    assert [(shape.gpu_count, shape.cpu_milli) for shape in shapes] == [(2, 2000)]


def test_what_a_pod_asks_for_is_remembered_until_it_is_bound_or_gone() -> None:
    readings = Readings()
    found, _ = arrivals(readings)
    waiting = pod("waits", scheduler=SCHEDULER_NAME, **SHARE)
    found.put_pod(waiting)
    found.put_pod(pod("of-others", **SHARE))
    assert "waits" in readings and "of-others" not in readings
    bound = msgspec.structs.replace(waiting, spec=msgspec.structs.replace(waiting.spec, node_name="n"))
    found.put_pod(bound)
    assert "waits" not in readings
    found.put_pod(pod("goes", scheduler=SCHEDULER_NAME, **SHARE))
    found.remove_pod(pod("goes", scheduler=SCHEDULER_NAME, **SHARE))
    assert "goes" not in readings
