"""Files of users with one entry mutated: a bad entry costs itself alone, and is named with file, entry and what to
write.

Fifty mutations of each file in the fast tier, 200 in the gate, 10 000 in the soak tier; PURSER_FUZZ_SEED names another
seed.
"""

import copy
import json
import os
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from purser.agent.mig.hardware import MigGpu
from purser.agent.mig.layouts import LayoutError, read_layouts, wanted
from purser.agent.settings import SharingSettings
from purser.agent.sharing import SharingConfig, config_of
from purser.core.device.gpus import NodeGpu, NodeMigDevice
from purser.core.mig.families import FAMILIES
from purser.core.sharing import AdvertisedDevice, SharingError, advertised_devices
from purser.core.sriov.configuration import sriov_config
from purser.core.sriov.pools import make_pools
from purser.operator.manifests.mig_manager import layouts
from tests.reported_files import reported
from tests.tiers import TIER, Tier
from tests.unit.core.sriov.sriov_builders import ACCELERATOR, AUX, ids, node, vf

MUTATIONS = {Tier.FAST: 50, Tier.GATE: 200, Tier.SOAK: 10_000}[TIER]
SEED = int(os.environ.get("PURSER_FUZZ_SEED", "1"))

Place = tuple[str | int, ...]
"""The way to a part of a file."""

JUNK: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2.5, 1001, 10**9, 1 << 70, "", "x", "all", "1", "true", "$bad$", "Ä" * 300,
    [], {}, [None], [[]], [3], ["x"], {"x": 1}, {"name": None},
)  # fmt: skip


def parts(value: Any, at: Place = ()) -> Iterator[Place]:
    """Every part of a value."""
    yield at
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in items:
        yield from parts(each, (*at, key))


def there(value: Any, at: Place) -> Any:
    for key in at:
        value = value[key]
    return value


def mutated(value: Any, entry: Place, rng: random.Random) -> Any:
    """The file with one thing wrong in an entry: a part replaced, taken away, added or misspelt."""
    changed = copy.deepcopy(value)
    at = rng.choice(list(parts(there(value, entry), entry)))
    owner, last = there(changed, at[:-1]), at[-1]
    way = rng.randrange(4)
    if way == 0 and isinstance(owner, dict) and len(at) > len(entry):
        del owner[last]
    elif way == 1 and isinstance(owner, dict) and len(at) > len(entry):
        owner[f"{last}x" if rng.random() < 0.5 else str(last)[:-1]] = owner.pop(last)
    elif way == 2 and isinstance(owner[last], dict):
        owner[last][rng.choice(["x", "replicas", "selector", "devices"])] = rng.choice(JUNK)
    else:
        owner[last] = rng.choice(JUNK)
    return changed


def tried(seed_of: str, value: Any, entries: list[Place]) -> Iterator[tuple[Place, Any]]:
    """Each mutation: which entry it is of, and the file."""
    rng = random.Random(f"{SEED}/{seed_of}")
    for _ in range(MUTATIONS):
        entry = rng.choice(entries)
        yield entry, mutated(value, entry, rng)


def is_told(messages: Any, file: str, entry: str) -> bool:
    """Whether a message names file and entry and says what to write."""
    return any(
        file in each and entry in each and re.search(r"\b(must|use|write|did you mean)\b", each) for each in messages
    )


def check_messages(messages: Any, file: str) -> None:
    """Each names the file, and is a line that people can read."""
    for each in messages:
        assert each.startswith(file), each
        assert len(each) < 1000
        assert each.isprintable()


# --- NVIDIA's device plugin


def gpu(index: int, *profiles: str) -> NodeGpu:
    migs = tuple(NodeMigDevice(uuid=f"m{index}{at}", profile=each, memory_mib=1) for at, each in enumerate(profiles))
    cc = (8, 0)
    model = "NVIDIA A100-SXM4-40GB" if index < 6 else "NVIDIA T4"
    return NodeGpu(uuid=f"g{index}", index=index, model=model, compute_capability=cc, mig_enabled=bool(migs), migs=migs)


GPUS = [*map(gpu, range(4)), gpu(4, "1g.5gb", "2g.10gb"), gpu(5, "3g.20gb", "1g.5gb+me"), gpu(6), gpu(7)]


def fleet(way: str) -> dict[str, Any]:
    """A file with an entry for each of many devices, and with all that the plugin knows beside."""
    entries = [
        *(
            {"name": "nvidia.com/gpu", "rename": f"gpu-{at}", "devices": [str(at)], "replicas": 2 + at}
            for at in range(4)
        ),
        {"name": "nvidia.com/gpu-t4", "replicas": 8, "devices": "all"},
        *([] if way == "mps" else [{"name": "nvidia.com/mig-1g.5gb", "replicas": 3}]),
    ]
    patterns = {
        "gpus": [{"pattern": "*T4", "name": "gpu-t4"}, {"pattern": "*H100*", "name": "gpu-h100"}],
        "mig": [{"pattern": "3g.*", "name": "mig-big"}, {"pattern": "2g.*", "name": "mig-mid"}],
    }
    flags = {
        "migStrategy": "mixed" if way == "timeSlicing" else "none",
        "failOnInitError": True,
        "gdsEnabled": True,
        "mofedEnabled": True,
        "nvidiaDriverRoot": "/run/nvidia/driver",
        "plugin": {"passDeviceSpecs": True, "deviceListStrategy": ["envvar"], "deviceIDStrategy": "uuid"},
    }
    sharing = {way: {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": entries}}
    return {"version": "v1", "flags": flags, "resources": patterns, "sharing": sharing, "imex": {"channelIDs": [0]}}


def entries_of_plugin_file(value: dict[str, Any]) -> list[Place]:
    """Each resource, pattern and flag."""
    lists = [("resources", "gpus"), ("resources", "mig")]
    lists += [("sharing", way, "resources") for way in value["sharing"]]
    listed = [(*at, place) for at in lists for place in range(len(there(value, at)))]
    flags: list[Place] = [("flags", key) for key in value["flags"] if key != "plugin"]
    flags += [("flags", "plugin", key) for key in value["flags"]["plugin"]]
    return [*listed, *flags, ("imex", "channelIDs")]


def path(at: Place) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in at).removeprefix(".")


def served(config: SharingConfig, problems: list[str]) -> dict[str, AdvertisedDevice]:
    found = advertised_devices(GPUS, config.file, config.settings.mig_strategy, problems)
    return {each.uuid: each for each in found}


def resources_of(config: SharingConfig) -> dict[str, Any]:
    """Of each entry by its place what became of it."""
    sharing, named = config.file.sharing, config.file.resources
    ways = {"timeSlicing": sharing.time_slicing, "mps": sharing.mps}
    found: dict[str, Any] = {
        f"sharing.{way}.resources[{each.place}]": each
        for way, said in ways.items()
        if said is not None
        for each in said.resources
    }
    return found | {f"resources {each.pattern}": each for each in (*named.gpus, *named.mig)}


@pytest.mark.parametrize("way", ["timeSlicing", "mps"])
def test_device_plugin_files(way: str) -> None:
    file, settings = fleet(way), SharingSettings()
    right = config_of(settings, "f", json.dumps(file))
    devices, nothing = served(right, []), list[str]()
    assert not right.problems
    served(right, nothing)
    assert not nothing
    for entry, changed in tried(way, file, entries_of_plugin_file(file)):
        found = config_of(settings, "f", json.dumps(changed))
        problems: list[str] = []
        try:
            now = served(found, problems)
        except SharingError:
            assert entry == ("flags", "migStrategy")  # single, which these GPUs are not
            continue
        messages = [*found.problems, *found.notes, *problems]
        check_messages(
            [each for each in messages if "MIG strateg" not in each and "MIG device" not in each],
            "the device plugin's file",
        )
        own = path(entry) if entry[0] != "resources" else f"resources {there(file, entry)['pattern']}"
        kept = resources_of(found)
        for name, each in resources_of(right).items():
            if name != own and entry != ("flags", "migStrategy"):
                assert kept[name] == each, (entry, changed)
        for field in ("gds", "mofed", "driver_root", "pass_device_specs", "device_lists", "imex_channels"):
            if not path(entry).lower().endswith(field.replace("_", "")) and entry[0] not in ("flags", "imex"):
                assert getattr(found.settings, field) == getattr(right.settings, field)
        if entry[0] == "sharing" and own not in kept:
            assert is_told(found.problems, "the device plugin's file", own), (messages, changed)
            others = {uuid: each for uuid, each in devices.items() if each.sharing == right_way(way)}
            mine = {uuid for uuid in others if is_of(file, entry, others[uuid])}
            for uuid in others.keys() - mine:
                assert now[uuid] == others[uuid], (entry, changed)
        assert len(now) >= len(devices) or entry == ("flags", "migStrategy")


def right_way(way: str) -> str:
    return "mps" if way == "mps" else "time-slicing"


def is_of(file: dict[str, Any], entry: Place, device: AdvertisedDevice) -> bool:
    """Whether a device is of an entry of the right file."""
    said = there(file, entry)
    return device.replicas == said["replicas"] and device.resource.startswith(
        ("nvidia.com/" + said.get("rename", "-"), said["name"])
    )


# --- HAMi's file of nodes

HAMI = {
    "nodeconfig": [
        {"name": "a", "migstrategy": "single", "filterdevices": {"uuid": ["GPU-x"], "index": []}},
        {
            "name": "n",
            "operatingmode": "hami-core",
            "devicememoryscaling": 1.8,
            "devicesplitcount": 20,
            "devicecorescaling": 1,
            "migstrategy": "mixed",
            "filterdevices": {"uuid": ["GPU-1", "GPU-2"], "index": [3, 5]},
        },
        {"name": "c", "operatingmode": "mig"},
    ]
}


def test_hamis_file_of_nodes() -> None:
    entries: list[Place] = [("nodeconfig", 0), ("nodeconfig", 2)]
    entries += [("nodeconfig", 1, key) for key in HAMI["nodeconfig"][1] if key not in ("name", "filterdevices")]  # type: ignore[attr-defined]
    entries += [("nodeconfig", 1, "filterdevices", kind, at) for kind in ("uuid", "index") for at in (0, 1)]
    right = config_of(SharingSettings(), "f", json.dumps(HAMI), "n")
    for entry, changed in tried("hami", HAMI, entries):
        found = config_of(SharingSettings(), "f", json.dumps(changed), "n")
        check_messages([*found.problems, *found.notes], "HAMi's nodeconfig")
        if entry[2:3] not in (("migstrategy",), ("operatingmode",)):
            assert found.settings.mig_strategy == right.settings.mig_strategy, changed
        if "filterdevices" not in entry:
            assert found.set_aside == right.set_aside, changed
            continue
        kind = str(entry[3])
        before, now = right.set_aside, found.set_aside
        lost = (before.uuids - now.uuids) | (before.indexes - now.indexes)
        assert lost <= {there(HAMI, entry)}, changed
        names: list[Any] = [*now.uuids] if kind == "uuid" else [*now.indexes]
        is_there = there(changed, entry) in names or str(there(changed, entry)) in names
        assert is_there or is_told(found.problems, "HAMi's nodeconfig, node n", path(entry[2:])), (changed, found)


# --- the SR-IOV network device plugin

POOLS = {
    "resourceList": [
        {
            "resourceName": "dpdk",
            "selectors": {"vendors": ["8086"], "drivers": ["vfio-pci"], "pfNames": ["ens1f0#0-3"]},
        },
        {
            "resourceName": "kernel",
            "resourcePrefix": "example.com",
            "selectors": [{"vendors": ["8086"], "drivers": ["iavf"]}, {"pciAddresses": ["0000:09:02.0"]}],
            "excludeTopology": True,
            "additionalInfo": {"*": {"token": "a"}},
        },
        {"resourceName": "rdma", "selectors": {"vendors": ["15b3"], "isRdma": False, "linkTypes": ["ether"]}},
        {"resourceName": "card", "deviceType": "accelerator", "selectors": {"vendors": ["8086"]}},
        {"resourceName": "sf", "deviceType": "auxNetDevice", "selectors": {"auxTypes": ["sf"]}},
    ]
}
DEVICES = node(
    *(vf(at, driver="vfio-pci") for at in range(4)),
    *(vf(at) for at in range(4, 8)),
    *(vf(at, pf="ens2", bus="05", vendor="15b3", driver="mlx5_core") for at in range(4)),
    vf(0, "", "09", vendor="1dd8"),
    *(vf(at, "", "5e", type=ACCELERATOR) for at in range(2)),
    *(vf(at, "ens2", "81", type=AUX, aux_type="sf", vendor="15b3") for at in range(2)),
)


def test_sriov_files() -> None:
    entries: list[Place] = [("resourceList", place) for place in range(len(POOLS["resourceList"]))]
    right = {pool.resource: ids(pool) for pool in make_pools(sriov_config(json.dumps(POOLS)), DEVICES, {})}
    assert sorted(map(len, right.values())) == [2, 2, 4, 4, 5]
    names = list(right)
    for entry, changed in tried("sriov", POOLS, entries):
        found = sriov_config(json.dumps(changed))
        check_messages([*found.problems, *found.notes], "the SR-IOV configuration")
        pools = {pool.resource: ids(pool) for pool in make_pools(found, DEVICES, {})}
        assert isinstance(entry[1], int)
        mine = names[entry[1]]
        others = {name: held for name, held in right.items() if name != mine}
        if len(pools) < len(right):
            assert is_told(found.problems, "the SR-IOV configuration", f"resourceList[{entry[1]}]"), changed
            for name, held in others.items():
                assert set(pools[name]) >= set(held), (name, changed, found.problems)
        assert pools.keys() >= others.keys(), changed


# --- MIG layouts

LAYOUTS = {
    "version": "v1",
    "mig-configs": {name: each for name, each in layouts().items() if "1g" in name or "all-b" in name},
}
FILE = "the layouts in /etc/config.yaml"
BOARDS = [MigGpu(index=at, device_id=f"0x{family.devices[0].upper()}10DE") for at, family in enumerate(FAMILIES)]


def meant(found: Any, name: str, board: MigGpu) -> Any:
    try:
        return wanted(found, name, [board])
    except LayoutError as error:
        return str(error).partition(": use one of")[0]


def test_mig_layouts() -> None:
    configs: dict[str, Any] = LAYOUTS["mig-configs"]  # type: ignore[assignment]
    right = read_layouts(json.dumps(LAYOUTS), FILE)
    by_name = {name: [meant(right, name, board) for board in BOARDS] for name in configs}
    rng = random.Random(SEED)
    for entry, changed in tried("mig", LAYOUTS, [("mig-configs", name) for name in configs]):
        found = read_layouts(json.dumps(changed), FILE)
        for name in rng.sample(sorted(configs.keys() - {entry[1]}), 3):
            assert [meant(found, name, board) for board in BOARDS] == by_name[name], changed
        mine = found.get(str(entry[1]))
        if isinstance(mine, LayoutError):
            assert is_told([str(mine)], FILE, f"mig-configs.{entry[1]}"), changed
            check_messages([str(mine)], FILE)


# --- files as users have them


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("replicas-1001.yaml", lambda text: config_of(SharingSettings(), "f", text)),
        ("fleet.yaml", lambda text: config_of(SharingSettings(), "f", text)),
        ("filterdevices.json", lambda text: config_of(SharingSettings(), "f", text, "t4-4-0")),
        ("no-port-names.json", sriov_config),
        ("old-entry-voids-file.json", sriov_config),
        ("own-interface.json", sriov_config),
    ],
)
def test_files_as_users_have_them_are_read(name: str, read: Callable[[str], Any]) -> None:
    found = read(reported(name).read_text())
    for each in (*found.problems, *found.notes):
        assert each.startswith(("the device plugin's file", "HAMi's nodeconfig", "the SR-IOV configuration"))
