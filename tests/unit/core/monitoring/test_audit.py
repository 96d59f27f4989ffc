"""Who has more of a GPU than was granted, and from when on that counts."""

import pytest
from tests.unit.agent.builders import A, B, grant, init, part

from purser.core.kubernetes.quantities import MIB
from purser.core.monitoring.accounts import ContainerUse, GpuAccount, PodContainer, ProcessUse
from purser.core.monitoring.audit import (
    LASTING_READINGS,
    MAX_FINDINGS,
    TOLERATED_MIB,
    TOLERATED_UNGRANTED_MIB,
    Audit,
    AuditFinding,
    FindingKey,
    FindingKind,
    find,
    update_audit,
)

GRANTED_MIB = 1000
GRANTS = {"uid-p": grant("p", part("main", A, memory_mib=GRANTED_MIB), init("warm", A, memory_mib=10))}


def gpu(uuid: str, *uses: tuple[str, str, int], foreign: tuple[tuple[int, int | None], ...] = ()) -> GpuAccount:
    """By pod, container and MiB; of no pod by pid and MiB."""
    containers = tuple(
        ContainerUse(PodContainer("ns", pod, f"uid-{pod}", container), uuid, mib * MIB, None)
        for pod, container, mib in uses
    )
    strangers = tuple(ProcessUse(pid, uuid, None if mib is None else mib * MIB, None, None) for pid, mib in foreign)
    return GpuAccount(uuid, {}, containers, strangers)


def judged(*accounts: GpuAccount) -> dict[tuple[str, str, str], tuple[int, int]]:
    found = find(accounts, GRANTS)
    return {(key.kind.value, key.uuid, key.pod_uid): (each.used_mib, each.granted_mib) for key, each in found.items()}


@pytest.mark.parametrize(
    ("uses", "found"),
    [
        ([("p", "main", GRANTED_MIB + TOLERATED_MIB)], {}),
        (
            [("p", "main", GRANTED_MIB + TOLERATED_MIB + 1)],
            {("over-memory", A, "uid-p"): (GRANTED_MIB + TOLERATED_MIB + 1, GRANTED_MIB)},
        ),
        (
            [("p", "main", GRANTED_MIB), ("p", "", TOLERATED_MIB + 1)],
            {("over-memory", A, "uid-p"): (GRANTED_MIB + TOLERATED_MIB + 1, GRANTED_MIB)},
        ),
        ([("q", "main", TOLERATED_UNGRANTED_MIB)], {}),
        ([("q", "main", 101)], {("without-grant", A, "uid-q"): (101, 0)}),
    ],
    ids=["within", "beyond", "beyond-by-two-containers", "a-little-without-a-grant", "without-a-grant"],
)
def test_a_pod_is_judged_by_what_it_has_of_the_gpu(uses, found) -> None:
    assert judged(gpu(A, *uses)) == found


def test_a_grant_of_one_gpu_is_none_of_another() -> None:
    assert judged(gpu(A, ("p", "main", 900)), gpu(B, ("p", "main", 900))) == {("without-grant", B, "uid-p"): (900, 0)}


def test_a_grant_of_mig_devices_is_compared_with_what_is_used_of_them() -> None:
    grants = {"uid-p": grant("p", part("main", "MIG-1", "MIG-2", memory_mib=5000))}
    owner = PodContainer("ns", "p", "uid-p", "main")

    def found(mib: int, device: str = "MIG-1") -> list[str]:
        return [
            key.kind for key in find([GpuAccount(A, {}, (ContainerUse(owner, device, mib * MIB, None),), ())], grants)
        ]

    assert found(5512) == []
    assert found(5513) == ["over-memory"]
    assert found(200, "MIG-3") == ["without-grant"]


def test_a_large_grant_tolerates_a_tenth_more() -> None:
    large = {"uid-p": grant("p", part("main", A, memory_mib=40_000))}
    assert not find([gpu(A, ("p", "main", 44_000))], large)
    assert find([gpu(A, ("p", "main", 44_001))], large)


def test_a_grant_without_an_amount_limits_nothing() -> None:
    assert not find([gpu(A, ("p", "main", 44_000))], {"uid-p": grant("p", part("main", A, memory_mib=0))})


def test_processes_of_no_pod_are_one_finding_of_the_gpu() -> None:
    key = FindingKey(FindingKind.FOREIGN, A)
    found = find([gpu(A, foreign=((7, 60), (8, 70), (9, None)))], GRANTS)
    assert found == {key: AuditFinding(key, "", "", 130, 0, (8, 7, 9))}
    assert not find([gpu(A, foreign=((7, 60), (8, 40)))], GRANTS), "as much as a display server"


# --- over time

OVER, WITHIN = gpu(A, ("p", "main", 5000)), gpu(A, ("p", "main", 500))


def run(audit: Audit, *readings: GpuAccount | None) -> tuple[Audit, list[str]]:
    """None: GPU A did not answer."""
    told = []
    for reading in readings:
        accounts = [] if reading is None else [reading]
        news = update_audit(audit, find(accounts, GRANTS), read={each.uuid for each in accounts}, listed={A, B})
        audit = news.audit
        told += [f"+{each.key.kind}" for each in news.began] + [f"-{each.key.kind}" for each in news.ended]
    return audit, told


def test_a_finding_lasts_before_it_is_reported_and_ends_likewise() -> None:
    audit, told = run(Audit(), *[OVER] * (LASTING_READINGS - 1), WITHIN, *[OVER] * (LASTING_READINGS - 1))
    assert told == []
    audit, told = run(audit, OVER, OVER, OVER)
    assert told == ["+over-memory"], "once"
    audit, told = run(audit, *[WITHIN] * (LASTING_READINGS - 1), OVER, *[WITHIN] * (LASTING_READINGS - 1))
    assert told == []
    audit, told = run(audit, WITHIN, WITHIN)
    assert told == ["-over-memory"]
    assert audit == Audit()


def test_a_gpu_that_does_not_answer_changes_nothing() -> None:
    audit, _ = run(Audit(), *[OVER] * LASTING_READINGS)
    assert run(audit, *[None] * 9) == (audit, [])


def test_what_stands_has_the_last_readings_amounts() -> None:
    audit, _ = run(Audit(), *[OVER] * LASTING_READINGS, gpu(A, ("p", "main", 6000)))
    assert [each.used_mib for each in audit.current.values()] == [6000]


def test_what_concerned_a_gpu_that_is_gone_is_forgotten() -> None:
    audit, _ = run(Audit(), *[OVER] * LASTING_READINGS)
    assert update_audit(audit, {}, read={B}, listed={B}).audit == Audit()


def test_there_are_so_many_findings_and_no_more() -> None:
    crowd = gpu(A, *((f"q{number}", "main", 200) for number in range(MAX_FINDINGS + 40)))
    audit, told = run(Audit(), *[crowd] * (LASTING_READINGS + 2))
    assert len(audit.current) == len(told) == MAX_FINDINGS
