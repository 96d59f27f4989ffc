"""What is said of words for GPUs that Purser does not serve."""

import msgspec
import pytest

from purser.core.dialects import RESOURCES
from purser.core.dialects.unserved import unserved_words
from purser.core.model import ContainerKind
from purser.core.pod.manifest import ContainerSpec, PodManifest


def nowhere(*_: str) -> bool:
    return False


def pod(*resources: str, **annotations: str) -> PodManifest:
    limits = dict.fromkeys(resources, "1")
    spec = ContainerSpec(name="c", kind=ContainerKind.APP, limits=limits, requests={})
    named = {name.replace("_", "-"): value for name, value in annotations.items()}
    return PodManifest(uid="u", namespace="ns", name="p", annotations=named, containers=(spec,))


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        ("nvidia.com/gpu.shared", "nvidia.com/gpumem"),
        ("nvidia.com/mig-3g.20gb", "nvidia.com/gpumem"),
        ("hygon.com/dcunum", "Hygon DCU in its chart value vendors"),
        ("enflame.com/vgcu", "does not support this resource"),
    ],
)
def test_a_word_that_nobody_serves_gets_a_hint_what_to_write(resource: str, words: str) -> None:
    (hint,) = unserved_words(pod(resource), nowhere, nowhere)
    assert resource in hint
    assert words in hint


@pytest.mark.parametrize(
    ("resource", "managed", "words"),
    [
        ("nvidia.com/gpu-0", (), "agents list it only if it is in scheduler.kubeScheduler.managedResources"),
        ("nvidia.com/gpu-0", ("nvidia.com/gpu-0",), "for a share of a GPU, ask for nvidia.com/gpu"),
        ("nvidia.com/mig-9g.1gb", (), "agents list it only if it is in scheduler.kubeScheduler.managedResources"),
    ],
)
def test_of_a_name_that_nobody_may_list_it_is_said_where_it_is_to_be_added(
    resource: str, managed: tuple[str, ...], words: str
) -> None:
    (hint,) = unserved_words(pod(resource), nowhere, nowhere, managed=managed)
    assert words in hint
    long = "nvidia.com/gpu-" + "n" * 90
    assert all(len(each) <= 256 for each in unserved_words(pod(long), nowhere, nowhere))


@pytest.mark.parametrize(
    ("resource", "word"),
    [
        ("nvidia.com/gpumen", "nvidia.com/gpumem"),
        ("nvidia.com/gpucore", "nvidia.com/gpucores"),
        ("nvidia.com/gpus", "nvidia.com/gpu"),
        ("nvidia.com/GPU", "nvidia.com/gpu"),
        ("nvidia.com/gpumem-percent", "nvidia.com/gpumem-percentage"),
        ("nvidia.com/vgpu", "nvidia.com/gpu"),
        ("nvidia.com/vgpumem", "nvidia.com/gpumem"),
        ("nvidia.com/vgpucores", "nvidia.com/gpucores"),
        ("nividia.com/gpu", "nvidia.com/gpu"),
        ("volcano.sh/vgpu-num", "volcano.sh/vgpu-number"),
        ("volcano.sh/gpu-memroy", "volcano.sh/gpu-memory"),
        ("aliyun.com/gpu-men", "aliyun.com/gpu-mem"),
    ],
)
def test_a_word_that_looks_like_one_is_answered_with_the_one_that_was_meant(resource: str, word: str) -> None:
    (hint,) = unserved_words(pod(resource), nowhere, nowhere)
    assert f"no node offers {resource}, so the pod stays pending: did you mean {word}?" == hint
    assert unserved_words(pod(resource), resource.__eq__, nowhere) == ()


@pytest.mark.parametrize(
    "resource",
    ["example.com/gpu", "nvidia.com/rdma", "nvidia.com/gds", "smarter-devices/fuse", "cpu", "x/" + "g" * 300],
)
def test_words_that_look_like_none_are_left_alone(resource: str) -> None:
    assert unserved_words(pod(resource), nowhere, nowhere) == ()


def test_a_resource_that_a_node_offers_belongs_to_another_plugin() -> None:
    assert unserved_words(pod("nvidia.com/mig-3g.20gb"), lambda name: name.startswith("nvidia.com/"), nowhere) == ()


@pytest.mark.parametrize("resource", ["cpu", "example.com/foo", *sorted(RESOURCES)])
def test_other_words_get_none(resource: str) -> None:
    assert unserved_words(pod(resource), nowhere, nowhere) == ()


def test_kais_annotations_get_a_hint_too() -> None:
    (hint,) = unserved_words(pod(gpu_fraction="0.5"), nowhere, nowhere)
    assert "nvidia.com/gpumem-percentage" in hint


def test_hints_are_few_and_asked_for_few_times_however_many_words_a_pod_has() -> None:
    asked: list[str] = []

    def is_offered(name: str) -> bool:
        asked.append(name)
        return False

    assert len(unserved_words(pod(*(f"gpu.intel.com/{n}" for n in range(10_000))), is_offered, nowhere)) == 8
    assert len(asked) == 8


@pytest.mark.parametrize("word", ["use", "nouse"])
def test_gpus_named_by_index_are_refused_with_a_hint_at_uuids(word: str) -> None:
    named = msgspec.structs.replace(pod(), annotations={f"nvidia.com/{word}-gpuindexes": "0,1"})
    (hint,) = unserved_words(named, nowhere, nowhere)
    assert f"in nvidia.com/{word}-gpuuuid" in hint


@pytest.mark.parametrize(
    ("product", "there", "hinted"),
    [
        ("Tesla-T4-SHARED", False, True),
        ("Tesla-T4-SHARED", True, False),
        ("Tesla-T4", False, False),
    ],
)
def test_pods_for_time_slicing_nodes_are_warned_where_there_is_none(product: str, there: bool, hinted: bool) -> None:
    chosen = msgspec.structs.replace(pod("nvidia.com/gpu"), node_selector={"nvidia.com/gpu.product": product})
    hints = unserved_words(
        chosen, nowhere, lambda key, value: there and (key, value) == ("nvidia.com/gpu.product", product)
    )
    assert [("nvidia.com/gpumem" in hint, len(hint) <= 256) for hint in hints] == [(True, True)] * hinted


def test_pods_of_a_podgroup_are_not_kept_apart_by_volcanos_annotation_unless_volcano_places_them() -> None:
    apart = msgspec.structs.replace(pod(), annotations={"volcano.sh/vgpu-podgroup-policy": "spread"})
    (hint,) = unserved_words(apart, nowhere, nowhere)
    assert hint.startswith("Purser ignores annotation volcano.sh/vgpu-podgroup-policy: use purser.dev/gpu-policy")
    assert unserved_words(apart, nowhere, nowhere, is_placed=False) == ()
