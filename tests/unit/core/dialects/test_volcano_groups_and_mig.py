"""Volcano's published tables of lists of devices, PodGroups and MIG (``vgpu/utils_test.go``,
``spread_integration_test.go``, ``mig_test.go``). Rows that are different here say why."""

import pytest

from purser.core.dialects.hami_codec import MAX_HAMI_ANNOTATION_BYTES, ContainerDevice
from purser.core.dialects.volcano_codec import decode_vgpu_devices
from purser.core.model import Device, DeviceMode, Enforcement

from .pods import container, pod
from .test_volcano_vgpu_tables import Node, gpus

FIRST, SECOND = ContainerDevice("GPU-0", "NVIDIA", 4096, 30), ContainerDevice("GPU-1", "NVIDIA", 2048, 10)


@pytest.mark.parametrize(
    ("text", "devices"),
    [
        ("GPU-0,NVIDIA,4096,30:", [FIRST]),
        ("GPU-0,NVIDIA,-5,30:", []),
        ("GPU-0,NVIDIA,4096,-1:", []),
        ("GPU-0,NVIDIA,abc,30:", []),
        ("GPU-0,NVIDIA:", []),
        ("GPU-0,NVIDIA,-5,30:GPU-1,NVIDIA,2048,10:", [SECOND]),
        # What else its code says of a list.
        ("abc:GPU-1,NVIDIA,2048,10", [SECOND]),
        ("GPU-1,NVIDIA,2048,10,more:", [SECOND]),
        ("GPU-0,NVIDIA,+5,30:GPU-0,NVIDIA,4294967296,30:GPU-0,NVIDIA,\u00b9,30:", []),
    ],
)
def test_devices_of_a_container(text, devices):
    assert decode_vgpu_devices(text) == (tuple(devices),)
    assert decode_vgpu_devices(f"{text};;GPU-0,NVIDIA,4096,30:") == (tuple(devices), (), (FIRST,))


def test_no_text_and_one_that_is_too_long_have_no_containers():
    assert decode_vgpu_devices("") == decode_vgpu_devices(";" * (MAX_HAMI_ANNOTATION_BYTES + 1)) == ()


SHARE = {"vgpu": 1, "vgpumem": 4096, "vgpucores": 25}


def member(**annotations):
    """A pod of the spread tables."""
    return pod(container(**SHARE), **annotations)


@pytest.mark.parametrize(
    "groups", [{}, {"group": "my-pg"}, {"volcano_group": "job-pg"}, {"group": "k8s-pg", "volcano_group": "job-pg"}]
)
def test_different_a_podgroup_is_nothing_to_purser(groups):
    """Its key is "", or namespace and name of the group, of which Kubernetes' own word counts first. Purser has no
    PodGroups: members share a GPU like other pods, as without the annotation, which the webhook warns of."""
    node = Node(*gpus(16384, 16384))
    spread = member(podgroup_policy="spread", gpu_policy="binpack", **groups)
    assert node.takes(spread, "a") == node.takes(spread, "b") != []


@pytest.mark.parametrize(
    ("cards", "first", "second", "apart"),
    [
        pytest.param(2, "mutex", "mutex", True, id="spread: on different GPUs"),
        pytest.param(2, "binpack", "binpack", False, id="without: may share"),
        pytest.param(2, "mutex", "binpack", False, id="the second without: is placed"),
        pytest.param(1, "mutex", "mutex", None, id="spread, one GPU: the second is refused"),
        pytest.param(1, "binpack", "mutex", None, id="different, use by another group counts: it wants an idle GPU"),
    ],
)
def test_members_of_a_group_are_kept_apart_by_the_policy_mutex(cards, first, second, apart):
    """``apart``: None: the second finds no GPU. Different: pods of two groups, both with the policy, share none."""
    node = Node(*gpus(*[16384] * cards))
    one = node.takes(member(gpu_policy=first, group="job-1"), "first")
    other = node.takes(member(gpu_policy=second, group="job-1"), "second")
    assert one
    assert (one != other if other else None) == apart


def cut(kind: str) -> Device:
    mig = {"mode": DeviceMode.MIG, "enforcement": Enforcement.MIG, "mig_kind": kind}
    return Device("GPU-9", 9, "A100", 81920, slots=7, **mig)


def profiles_of(kind: str, *memory: int) -> list[str]:
    """The instance that each of some pods gets; empty: none."""
    node, found = Node(cut(kind)), []
    for at, mib in enumerate(memory):
        taken = node.takes(pod(container(vgpumem=mib), vgpu_mode="mig"), f"u{at}")
        held = {grant.pod_uid: grant for grant in node.fleet.ledger.grants()}
        found.append(held[f"u{at}"].containers[0].shares[0].mig.profile if taken else "")
    return found


@pytest.mark.parametrize(
    ("kind", "memory", "profiles"),
    [
        pytest.param("A100-80GB", [10], ["1g.10gb"], id="the smallest with the memory, which is free"),
        pytest.param("A100-80GB", [5], ["1g.10gb"], id="less than the smallest has"),
        pytest.param("A100-80GB", [90000], [""], id="more than the largest has"),
        pytest.param("unheard-of", [10], [""], id="no geometries are known"),
        pytest.param("A100-80GB", [70000, 10], ["7g.80gb", ""], id="all of it is in use"),
        pytest.param("A100-80GB", [15000], ["1g.20gb"], id="the first that is too small is passed over"),
        pytest.param(
            "A100-80GB", [10, 15000], ["1g.10gb", "1g.20gb"], id="different: an instance binds the GPU to no geometry"
        ),
    ],
)
def test_the_instance_of_a_gpu_that_a_pod_gets(kind, memory, profiles):
    """Volcano's GPUs are cut by one of the administrator's geometries, all of the GPU by the first that suits, so that
    a pod is refused what another geometry has. Purser puts an instance wherever it may lie beside those in use."""
    assert profiles_of(kind, *memory) == profiles
