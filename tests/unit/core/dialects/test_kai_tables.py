"""KAI's published table of what its admission takes and refuses (``gpu_request_validator_test.go`` of 0.17), what its
users find in their containers, and values that nobody means well with."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.texts import any_text

from purser.core.dialects import (
    DialectError,
    asks_for_devices,
    default_limits,
    environment,
    grant_annotations,
    kai,
    parse,
)
from purser.core.dialects.unserved import unserved_words
from purser.core.model import ContainerGrant, ContainerKind, Device, DeviceRequest, DeviceShare, Grant, NodeInventory
from purser.core.names import SCHEDULER_NAME
from purser.core.pod.manifest import ContainerSpec, PodManifest

from .pods import container, pod

FRACTION, MEMORY = "gpu-fraction", "gpu-memory"
DEVICES, NAME, MPS = "gpu-fraction-num-devices", "gpu-fraction-container-name", "mps"
INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def kais(*containers: ContainerSpec, scheduler: str = "kai-scheduler", **annotations: str) -> PodManifest:
    words = {"fraction": FRACTION, "memory": MEMORY, "devices": DEVICES, "named": NAME, "mps": MPS}
    named = {words.get(key, key): value for key, value in annotations.items()}
    return msgspec.structs.replace(pod(*(containers or (container(),))), annotations=named, scheduler_name=scheduler)


def request_of(spec: PodManifest) -> DeviceRequest:
    parsed = parse(spec)
    assert parsed is not None
    (part,) = parsed.containers
    return part.devices


def completed(spec: PodManifest) -> PodManifest:
    """As the webhook leaves it."""
    if not asks_for_devices(spec):
        return spec
    added = default_limits(spec)
    parts = tuple(
        msgspec.structs.replace(each, limits={**each.limits, **added.get(each.name, {})}) for each in spec.containers
    )
    return msgspec.structs.replace(spec, containers=parts, scheduler_name=SCHEDULER_NAME)


def problems_of(spec: PodManifest) -> tuple[str, ...]:
    with pytest.raises(DialectError) as caught:
        parse(spec)
    return caught.value.problems


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        (kais(mps="true", fraction="0.5"), DeviceRequest(1, memory_percent=50)),
        (kais(fraction="0.5"), DeviceRequest(1, memory_percent=50)),
        (kais(container(gpu=2)), DeviceRequest(2, memory_percent=100, cores_percent=100)),
        (kais(container(gpu="2000m")), DeviceRequest(2, memory_percent=100, cores_percent=100)),
        (kais(memory="2000"), DeviceRequest(1, memory_mib=2000)),
        (kais(devices="2", memory="1000"), DeviceRequest(2, memory_mib=1000)),
        (kais(devices="2", fraction="0.3"), DeviceRequest(2, memory_percent=30)),
        (kais(fraction="5e-1"), DeviceRequest(1, memory_percent=50)),
        (kais(fraction=".5"), DeviceRequest(1, memory_percent=50)),
        (kais(fraction="+0.29"), DeviceRequest(1, memory_percent=29)),
        (kais(fraction="0.999"), DeviceRequest(1, memory_percent=99)),
        (kais(fraction="0." + "9" * 32), DeviceRequest(1, memory_percent=99)),
    ],
)
def test_what_kai_admits_becomes_a_request(spec: PodManifest, wanted: DeviceRequest) -> None:
    assert request_of(spec) == wanted


def test_a_zero_that_kai_would_refuse_is_as_absent() -> None:
    """A LimitRange gives it to every container."""
    assert request_of(kais(container(gpu=0, mem=0), fraction="0.5")) == request_of(kais(fraction="0.5"))


OF_BOTH = "of the share: keep only one of"
NO_PART, NO_MIB, NO_COUNT = (
    "is not a fraction of a GPU",
    "is not a number of MiB",
    "is not a number of GPUs: must be an integer from 1 to 1024",
)
BESIDE = "the pod's annotations ask for a share of a GPU: use only one of"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (kais(container(gpu=1), mps="true"), "annotation mps applies only with gpu-fraction or gpu-memory"),
        (kais(container(gpu="2m"), fraction="0.5"), BESIDE),
        (kais(container(gpu=1), fraction="0.5"), BESIDE),
        (kais(container(gpu="1m"), memory="1"), BESIDE),
        (kais(container(), container("sneaky", gpu="1m"), memory="1"), 'container "sneaky" asks for nvidia.com/gpu'),
        (kais(container("load", INIT, gpu=1), container(), memory="1"), 'container "load" asks for nvidia.com/gpu'),
        (kais(fraction="0.5", memory="1"), OF_BOTH),
        (kais(fraction="1.5"), NO_PART),
        (kais(fraction="1.2"), NO_PART),
        (kais(fraction="-1"), NO_PART),
        (kais(memory="-1"), NO_MIB),
        (kais(devices="1"), "shares but not their size: add gpu-fraction or gpu-memory"),
        (kais(devices="1.2", fraction="0.2"), NO_COUNT),
        (kais(devices="0", fraction="0.2"), NO_COUNT),
        (kais(fraction="NaN"), NO_PART),
        (kais(fraction="0x1p-1"), NO_PART),
        (kais(fraction="0.5", named="nobody"), 'gpu-fraction-container-name "nobody" does not name any of the pod\'s'),
    ],
)
def test_what_kai_refuses_is_refused_with_what_to_write(spec: PodManifest, said: str) -> None:
    assert said in problems_of(spec)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, NO_PART) for text in ("inf", "-inf", "Infinity", "nan", "0", "-0", "0.0", "1", "1.0", "1e400")),
        *(
            (text, NO_PART)
            for text in ("", " ", "0.5 ", " 0.5", "٠.٥", "0,5", "0_1", "50%", "500m", "0.5Gi", "5e", ".")
        ),
        *((text, NO_PART) for text in ("9" * 100_000, "0." + "1" * 100_000, "1e-9999", "0.5\x00", "\ud800")),
        ("1.2e-10", "is less than 1% of a GPU: use 0.01 or more, or gpu-memory in MiB"),
        ("0.0099", "is less than 1% of a GPU"),
        ("1e-400", "is less than 1% of a GPU"),
    ],
)
def test_a_fraction_that_makes_no_sense_is_refused_in_one_short_sentence(text: str, said: str) -> None:
    (problem,) = problems_of(kais(fraction=text))
    assert said in problem
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *((text, NO_MIB) for text in ("", "0", "00", "-0", "+5", "1.5", "1e3", "2k", "2Gi", "NaN", "inf", "٣", "1_0")),
        *((text, NO_MIB) for text in ("9" * 20, "9" * 100_000, " 5", "5\n", "0x10")),
        ("1048577", "exceeds the memory of any GPU: must be a number of MiB, such as 16384"),
        ("17179869184", "exceeds the memory of any GPU"),
    ],
)
def test_an_amount_that_makes_no_sense_is_refused_in_one_short_sentence(text: str, said: str) -> None:
    (problem,) = problems_of(kais(memory=text))
    assert said in problem
    assert len(problem) < 300


@pytest.mark.parametrize("text", ["", "0", "-1", "1025", "9" * 5000, "2.0", "NaN", "1e2"])
def test_a_number_of_gpus_that_makes_no_sense_is_refused(text: str) -> None:
    (problem,) = problems_of(kais(fraction="0.5", devices=text))
    assert NO_COUNT in problem
    assert len(problem) < 300


@pytest.mark.parametrize(
    ("named", "container_that_gets_it"),
    [(None, "main"), ("load", "load"), ("proxy", "proxy"), ("main", "main"), ("last", "last")],
)
def test_the_share_is_the_first_containers_or_the_one_by_name(named: str | None, container_that_gets_it: str) -> None:
    parts = (container("load", INIT), container("proxy", SIDECAR), container("main"), container("last"))
    spec = kais(*parts, fraction="0.25", **({"named": named} if named is not None else {}))
    parsed = parse(spec)
    assert parsed is not None
    assert [part.name for part in parsed.containers] == [container_that_gets_it]
    assert default_limits(spec) == {
        container_that_gets_it: {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}
    }


@pytest.mark.parametrize(
    ("spec", "added"),
    [
        (kais(memory="2000", devices="2"), {"nvidia.com/gpu": "2", "nvidia.com/gpumem": "2000"}),
        (kais(container(priority=1), fraction="0.5"), {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}),
    ],
)
def test_the_webhook_writes_the_share_in_hamis_words_and_nothing_else_changes(
    spec: PodManifest, added: dict[str, str]
) -> None:
    assert default_limits(spec) == {"train": added}
    after = completed(spec)
    assert default_limits(after) == {}
    assert request_of(after) == request_of(spec)
    assert parse(after).systems == parse(spec).systems == ("KAI",)  # type: ignore[union-attr]


def test_the_api_server_spells_amounts_its_own_way() -> None:
    after = completed(kais(memory="2000"))
    (part,) = after.containers
    spelled = msgspec.structs.replace(part, limits={**part.limits, "nvidia.com/gpumem": "2k"})
    assert parse(msgspec.structs.replace(after, containers=(spelled,))).systems == ("KAI",)  # type: ignore[union-attr]


@pytest.mark.parametrize("changed", [{}, {FRACTION: "0.9"}, {MEMORY: "100000"}, {FRACTION: "0.5", NAME: "other"}])
def test_who_changes_the_annotations_later_changes_no_request(changed: dict[str, str]) -> None:
    after = completed(kais(container(), container("other"), fraction="0.5"))
    assert request_of(msgspec.structs.replace(after, annotations=changed)) == DeviceRequest(1, memory_percent=50)


@pytest.mark.parametrize("scheduler", ["", "default-scheduler", "volcano", "kai-scheduler-2"])
def test_in_other_pods_the_annotations_are_somebody_elses(scheduler: str) -> None:
    """An inventory tool's ``gpu-memory: 16Gi`` refuses no pod of a web server."""
    for text in ("16Gi", "16384"):
        spec = kais(scheduler=scheduler, memory=text)
        assert not asks_for_devices(spec)
        assert parse(spec) is None
        (hint,) = unserved_words(spec, lambda *_: False, lambda *_: False)
        assert "Purser ignores annotation gpu-memory: it applies only if schedulerName is kai-scheduler, or" in hint
        asks = kais(container(gpu=1), scheduler=scheduler, memory=text)
        assert request_of(asks).is_whole
        assert request_of(completed(asks)).is_whole
        beside = kais(container("proxy"), container(gpu=1), scheduler=scheduler, memory=text)
        assert request_of(completed(beside)).is_whole


def test_a_pod_that_names_pursers_scheduler_may_ask_in_kais_words() -> None:
    spec = kais(scheduler=SCHEDULER_NAME, fraction="0.5")
    assert request_of(spec) == DeviceRequest(1, memory_percent=50)
    assert unserved_words(spec, lambda *_: False, lambda *_: False) == ()


def test_a_fraction_that_is_no_whole_percent_counts_as_the_next_lower_and_its_author_hears_of_it() -> None:
    spec = kais(fraction="0.125")
    assert request_of(spec) == DeviceRequest(1, memory_percent=12)
    for seen in (spec, completed(spec)):
        (said,) = kai.warnings(seen)
        assert "gpu-fraction 0.125 is rounded down to 12" in said
    assert kai.warnings(kais(fraction="0.29")) == kai.warnings(kais(scheduler="", fraction="0.125")) == ()


@pytest.mark.parametrize("words", [{"mem": 100}, {"vmem": 100}, {"vgpu": 1}, {"gpumem": 1}, {"mig": 1}, {"cores": 5}])
def test_a_container_asks_in_one_systems_words(words: dict[str, int]) -> None:
    (problem,) = problems_of(kais(container(**words), fraction="0.5"))
    assert BESIDE in problem


def test_other_vendors_devices_are_no_share_of_a_gpu() -> None:
    part = msgspec.structs.replace(container(), limits={"hygon.com/dcunum": "1"})
    spec = msgspec.structs.replace(kais(part, fraction="0.5"), families=frozenset({"Hygon DCU"}))
    (problem,) = problems_of(spec)
    assert "mixes KAI's annotations and hygon.com/dcunum: use the resources of only one system" in problem


def test_a_pod_of_kais_without_gpus_asks_for_nothing() -> None:
    assert not asks_for_devices(kais())
    assert not asks_for_devices(kais(mps="true"))
    assert not asks_for_devices(kais(named="train"))


DEVICES_OF_NODE = tuple(Device(f"GPU-{at}", at, "T4", mib, slots=10) for at, mib in enumerate((15360, 40960)))
KNOWN = {device.uuid: device for device in DEVICES_OF_NODE}


def found_in(spec: PodManifest, mib: int, *uuids: str) -> dict[str, str]:
    part = ContainerGrant("train", APP, tuple(DeviceShare(uuid, mib, 0) for uuid in uuids))
    grant = Grant("u-1", "team", "job", "n1", (part,))
    after = completed(spec)
    request = parse(after)
    assert request is not None
    record = grant_annotations(after, request.systems, grant, NodeInventory("n1", DEVICES_OF_NODE), 1)
    assert record == {"received-resource-type": "Fraction"}
    return environment(after, grant, part, KNOWN)


@pytest.mark.parametrize(
    ("spec", "mib", "uuids", "portion"),
    [
        (kais(fraction="0.5"), 7680, ["GPU-0"], "0.50"),
        (kais(fraction="0.05"), 768, ["GPU-0"], "0.05"),
        (kais(fraction="0.5", devices="2"), 7680, ["GPU-0", "GPU-1"], "0.50"),
        (kais(memory="4096"), 4096, ["GPU-0"], "0.27"),  # its documentation's example: of 15360 MiB
        (kais(memory="4096"), 4096, ["GPU-1"], "0.11"),
        (kais(memory="15360"), 15360, ["GPU-0"], "1.00"),
    ],
)
def test_programs_find_their_part_of_a_gpu(spec: PodManifest, mib: int, uuids: list[str], portion: str) -> None:
    assert found_in(spec, mib, *uuids) == {"GPU_PORTION": portion, "RUNAI_NUM_OF_GPUS": portion}


def test_a_gpu_that_is_gone_has_no_parts() -> None:
    assert found_in(kais(fraction="0.5"), 7680, "gone") == {}


TEXTS = st.one_of(
    st.sampled_from(["0.5", "0.125", "1", "2", "2000", "NaN", "inf", "1e400", "-1", "0", "9" * 40, "train", "true"]),
    any_text(max_size=12),
)
LIMITS = st.dictionaries(
    st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "volcano.sh/gpu-memory"]),
    st.sampled_from(["0", "1", "2", "50", "2000", "2k", "x", "500m"]),
    max_size=2,
)


@st.composite
def pods(draw: st.DrawFn) -> PodManifest:
    kinds = draw(st.lists(st.sampled_from([INIT, SIDECAR]), max_size=2)) + [APP] * draw(st.integers(0, 2))
    names = ["train", *(f"c{at}" for at in range(len(kinds)))]
    parts = tuple(ContainerSpec(name, kind, draw(LIMITS)) for name, kind in zip(names, kinds, strict=False))
    written = draw(st.dictionaries(st.sampled_from([FRACTION, MEMORY, DEVICES, NAME, MPS]), TEXTS, max_size=4))
    scheduler = draw(st.sampled_from(["kai-scheduler", SCHEDULER_NAME, ""]))
    return PodManifest("u", "ns", "p", written, parts, scheduler_name=scheduler)


@given(pods())
def test_any_pod_is_read_or_refused_and_the_webhook_changes_nothing_of_what_was_read(spec: PodManifest) -> None:
    unserved_words(spec, lambda *_: False, lambda *_: False)
    kai.warnings(spec)
    try:
        parsed = parse(spec)
    except DialectError as error:
        assert all(20 < len(problem) < 400 for problem in error.problems)
        return
    assert (parsed is None) == (not asks_for_devices(spec))
    after = completed(spec)
    assert default_limits(after) == {}
    again = parse(after)
    assert (again and again.containers) == (parsed and parsed.containers)
