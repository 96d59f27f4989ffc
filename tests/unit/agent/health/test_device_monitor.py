"""The monitor and drivers that misbehave in ways that a simulated library does not."""

import asyncio
import contextlib
import threading

import pytest
import structlog
from tests.unit.agent.builders import A, B
from tests.unit.agent.conftest import DEADLINE_S, eventually
from tests.unit.kube.servers import ManualClock

from purser.agent.health.memory import HealthMemory
from purser.agent.health.monitor import DeviceMonitor
from purser.agent.host.latest import Latest
from purser.agent.inventory.known_gpus import KnownGpus
from purser.agent.nvml import DeviceReading, DriverError, DriverInfo, Gpu, MigMode, NullDriver, XidEvent
from purser.agent.settings import AgentSettings, DevicePluginFlags, SharingSettings
from purser.agent.sharing import config_of
from purser.core.device.gpus import FabricIds, NodeMigDevice
from purser.core.health.fabric import FabricRegistration, FabricState
from purser.core.health.messages import News
from purser.core.health.signs import DeviceFault, FaultKind
from purser.core.sharing import MigStrategy

pytestmark = pytest.mark.processes


class Driver(NullDriver):
    """Two cards, and whatever the test makes of them."""

    def __init__(self):
        super().__init__("")
        self.hanging = {}
        self.faults = {}
        self.rows = {}
        self.migs = {}
        self.migs_scanned = {}
        self.fabric = None
        self.scans = 0
        self.events = []
        self.scan_error = None
        self.scan_hangs = None
        self.unknown = {}
        self.scan_faults = {}
        self.reopened = self.looks = 0
        self.answers_others = None
        self.reads = {A: 0, B: 0}

    def info(self):
        return DriverInfo(version="550")

    def scan(self):
        if self.scan_hangs:
            self.scan_hangs.wait()
        if self.scan_error:
            raise DriverError(self.scan_error)
        self.scans += 1
        return tuple(
            Gpu(index=index, fault=self.unknown[uuid]) if uuid in self.unknown else self._gpu(index, uuid)
            for index, uuid in enumerate((A, B))
        )

    def _gpu(self, index, uuid):
        cut = self.migs_scanned.get(uuid)
        return Gpu(
            index=index,
            uuid=uuid,
            name="T4",
            memory_mib=1,
            fault=self.scan_faults.get(uuid),
            mig=None if cut is None else MigMode(enabled=True, pending=True),
            migs=tuple(NodeMigDevice(uuid=each, profile="1g.5gb", memory_mib=1) for each in cut or ()),
            fabric=self.fabric,
        )

    def answering_uuids(self):
        self.looks += 1
        if isinstance(self.answers_others, Exception):
            raise self.answers_others
        away = self.unknown.keys() | self.faults.keys() | self.hanging.keys()
        return self.answers_others or tuple(None if uuid in away else uuid for uuid in (A, B))

    def reopen(self):
        self.reopened += 1
        return self.scan()

    def read(self, uuid):
        self.reads[uuid] += 1
        if uuid in self.hanging:
            self.hanging[uuid].wait()
        migs, rows = self.migs.get(uuid), self.rows.get(uuid)
        registration = FabricRegistration(FabricState.COMPLETED, self.fabric)
        return DeviceReading(
            uuid=uuid, fault=self.faults.get(uuid), remapped_rows=rows, migs=migs, registration=registration
        )

    def wait_event(self, timeout_ms):
        if self.events:
            event = self.events.pop(0)
            if isinstance(event, Exception):
                raise event
            return event
        return super().wait_event(10)


@contextlib.asynccontextmanager
async def monitoring(driver, callbacks=None, config=None, reload=None, **settings):
    settings = {
        "probe_interval_s": 0.01,
        "recovery_s": 0.02,
        "probe_timeout_s": 0.05,
        "reopen_interval_s": 0.1,
        **settings,
    }
    monitor = DeviceMonitor(AgentSettings(node_name="n", **settings), driver, config=config, **callbacks or {})
    task = asyncio.create_task(monitor.run(reload or asyncio.Event()))
    try:
        await eventually(lambda: monitor.inventory.value is not None)
        yield monitor
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def healthy(monitor):
    return {device.uuid for device in monitor.inventory.value.devices if device.healthy}


async def test_a_gpu_whose_calls_hang_is_unhealthy_and_is_not_asked_again_until_it_answers():
    driver = Driver()
    driver.hanging[A] = threading.Event()
    async with monitoring(driver) as monitor:
        await eventually(lambda: healthy(monitor) == {B} and driver.reads[B] > 3)
        assert driver.reads[A] == 1
        assert "no answer within 0.05 s" in monitor.health[A].reason
        driver.hanging.pop(A).set()
        await eventually(lambda: healthy(monitor) == {A, B})


async def test_an_xid_of_nobody_knows_which_gpu_has_all_probed_and_marks_the_broken_one_alone():
    driver = Driver()
    async with monitoring(driver, probe_interval_s=60) as monitor:
        await eventually(lambda: driver.reads[A])
        driver.faults[A] = DeviceFault(FaultKind.LOST, "nvmlDeviceGetMemoryInfo", "GPU is lost")
        driver.events.append(XidEvent(uuid=None, xid=79))
        await eventually(lambda: healthy(monitor) == {B})
        assert "Xid" not in monitor.health[A].reason


async def test_an_xid_outlives_the_agent_until_people_say_that_the_gpu_was_reset(tmp_path):
    driver, told, reload = Driver(), [], asyncio.Event()
    callbacks = {"on_news": lambda uuid, news: told.append(news.news)}

    def remembering():
        return callbacks | {"memory": HealthMemory(tmp_path / "f", "boot-1")}

    async with monitoring(driver, remembering()) as monitor:
        driver.events.append(XidEvent(uuid=A, xid=95))
        await eventually(lambda: healthy(monitor) == {B})
    async with monitoring(driver, remembering(), reload=reload) as monitor:
        await eventually(lambda: driver.reads[B] > 20)
        assert healthy(monitor) == {B}
        assert "Xid 95" in monitor.condition.value.message
        assert told == [News.UNHEALTHY]  # it got that before
        reload.set()
        await eventually(lambda: healthy(monitor) == {A, B})
    async with monitoring(driver, remembering()) as monitor:
        assert healthy(monitor) == {A, B}


async def test_a_gpu_that_was_lost_before_the_agent_started_is_looked_for_until_it_is_back():
    driver = Driver()
    driver.unknown[A] = DeviceFault(FaultKind.LOST, "nvmlDeviceGetHandleByIndex", "GPU is lost")
    with structlog.testing.capture_logs() as logs:
        async with monitoring(driver, reopen_interval_s=0.01) as monitor:
            await eventually(lambda: healthy(monitor) == {B} and driver.looks > 3)
            assert driver.reopened == 0
            assert monitor.condition.value.message.startswith("GPU 0 is lost: gpu-lost: ")
            driver.unknown.clear()
            await eventually(lambda: healthy(monitor) == {A, B})
            assert monitor.condition.value is None
    assert len([entry for entry in logs if entry["log_level"] == "error"]) == 1


async def test_a_gpu_that_is_lost_when_the_agent_starts_is_the_one_that_the_agent_before_knew(tmp_path):
    driver = Driver()
    driver.unknown[A] = DeviceFault(FaultKind.LOST, "nvmlDeviceGetHandleByIndex", "GPU is lost")

    def knowing(boot="boot-1"):
        return {"known": KnownGpus(tmp_path / "f", boot)}

    async with monitoring(Driver(), knowing()):
        pass
    for _ in range(2):  # what the second agent knows, the third has from it
        async with monitoring(driver, knowing(), reopen_interval_s=0.01) as monitor:
            await eventually(lambda: A in monitor.readings)
            assert [(each.uuid, each.healthy) for each in monitor.inventory.value.devices] == [(A, False), (B, True)]
            assert monitor.health[A].reason.startswith("gpu-lost: ")
            assert monitor.condition.value.message.startswith(f"GPU 0 ({A}) is lost: gpu-lost: ")
            assert driver.reads[A] == 0, "there is nothing to ask"
    async with monitoring(driver, knowing("boot-2")) as monitor:
        assert [each.uuid for each in monitor.inventory.value.devices] == [B]
    async with monitoring(Driver(), knowing()):
        pass
    async with monitoring(driver, knowing(), reopen_interval_s=0.01) as monitor:
        driver.unknown.clear()
        await eventually(lambda: healthy(monitor) == {A, B})


LOST = DeviceFault(FaultKind.LOST, "nvmlDeviceGetMemoryInfo", "GPU is lost")


async def test_what_the_agent_cut_itself_is_known_of_a_gpu_that_is_lost_then(tmp_path):
    known = {"known": KnownGpus(tmp_path / "f", "boot")}
    driver = Driver()
    driver.migs_scanned[A], driver.migs[A] = (), frozenset()
    async with monitoring(driver, known) as monitor:
        made = NodeMigDevice(uuid="MIG-1", profile="1g.5gb", memory_mib=1)
        driver.migs[A] = frozenset(("MIG-1",))
        monitor.set_mig_devices(A, (made,))
    unreadable = Gpu(index=0, fault=LOST)
    found, _ = KnownGpus(tmp_path / "f", "boot").identify((unreadable, Gpu(index=1, uuid=B)))
    assert (found.uuid, found.migs, found.fault) == (A, (made,), LOST)


class Station(Driver):
    """The same two, and a card that drives the monitor."""

    DISPLAY = "GPU-d0000000-0000-0000-0000-000000000000"

    def scan(self):
        return (*super().scan(), Gpu(index=2, uuid=self.DISPLAY, name="NVIDIA DGX Display", memory_mib=3911))

    def answering_uuids(self):
        return (*super().answering_uuids(), self.DISPLAY)


async def test_a_card_for_the_monitor_is_neither_judged_nor_looked_for():
    driver, told = Station(), []
    callbacks = {
        "on_news": lambda uuid, news: told.append(uuid),
        "on_program_error": lambda uuid, xid: told.append(uuid),
    }
    async with monitoring(driver, callbacks, reopen_interval_s=0.01) as monitor:
        driver.events += [XidEvent(uuid=driver.DISPLAY, xid=79), XidEvent(uuid=driver.DISPLAY, xid=31)]
        driver.faults[A] = LOST
        await eventually(lambda: driver.looks > 3 and healthy(monitor) == {B} and not driver.events)
        assert (monitor.health.keys(), driver.reopened, told) == ({A, B}, 0, [A])


async def test_a_lost_gpu_does_not_have_the_driver_closed_in_which_xids_of_the_others_are_missed():
    driver = Driver()
    async with monitoring(driver, reopen_interval_s=0.01) as monitor:
        driver.faults[A] = LOST
        await eventually(lambda: driver.looks > 3 and healthy(monitor) == {B})
        driver.answers_others = DriverError("nvmlInit_v2 failed")
        looks = driver.looks
        await eventually(lambda: driver.looks > looks + 3)
        assert driver.reopened == 0
        driver.events.append(XidEvent(uuid=B, xid=48))
        await eventually(lambda: healthy(monitor) == set())
        driver.answers_others = (None,)  # it was taken out of its slot
        await eventually(lambda: driver.reopened)


async def test_a_driver_is_reopened_for_a_gpu_that_answers_others_and_less_often_where_that_does_not_help():
    driver, clock = Driver(), ManualClock()
    async with monitoring(driver, {"clock": clock}, reopen_interval_s=0.01) as monitor:
        driver.events.append(XidEvent(uuid=A, xid=48))
        await eventually(lambda: healthy(monitor) == {B})
        read = driver.reads[A]
        await eventually(lambda: driver.reads[A] > read + 5)
        assert (driver.looks, driver.reopened) == (0, 0)  # it answers, though it takes no pods
        driver.faults[A], driver.answers_others = LOST, (A, B)
        for count in (1, 2):
            await eventually(lambda count=count: driver.reopened == count)
            read = driver.reads[A]
            await eventually(lambda read=read: driver.reads[A] > read + 5)
            assert (driver.looks, driver.reopened) == (count, count)
            clock.advance(0.02)


async def test_what_a_scan_found_wrong_is_looked_for_again_though_probes_answer():
    driver = Driver()
    driver.scan_faults[A] = DeviceFault(FaultKind.UNKNOWN, "nvmlDeviceGetName", "no")
    async with monitoring(driver) as monitor:
        await eventually(lambda: healthy(monitor) == {B} and monitor.health[A].takes_pods)
        driver.scan_faults.clear()
        await eventually(lambda: healthy(monitor) == {A, B})


async def test_errors_of_programs_have_no_gpu_probed(monkeypatch):
    """They say nothing of it, and a pod may fail over and over."""
    monkeypatch.setattr("purser.agent.health.monitor.XID_TURN_PERIOD_S", 0.01)
    driver, told = Driver(), []
    errors = {"on_program_error": lambda uuid, xid: told.append(xid)}
    async with monitoring(driver, probe_interval_s=60, callbacks=errors) as monitor:
        await eventually(lambda: A in monitor.readings)
        driver.events += [XidEvent(uuid=B, xid=43), XidEvent(uuid=B, xid=45), XidEvent(uuid=B, xid=31)]
        await eventually(lambda: told == [31])
        driver.events.append(XidEvent(uuid=B, xid=31))
        await eventually(lambda: told == [31, 31])  # after the turn in which a probe would have begun
        assert driver.reads == {A: 1, B: 1}
        driver.events.append(XidEvent(uuid=B, xid=154))
        await eventually(lambda: driver.reads == {A: 2, B: 2})


async def test_a_flood_of_xids_is_judged_in_a_few_turns_and_counted():
    """A turn costs as much as the node has GPUs."""
    driver, published, told = Driver(), [], []
    errors = {"on_program_error": lambda uuid, xid: told.append(xid)}
    with structlog.testing.capture_logs() as logs:
        async with monitoring(driver, probe_interval_s=60, callbacks=errors) as monitor:
            monitor.inventory.set = published.append
            driver.events += [XidEvent(uuid=A, xid=31)] * 5000 + [XidEvent(uuid=B, xid=79)]
            await eventually(lambda: B in monitor.health and not monitor.health[B].takes_pods)
    counts = [entry["count"] for entry in logs if entry["event"] == "The driver reported an Xid"]
    assert sum(counts) == 5001
    assert len(told) < len(counts) < 20
    assert len(published) < 20


@pytest.mark.parametrize("error", [DriverError("no events now"), ValueError("a bug")], ids=["refusal", "bug"])
async def test_a_driver_that_cannot_wait_is_given_a_rest_and_listened_to_again(monkeypatch, error):
    monkeypatch.setattr("purser.agent.health.xids.DRIVER_RETRY_S", 0.01)
    driver = Driver()
    async with monitoring(driver, probe_interval_s=60) as monitor:
        driver.events += [error, XidEvent(uuid=A, xid=79)]
        await eventually(lambda: healthy(monitor) == {B})


async def test_a_driver_that_cannot_scan_is_asked_again_and_says_why_meanwhile():
    driver = Driver()
    driver.scan_error = "driver/library version mismatch"
    async with monitoring(driver) as monitor:
        assert "version mismatch" in monitor.trouble
        assert monitor.inventory.value.devices == ()
        driver.scan_error = None
        await eventually(lambda: healthy(monitor) == {A, B})
        assert monitor.trouble == ""


NONE, UNLISTED = "the driver lists no devices", "the driver cannot list its devices: "


@pytest.mark.parametrize(
    ("failing", "looks"),
    [
        ("unused", [("", [NONE]), ("", [])]),
        ("scan_error", [("a", [UNLISTED + "a"]), ("b", [UNLISTED + "b"]), ("", [NONE]), ("b", [UNLISTED + "b"])]),
        ("reopen_error", [("a", ["a", NONE]), ("b", ["b"]), ("", []), ("b", ["b"])]),
    ],
    ids=["none", "scan", "reopen"],
)
async def test_what_is_in_the_way_of_devices_is_logged_when_it_is_another_thing(failing, looks):
    """The driver is looked for every few seconds, on a node without GPUs for as long as it lives."""

    class Empty(NullDriver):
        scan_error = reopen_error = ""

        def scan(self):
            return self._fails(self.scan_error)

        def reopen(self):
            return self._fails(self.reopen_error)

        def info(self):
            return DriverInfo(version="550")

        def _fails(self, why):
            if why:
                raise DriverError(why)
            return ()

    driver = Empty("")
    monitor = DeviceMonitor(AgentSettings(node_name="n"), driver)
    for why, logged in looks:
        setattr(driver, failing, why)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                await monitor.scan(reopen=True)
        assert [entry["reason"] for entry in logs] == logged, why


async def test_no_thread_uses_the_driver_after_the_monitor_has_stopped():
    driver = Driver()
    async with monitoring(driver):
        pass
    # Its last act is to say that it ends.
    await eventually(lambda: not [thread for thread in threading.enumerate() if thread.name == "purser-xids"])


@pytest.fixture(autouse=True)
def release_threads():
    yield
    # One that reads as the monitor is stopped still has to end; one that hangs does not.
    reading = [thread for thread in threading.enumerate() if thread.name.startswith("purser-read")]
    for thread in reading:
        thread.join(DEADLINE_S)
    assert not [thread for thread in reading if thread.is_alive()]


async def test_an_enumeration_that_hangs_leaves_what_is_known_and_is_waited_for_again(monkeypatch):
    driver = Driver()
    async with monitoring(driver, reopen_interval_s=60) as monitor:
        driver.scan_hangs = threading.Event()
        with monkeypatch.context() as impatient:
            impatient.setattr("purser.agent.health.scanning.SCAN_TIMEOUT_S", 0.05)
            await monitor.scan()
        assert "no answer within 0.05 s" in monitor.trouble
        await eventually(lambda: healthy(monitor) == {A, B} and driver.reads[A] > 3)
        driver.scan_hangs.set()
        await monitor.scan()
        assert monitor.trouble == ""


async def test_mig_devices_that_come_and_go_are_looked_for_and_in_vain_only_once():
    driver = Driver()
    async with monitoring(driver, reopen_interval_s=60) as monitor:
        driver.migs_scanned[A], driver.migs[A] = ("MIG-1", "MIG-2"), frozenset({"MIG-1", "MIG-2"})
        await eventually(lambda: [each.uuid for each in monitor.gpus[0].migs] == ["MIG-1", "MIG-2"])
        assert "MIG mode is enabled" in monitor.inventory.value.devices[0].unhealthy_reason
        scans, reads = driver.scans, driver.reads[B]
        driver.migs[B] = frozenset()  # MIG mode, of which a scan tells nothing
        await eventually(lambda: driver.reads[B] > reads + 5)
        assert driver.scans == scans + 1
        del driver.migs_scanned[A], driver.migs[A]
        await eventually(lambda: healthy(monitor) == {A, B})
        driver.fabric = FabricIds("cluster", 1)  # both have joined it, as once the fabric manager has started
        await eventually(lambda: [each.fabric for each in monitor.gpus] == [driver.fabric] * 2)


async def test_a_gpu_in_mig_mode_of_which_nothing_is_listed_is_reported_once():
    def config(strategy):
        return config_of(SharingSettings(flags=DevicePluginFlags(mig_strategy=strategy)))

    driver, told, wanted = Driver(), [], Latest(config(MigStrategy.NONE))
    driver.migs_scanned[A], driver.migs[A] = (), frozenset()
    callbacks = {"on_empty_mig": told.append}
    async with monitoring(driver, reopen_interval_s=60, config=wanted, callbacks=callbacks) as monitor:
        assert (len(monitor.inventory.value.devices), told) == (2, [])
        for _ in range(2):
            wanted.set(config(MigStrategy.MIXED))
            await eventually(lambda: [each.uuid for each in monitor.inventory.value.devices] == [B])
            reads = driver.reads[B]
            await eventually(lambda reads=reads: driver.reads[B] > reads + 2)
            wanted.set(config(MigStrategy.NONE))
            await eventually(lambda: len(monitor.inventory.value.devices) == 2)
    assert told == [f"GPU 0 ({A})"] * 2


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        (MigStrategy.NONE, "MIG mode is enabled: set a MIG strategy"),
        (
            MigStrategy.SINGLE,
            "MIG mode is enabled, but the node's configuration does not match: migStrategy single cannot be used "
            "because MIG is enabled on GPU 0, but GPU 1 cannot be partitioned",
        ),
    ],
)
async def test_who_has_set_the_mig_strategy_is_not_told_to_set_it(strategy, says):
    driver = Driver()
    driver.migs_scanned[A], driver.migs[A] = ("MIG-1",), frozenset({"MIG-1"})
    wanted = Latest(config_of(SharingSettings(flags=DevicePluginFlags(mig_strategy=strategy))))
    async with monitoring(driver, reopen_interval_s=60, config=wanted) as monitor:
        reasons = {each.uuid: each.unhealthy_reason for each in monitor.inventory.value.devices}
    assert reasons[A].startswith(says)
    assert reasons[B] == ""


async def test_gpus_that_a_configuration_does_not_fit_go_by_the_one_before():
    def config(strategy):
        return config_of(SharingSettings(flags=DevicePluginFlags(mig_strategy=strategy)))

    driver, told, wanted = Driver(), [], Latest(config(MigStrategy.MIXED))
    driver.migs_scanned[A], driver.migs[A] = ("MIG-1",), frozenset({"MIG-1"})
    async with monitoring(
        driver, reopen_interval_s=60, config=wanted, callbacks={"on_mismatch": told.append}
    ) as monitor:
        mixed = {each.resource for each in monitor.inventory.value.devices}
        assert mixed == {"nvidia.com/mig-1g.5gb", "nvidia.com/gpu"}
        wanted.set(config(MigStrategy.SINGLE))  # one GPU is whole
        await eventually(lambda: monitor.configured.mismatch)
        assert {each.resource for each in monitor.inventory.value.devices} == mixed
        first = monitor.configured.mismatch
        driver.migs_scanned[B], driver.migs[B] = (), frozenset()
        await eventually(lambda: monitor.configured.mismatch != first)
        second = monitor.configured.mismatch
        driver.migs_scanned[B], driver.migs[B] = ("MIG-2",), frozenset({"MIG-2"})
        await eventually(lambda: {each.resource for each in monitor.inventory.value.devices} == {"nvidia.com/gpu"})
    assert told == [first, second, ""], "each cause, until they fit"
    assert first.endswith(". The agent's options are in effect instead.")
    assert ["GPU 1 cannot be partitioned (T4)" in each for each in told] == [True, False, False]
