"""Whose a process is, by what kubelets and container runtimes write into /proc/<pid>/cgroup."""

import pytest

from purser.core.monitoring.cgroups import MAX_CGROUP_BYTES, CgroupOwner, cgroup_id_of, owner_of

UID = "0f3ad3a2-9c1b-4f6e-8d57-0a4b5c6d7e8f"
OTHER = "11111111-2222-3333-4444-555555555555"
STATIC = "c9a4f1b2d3e4f5061728394a5b6c7d8e"
ID, OTHER_ID = "ab" * 32, "cd" * 32
SLICE = UID.replace("-", "_")

POD = CgroupOwner(UID, ID)

V1_CGROUPFS = "\n".join(
    f"{number}:{controllers}:/kubepods/burstable/pod{UID}/{ID}"
    for number, controllers in enumerate(("name=systemd", "memory", "cpu,cpuacct", "devices"), 1)
)
V1_SYSTEMD = "\n".join(
    f"{number}:{controllers}:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE}.slice/docker-{ID}.scope"
    for number, controllers in enumerate(("devices", "memory", "name=systemd"), 1)
)


def unified(path: str) -> str:
    return f"0::{path}\n"


@pytest.mark.parametrize(
    ("text", "owner"),
    [
        pytest.param(V1_CGROUPFS, POD, id="v1-cgroupfs"),
        pytest.param(f"{V1_CGROUPFS}\n0::/system.slice/containerd.service", POD, id="hybrid-with-an-empty-v2"),
        pytest.param(V1_SYSTEMD, POD, id="v1-systemd-docker"),
        pytest.param(unified(f"/kubepods/pod{UID}/{ID}/user/deeper"), POD, id="nested-in-the-container"),
        pytest.param(unified(f"/kubepods/burstable/pod{UID}"), CgroupOwner(UID), id="in-the-pod-alone"),
        pytest.param(unified(f"/kubepods/burstable/pod{UID}/kata"), CgroupOwner(UID), id="in-no-container-known"),
        pytest.param(
            unified(
                f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope"
            ),
            CgroupOwner(STATIC, ID),
            id="static-pod",
        ),
        pytest.param(
            unified(f"/system.slice/containerd.service/kubepods-burstable-pod{SLICE}.slice:cri-containerd:{ID}"),
            POD,
            id="containerd-without-the-systemd-driver",
        ),
        pytest.param(
            unified(f"/kubepods-pod{SLICE}.slice:cri-containerd:{ID}"), POD, id="the-same-guaranteed-at-the-root"
        ),
        pytest.param(unified(f"/../../../../kubepods/pod{UID}/{ID}"), POD, id="seen-from-another-cgroup-namespace"),
    ],
)
def test_a_process_of_a_pod(text: str, owner: CgroupOwner) -> None:
    assert owner_of(text) == owner


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(unified("/system.slice/sshd.service"), id="of-the-host"),
        pytest.param(unified(f"/system.slice/docker-{ID}.scope"), id="of-a-container-that-is-no-pods"),
        pytest.param(unified("/"), id="of-the-root"),
        pytest.param("", id="nothing"),
        pytest.param("0::", id="no-path"),
        pytest.param("kubepods", id="no-fields"),
        pytest.param(unified("/kubepods.slice"), id="kubepods-alone"),
        pytest.param(unified("/kubepods/burstable/podlonely"), id="no-uid"),
        pytest.param(unified(f"/kubepods/burstable/x/pod{UID}/{ID}"), id="a-folder-between"),
        pytest.param(unified(f"/pod{UID}/{ID}"), id="a-pods-name-beside-kubepods"),
        pytest.param(unified(f"/kubepods/burstable/pod{UID.upper()}/{ID}"), id="a-uid-in-capitals"),
        pytest.param(
            unified(f"/user.slice/user-1000.slice/user@1000.service/kubepods/pod{UID}/{ID}"), id="forged-by-a-user"
        ),
        pytest.param(
            unified(f"/user.slice/user-1000.slice/kubepods-pod{SLICE}.slice:cri-containerd:{ID}"),
            id="forged-by-a-user-mixed",
        ),
        pytest.param(
            unified(f"/../../user.slice/user-1000.slice/kubepods/pod{UID}/{ID}"), id="forged-by-a-user-seen-from-below"
        ),
        pytest.param(
            f"1:memory:/kubepods/pod{UID}/{ID}\n2:devices:/kubepods/pod{OTHER}/{OTHER_ID}", id="hierarchies-disagree"
        ),
    ],
)
def test_a_process_of_no_pod(text: str) -> None:
    assert owner_of(text) is None


@pytest.mark.parametrize(
    "below",
    [
        f"kubepods/pod{OTHER}/{OTHER_ID}",
        f"kubepods.slice/kubepods-pod{OTHER.replace('-', '_')}.slice/cri-containerd-{OTHER_ID}.scope",
        f"kubepods-pod{OTHER.replace('-', '_')}.slice:cri-containerd:{OTHER_ID}",
        f"../../pod{OTHER}/{OTHER_ID}",
        f"x\\n0::/kubepods/pod{OTHER}/{OTHER_ID}",
    ],
)
def test_a_container_that_makes_cgroups_stays_who_it_is(below: str) -> None:
    assert owner_of(unified(f"/kubepods/burstable/pod{UID}/{ID}/{below}")) == POD


@pytest.mark.parametrize("part", ["kubepods-", "a-", "x/", "0::/kubepods\n", "pod", "_", ".slice:"])
def test_a_long_file_is_of_no_pod(part: str) -> None:
    assert owner_of(unified("/" + part * (MAX_CGROUP_BYTES // len(part)))) is None


def test_a_containers_id_in_the_status_is_that_of_its_cgroup() -> None:
    assert {cgroup_id_of(f"{scheme}://{ID}") for scheme in ("containerd", "cri-o", "docker")} == {ID}
    assert cgroup_id_of("") == ""
