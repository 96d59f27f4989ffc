"""A pod as kubelet's managers see it."""

from purser.core.kubelet.cpumanager.requests import guaranteed_cpus
from purser.core.kubelet.pod import KubeletContainer, QosClass, kubelet_pod, with_containers
from purser.core.pod.manifest import ContainerKind, ContainerSpec, PodManifest

AMOUNTS = {"cpu": "2", "memory": "1Gi"}


def manifest(**more: dict[str, str]) -> PodManifest:
    return PodManifest("u", "ns", "p", {}, (ContainerSpec("c", ContainerKind.APP, limits=AMOUNTS),), **more)


def test_a_pod_with_amounts_at_pod_level_gets_no_cpus_of_its_own() -> None:
    pinned, shared = kubelet_pod(manifest()), kubelet_pod(manifest(requests=AMOUNTS))
    assert [guaranteed_cpus(pod, pod.containers[0]) for pod in (pinned, shared)] == [2, 0]


def test_other_containers_do_not_change_that() -> None:
    pinned, shared = kubelet_pod(manifest()), kubelet_pod(manifest(requests=AMOUNTS))
    less, none = pinned.containers, (KubeletContainer("c"),)
    assert with_containers(pinned, none).qos is QosClass.BEST_EFFORT
    burstable = with_containers(shared, (KubeletContainer("c", requests={"cpu": 1}),))
    assert with_containers(burstable, less).qos is QosClass.BURSTABLE
