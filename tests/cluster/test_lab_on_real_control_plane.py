"""Scenarios on a lab whose control plane is real: kubelets are emulated, and nothing needs root.

Those about restarts, outages and many nodes are played on real kubelets, and on the lab's own control plane.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
import pytest_asyncio
import structlog

from purser.lab.cluster import PARTS, Lab
from purser.lab.controlplane.programs import Programs
from purser.lab.controlplane.real import wait_until_pods_allowed
from purser.lab.settings import LabSettings, node_choices
from tests.conftest import log_plainly
from tests.lab.lab_cluster import LabCluster
from tests.scenarios.actions import check_environment, create, running
from tests.scenarios.pods import pod, share, whole
from tests.scenarios.preemption import preempt_one
from tests.scenarios.suite import (
    test_a_card_that_dies_takes_only_its_own_slots_and_gives_them_back_when_it_recovers,
    test_a_pod_that_does_not_fit_waits_says_why_and_runs_when_room_appears,
    test_an_app_container_takes_over_the_card_of_its_init_container,
    test_eight_whole_gpu_pods_get_eight_cards_and_one_pod_gets_all_eight,
    test_gpu_pod_that_slipped_past_the_webhook_gets_no_device_and_an_event_says_what_to_do,
    test_grant_annotations_of_a_bound_pod_cannot_be_changed,
    test_more_devices_than_any_node_has_is_a_warning_not_a_refusal,
    test_pods_without_gpus_are_untouched_with_and_without_the_webhook,
    test_refusals_say_what_to_change,
    test_sixteen_half_gpu_pods_at_once_are_two_on_every_gpu,
    test_three_shares_pack_or_spread_and_all_books_agree,
    test_while_the_agent_is_away_new_pods_wait_and_afterwards_they_run,
)

from .kubernetes.binaries import Binaries, MissingBinariesError

__all__ = [
    "test_a_card_that_dies_takes_only_its_own_slots_and_gives_them_back_when_it_recovers",
    "test_a_pod_that_does_not_fit_waits_says_why_and_runs_when_room_appears",
    "test_an_app_container_takes_over_the_card_of_its_init_container",
    "test_eight_whole_gpu_pods_get_eight_cards_and_one_pod_gets_all_eight",
    "test_gpu_pod_that_slipped_past_the_webhook_gets_no_device_and_an_event_says_what_to_do",
    "test_grant_annotations_of_a_bound_pod_cannot_be_changed",
    "test_more_devices_than_any_node_has_is_a_warning_not_a_refusal",
    "test_pods_without_gpus_are_untouched_with_and_without_the_webhook",
    "test_refusals_say_what_to_change",
    "test_sixteen_half_gpu_pods_at_once_are_two_on_every_gpu",
    "test_three_shares_pack_or_spread_and_all_books_agree",
    "test_while_the_agent_is_away_new_pods_wait_and_afterwards_they_run",
]

pytestmark = pytest.mark.asyncio(loop_scope="module")

EXAMPLES = Path(__file__).parents[2] / "examples"
PURSER = [sys.executable, "-c", "from purser.cli import main; main()"]
API_SERVER = ("etcd", "kube-apiserver")
EVERYTHING = (*API_SERVER, "kube-controller-manager", "kube-scheduler")

_numbers = count(1)


def folder_of(path: Path, names: tuple[str, ...]) -> Path:
    """As KUBEBUILDER_ASSETS names one."""
    binaries = Binaries.chosen()
    path.mkdir()
    try:
        for name in names:
            (path / name).symlink_to(binaries.path(name))
    except MissingBinariesError as error:
        if os.environ.get("PURSER_CLUSTER") == "1":
            pytest.fail(f"PURSER_CLUSTER=1, but {error}", pytrace=False)
        pytest.skip(str(error))
    return path


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return folder_of(tmp_path_factory.mktemp("assets") / "all", EVERYTHING)


@pytest.fixture(scope="module")
def quiet_logs() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    log_plainly()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(assets: Path, quiet_logs: None) -> AsyncIterator[Lab]:
    settings = LabSettings(node_choices(["a100-40gb-8"]), programs=Programs.find(assets), probe_interval_s=0.1)
    async with Lab(settings) as lab:
        async with asyncio.timeout(120):
            await lab.ready()
        yield lab


class RealLabCluster(LabCluster):
    async def set_up(self) -> None:
        await super().set_up()
        await wait_until_pods_allowed(self.client, self.namespace)


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(lab: Lab) -> AsyncIterator[LabCluster]:
    cluster = RealLabCluster(lab, f"scenario-{next(_numbers)}")
    await cluster.set_up()
    yield cluster
    await cluster.tear_down()


async def test_every_part_of_the_control_plane_is_real(lab: Lab) -> None:
    assert set(lab.real) == set(PARTS)
    logs = {path.stem for path in (lab.folder / "logs").iterdir()}
    assert logs == {*API_SERVER, "kube-controller-manager", "kube-scheduler-0", "kube-scheduler-1"}


async def test_stand_ins_do_the_rest_on_an_api_server_alone(tmp_path: Path, quiet_logs: None) -> None:
    programs = Programs.find(folder_of(tmp_path / "assets", API_SERVER))
    async with Lab(LabSettings(node_choices(["t4-4"]), programs=programs)) as lab:
        async with asyncio.timeout(120):
            await lab.ready()
        assert list(lab.real) == ["API server"]
        cluster = LabCluster(lab, "alone")
        await cluster.set_up()
        await create(cluster, pod(cluster, "shared", share(4000)), pod(cluster, "plain", None, nodeSelector={}))
        found = await running(cluster, ["shared", "plain"])
        await check_environment(cluster, found["shared"])


PREEMPTING = [share(21000, 0), whole()]
"""One such pod on each card."""


@pytest.mark.oldest
@pytest.mark.parametrize("limits", PREEMPTING, ids=["by memory", "whole cards"])
async def test_preemption_takes_exactly_who_has_to_go_and_comes_to_rest(
    cluster: LabCluster, limits: dict[str, str]
) -> None:
    """With ten slots kube-scheduler's dry run finds nobody who would have to go."""
    await preempt_one(cluster, limits)


@pytest.mark.oldest
async def test_preemption_with_one_slot_a_gpu_does_the_same(assets: Path, quiet_logs: None) -> None:
    """The dry run finds who has to go."""
    settings = LabSettings(node_choices(["a100-40gb-8"]), programs=Programs.find(assets), slots=1, probe_interval_s=0.1)
    async with Lab(settings) as lab:
        async with asyncio.timeout(120):
            await lab.ready()
        # 1.20 never asks its extenders about preemption.
        asked = int((await lab.client.version())["minor"].rstrip("+")) > 20
        for place, limits in enumerate(PREEMPTING):
            cluster = RealLabCluster(lab, f"preempted-{place}")
            await cluster.set_up()
            await preempt_one(cluster, limits, asked=asked)
            await cluster.tear_down()


async def test_the_first_screen_says_what_is_real_and_nothing_is_left_behind(assets: Path) -> None:
    await asyncio.to_thread(first_screen, assets)


def first_screen(assets: Path) -> None:
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets), "TMPDIR": "/tmp"}
    with subprocess.Popen(
        [*PURSER, "lab", "--node", "t4-4"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        while "Ctrl-C" not in (lines[-1] if lines else ""):
            line = process.stdout.readline()
            assert line, process.stderr.read()
            lines.append(line)
        [real] = [line for line in lines if line.startswith("Real components: etcd, kube-apiserver 1.")]
        assert real.endswith("stand-ins: none\n")
        kubeconfig = Path(next(line.split("=")[1].strip() for line in lines if "KUBECONFIG" in line))
        assert _processes_of(kubeconfig.parent)
        kubectl = ["kubectl", "--kubeconfig", str(kubeconfig)]
        _said([*kubectl, "apply", "-f", str(EXAMPLES / "share.yaml")])
        _said([*kubectl, "wait", "--for=condition=Ready", "pod/share", "--timeout=60s"])
        assert "CUDA_DEVICE_MEMORY_LIMIT_0=10240m" in _said([*kubectl, "logs", "share"])
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert not [line for line in process.stderr.read().splitlines() if '"level": "warning"' not in line]
    assert not kubeconfig.parent.exists()
    assert not _processes_of(kubeconfig.parent)


def _said(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _processes_of(folder: Path) -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes())
        except OSError:
            continue  # ended in between
    return [line for line in found if bytes(folder) in line]
