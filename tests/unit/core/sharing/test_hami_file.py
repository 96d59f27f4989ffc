"""HAMi's file of nodes, for one of them."""

import json
from typing import Any

import pytest

from purser.agent.settings import DevicePluginFlags, SharingSettings
from purser.agent.sharing import config_of
from purser.core.sharing import MigStrategy, SharingError

NOTHING = {"filterdevices": {"uuid": [], "index": []}, "devicememoryscaling": 1, "libcudaloglevel": None}


def config(node: str, *entries: dict[str, Any], flags: DevicePluginFlags | None = None):  # type: ignore[no-untyped-def]
    settings = SharingSettings(flags=flags or DevicePluginFlags())
    return config_of(settings, "config.json", json.dumps({"nodeconfig": entries}), node)


@pytest.mark.parametrize(
    ("said", "strategy"),
    [
        ({"operatingmode": "mig", **NOTHING}, MigStrategy.ON_DEMAND),
        ({"operatingmode": "mig", "migstrategy": "none"}, MigStrategy.ON_DEMAND),
        ({"operatingmode": "hami-core", "migstrategy": "mixed"}, MigStrategy.MIXED),
        ({"operatingmode": "hami-core"}, MigStrategy.NONE),
        ({"migstrategy": "single"}, MigStrategy.SINGLE),
    ],
)
def test_the_mode_of_a_node_is_its_mig_strategy(said: dict[str, Any], strategy: MigStrategy) -> None:
    others = {"name": "b", "operatingmode": "of-tomorrow"}, {"name": "c"}
    found = config("a", *others, {"name": "a", **said})
    assert (found.settings.mig_strategy, found.notes) == (strategy, ())
    assert config("A", *others, {"name": "a", **said}).settings.mig_strategy is MigStrategy.NONE
    given = config("a", {"name": "a", **said}, flags=DevicePluginFlags(mig_strategy=MigStrategy.MIXED))
    assert given.settings.mig_strategy is MigStrategy.MIXED


def test_what_has_no_effect_is_reported_with_what_has() -> None:
    said = {
        "name": "a",
        "operatingmode": "mps",
        "devicesplitcount": 4,
        "devicememoryscaling": 1.8,
        "devicecorescaling": 2,
        "preconfigureddevicememory": 1000,
        "libcudaloglevel": 0,
        "filterdevices": {"uuid": [], "index": [1]},
        "enablegetpreferredallocation": True,
    }
    notes = config("a", said).notes
    assert [note.split(" has no effect: ")[0] for note in notes] == [
        f"HAMi's nodeconfig, node a: {key}" for key in ("operatingmode mps", *list(said)[2:-2])
    ] + ["HAMi's nodeconfig, node a: filterdevices hides GPUs from pods: index 1"]


@pytest.mark.parametrize(
    ("bad", "where"),
    [
        ({"operatingmode": "fast"}, "node a: operatingmode is fast, but must be hami-core or mig or mps"),
        ({"devicesplitcount": "many"}, "node a: devicesplitcount is many, but must be an integer"),
        ({"devicememoryscaling": []}, "node a: devicememoryscaling is an empty list, but must be a number"),
        ({"filterdevices": "0"}, "node a: filterdevices is the string"),
        ({"filterdevices": {"index": "0"}}, "node a: filterdevices.index is the string"),
    ],
)
def test_a_bad_field_costs_itself_alone(bad: dict[str, Any], where: str) -> None:
    found = config("a", "a", {"name": "a", "migstrategy": "mixed", **bad})  # type: ignore[arg-type]
    assert found.settings.mig_strategy is MigStrategy.MIXED
    first, second = found.problems
    assert first == "HAMi's nodeconfig: nodeconfig[0] is a, but must be an object with a name. The value is ignored"
    assert second.startswith(f"HAMi's nodeconfig, {where}")
    assert "but must be " in second


@pytest.mark.parametrize("entries", [{"name": "a"}, "a", 3])
def test_a_file_that_is_no_list_of_nodes(entries: Any) -> None:
    with pytest.raises(SharingError, match="HAMi's nodeconfig is not a list:"):
        config_of(SharingSettings(), "config.json", json.dumps({"nodeconfig": entries}), "a")


def test_devices_that_are_filtered_are_set_aside() -> None:
    """However the key is spelled, which Go does not mind, and whatever else is in the lists."""
    said = {"name": "a", "FilterDevices": {"uuid": ["GPU-1", 7], "index": [3, "x", -1, True]}}
    found = config("a", said)
    aside = found.set_aside
    assert (aside.uuids, aside.indexes) == ({"GPU-1"}, {3})
    assert [each.partition(" is ")[0].rpartition(": ")[2] for each in found.problems] == [
        "filterdevices.uuid[1]",
        "filterdevices.index[1]",
        "filterdevices.index[2]",
        "filterdevices.index[3]",
    ]
    assert "GPUs from pods: index 3, GPU-1" in found.notes[0]
    assert [aside.names("GPU-1", 0), aside.names("GPU-2", 3), aside.names("GPU-2", 0)] == [True, True, False]
    (missing,) = aside.missing([("GPU-1", 0), ("GPU-2", 1)])
    assert missing.startswith(
        "HAMi's nodeconfig, node a: filterdevices names index 3, but the node does not have this GPU"
    )


@pytest.mark.parametrize("name", [None, 3, ["a"], {}])
def test_an_entry_of_no_node_is_told_on_every_node(name: Any) -> None:
    found = config("a", {"name": name, "migstrategy": "single"}, {"name": "a", "migstrategy": "mixed"})
    assert found.settings.mig_strategy is MigStrategy.MIXED
    (problem,) = found.problems
    assert problem.startswith("HAMi's nodeconfig: nodeconfig[0].name is ")
    assert problem.endswith("but must be the name of a node. The entry is ignored")


def test_a_key_that_is_not_known_is_told() -> None:
    (note,) = config("a", {"name": "a", "migstratgy": "mixed"}).notes
    assert note == "HAMi's nodeconfig, node a: migstratgy is unknown and ignored"
