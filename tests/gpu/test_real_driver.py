"""The NVML seam on a real driver; skipped where there is none. It reads only: no setting of the card is touched."""

import time
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from purser.agent.features.collecting import collect_facts
from purser.agent.host.sysfs import SYSFS_ROOT
from purser.agent.nvml import Driver, open_driver
from purser.core.device.pci import as_label
from purser.core.features import labels_of
from purser.core.kubernetes.quantities import MIB
from purser.core.monitoring.dcgm import METRICS

KERNEL_MODULE = Path("/proc/driver/nvidia/version")
"""A test before these may have loaded the simulated library, which answers to the real one's name from then on."""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not KERNEL_MODULE.exists(), reason="no NVIDIA driver on this machine"),
]


@pytest.fixture
def driver() -> Iterator[Driver]:
    driver = open_driver()
    try:
        assert driver.info().absent is None
        yield driver
    finally:
        driver.close()


def test_every_gpu_says_who_and_how_large_it_is(driver: Driver) -> None:
    gpus = driver.scan()
    assert gpus
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    for gpu in gpus:
        assert gpu.fault is None
        assert gpu.uuid and gpu.uuid.startswith("GPU-")
        assert gpu.name and gpu.memory_mib > 1024 and gpu.pci_bus_id and gpu.compute_capability


def test_links_are_the_same_from_both_ends(driver: Driver) -> None:
    links = {gpu.uuid: {link.peer: (link.pcie, link.nvlinks) for link in gpu.links} for gpu in driver.scan()}
    for one, other in permutations(links, 2):
        assert links[str(one)].get(str(other)) == links[str(other)].get(str(one))


def test_a_healthy_gpu_answers_the_probe(driver: Driver) -> None:
    for gpu in driver.scan():
        assert gpu.uuid
        reading = driver.read(gpu.uuid)
        assert reading.fault is None


def test_a_gpu_is_measured_and_its_rates_from_the_second_time_on(driver: Driver) -> None:
    for gpu in driver.scan():
        assert gpu.uuid
        driver.telemetry(gpu.uuid)
        time.sleep(0.2)
        told = driver.telemetry(gpu.uuid)
        assert told.memory is not None
        parts = told.memory.used + told.memory.free + (told.memory.reserved or 0)
        assert abs(parts - told.memory.total) < 16 * MIB
        assert told.fields.keys() <= {each.name for each in METRICS}
        assert 0 < told.fields["DCGM_FI_DEV_GPU_TEMP"] < 120
        assert told.fields["DCGM_FI_DEV_SM_CLOCK"] > 0
        if gpu.architecture == "hopper" and not gpu.is_partitioned:
            profiled = [each.name for each in METRICS if each.name.startswith("DCGM_FI_PROF_")]
            assert {name for name in profiled if name in told.fields} == set(profiled)
            assert 0 <= told.fields["DCGM_FI_PROF_GR_ENGINE_ACTIVE"] <= 1
        if any(link.nvlinks for link in gpu.links):
            assert told.fields["DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"] >= 0


def test_waiting_for_an_event_ends_without_one(driver: Driver) -> None:
    driver.scan()
    assert driver.wait_event(10) is None


def test_the_labels_of_the_node_are_all_known(driver: Driver) -> None:
    gpus = driver.scan()
    labels, troubles = labels_of(collect_facts(gpus, driver.info(), SYSFS_ROOT, None, None))
    assert troubles == ()
    assert labels["nvidia.com/gpu.product"] in {as_label(gpu.name) for gpu in gpus}
    assert labels["nvidia.com/gpu.family"] in {gpu.architecture.replace("ada", "ada-lovelace") for gpu in gpus}
    assert labels["nvidia.com/gpu.mode"] in ("compute", "graphics", "unknown")
    assert labels["nvidia.com/cuda.driver-version.full"] == driver.info().version
