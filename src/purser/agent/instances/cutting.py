"""Makes and removes the instances of one GPU, under its lock. Everything here blocks, and may be killed anywhere."""

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec
import structlog

from purser.agent.instances.planning import BlockedError, ExistingInstance, existing_instances, leftover_instances, plan
from purser.agent.instances.records import exclusive_lock, read_record, record_path, write_record
from purser.agent.nvml.driver import Driver, MigCallError, MigContents, MigTrouble
from purser.core.device.gpus import NodeMigDevice
from purser.core.mig import MigKind, MigPlacement

log = structlog.get_logger("purser.agent")


class GpuPartitioning(msgspec.Struct, frozen=True):
    """How one GPU is cut now."""

    devices: Mapping[MigPlacement, str] = {}
    """The agent's own instances that are there, with the uuids of their MIG devices; of one that is not whole none."""
    foreign: tuple[MigPlacement, ...] = ()
    """Instances that are not the agent's own."""
    migs: tuple[NodeMigDevice, ...] = ()
    """All MIG devices."""
    busy: frozenset[MigPlacement] = frozenset()
    """Of the agent's own those that no grant names and that cannot be removed yet: something runs on them."""


class GpuPartitioner:
    """One GPU. ``granted`` is always what pods that were given their devices were granted: where the file is lost, that
    is the agent's own. Before the book has learned from kubelet (``has_learned``) that is not all of it, and no file
    is made that says there is nothing."""

    def __init__(self, driver: Driver, state_dir: Path, uuid: str, kind: MigKind, *, has_learned: bool = True) -> None:
        self._has_learned = has_learned
        self._driver = driver
        self._uuid = uuid
        self._kind = kind
        self._path = record_path(state_dir, uuid)

    def look(self, granted: Collection[MigPlacement]) -> GpuPartitioning:
        """See what is there, and forget what is not. Raises `MigCallError`, OSError."""
        with exclusive_lock(self._path):
            there, owned, contents = self._read(granted)
            return self._build_partitioning(there, owned, contents)

    def ensure(self, wanted: Collection[MigPlacement], granted: Collection[MigPlacement]) -> GpuPartitioning:
        """Have the wanted instances there. Where containers were given them before, they are granted as well, and have
        to be the same MIG devices. Raises `BlockedError`, `MigCallError`, OSError, `MigGeometryError`."""
        with exclusive_lock(self._path):
            there, owned, _ = self._read(granted)
            given = {placement: owned[placement] for placement in granted if owned.get(placement)}
            steps = plan(self._kind, there, owned, wanted, granted)
            for each in steps.destroy:
                self._destroy(each, owned)
            for placement in steps.create:
                self._create(placement, owned)
            for each in steps.fill:
                self._driver.fill_instance(self._uuid, each.id)
            there, owned, contents = self._read(granted)
            cut = self._build_partitioning(there, owned, contents)
            self._write({**owned, **cut.devices, **given}, owned)
            for placement in wanted:
                if placement in given and given[placement] != cut.devices.get(placement):
                    raise BlockedError(
                        f"MIG device {given[placement]} was removed and cannot be recreated with the same UUID"
                    )
            return cut

    def sweep(self, granted: Collection[MigPlacement], left: Collection[MigPlacement]) -> GpuPartitioning:
        """Remove these of the agent's own, which are not granted any more. Raises `MigCallError`, OSError."""
        with exclusive_lock(self._path):
            there, owned, _ = self._read(granted)
            busy = set()
            for each in leftover_instances(there, owned, granted):
                if each.placement not in left:
                    continue
                try:
                    self._destroy(each, owned)
                except MigCallError as error:
                    if error.trouble is not MigTrouble.IN_USE:
                        raise
                    busy.add(each.placement)
            there, owned, contents = self._read(granted)
            return msgspec.structs.replace(self._build_partitioning(there, owned, contents), busy=frozenset(busy))

    def _read(
        self, granted: Collection[MigPlacement]
    ) -> tuple[tuple[ExistingInstance, ...], dict[MigPlacement, str], MigContents]:
        """What is on the GPU, what of it is the agent's own, and all that the driver says.

        Of what the file says the rest was never made, or is gone; what is granted stays there, to be made again.
        """
        contents = self._driver.mig_contents(self._uuid)
        there = existing_instances(self._kind, contents.instances)
        recorded = read_record(self._path, self._uuid)
        present = {each.placement for each in there if each.is_known}
        if recorded is None:
            owned = {placement: "" for placement in granted if placement in present}
        else:
            owned = {each: device for each, device in recorded.items() if each in present or each in granted}
        self._write(owned, recorded)
        return there, owned, contents

    def _write(self, devices: dict[MigPlacement, str], before: Mapping[MigPlacement, str] | None) -> None:
        if devices != before and (devices or before is not None or self._has_learned):
            write_record(self._path, self._uuid, devices)

    def _create(self, placement: MigPlacement, owned: dict[MigPlacement, str]) -> None:
        profile = self._kind.profile(placement.profile)
        if profile is None:
            return  # `plan` has refused it
        if placement not in owned:
            owned[placement] = ""
            write_record(self._path, self._uuid, owned)
        instance = self._driver.create_instance(self._uuid, profile.number, placement.start, profile.memory_slices)
        try:
            self._driver.fill_instance(self._uuid, instance)
        except MigCallError:
            self._driver.destroy_instance(self._uuid, instance)
            raise
        log.info("Created a GPU instance", gpu=self._uuid, profile=placement.profile, start=placement.start)

    def _destroy(self, each: ExistingInstance, owned: dict[MigPlacement, str]) -> None:
        self._driver.destroy_instance(self._uuid, each.id)
        if owned.pop(each.placement, None) is not None:
            write_record(self._path, self._uuid, owned)
        where = each.placement
        log.info("Removed a GPU instance", gpu=self._uuid, profile=where.profile, start=where.start)

    def _build_partitioning(
        self, there: Collection[ExistingInstance], owned: Mapping[MigPlacement, str], contents: MigContents
    ) -> GpuPartitioning:
        uuids = {mig.gpu_instance: mig.uuid for mig in contents.devices}
        own = {each.placement: each for each in there if each.is_known and each.placement in owned}
        return GpuPartitioning(
            devices={where: uuids.get(each.id, "") if each.computes == 1 else "" for where, each in own.items()},
            foreign=tuple(sorted(each.placement for each in there if not each.is_known or each.placement not in owned)),
            migs=contents.devices,
        )
