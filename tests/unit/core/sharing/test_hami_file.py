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
    others = {"name": "b", "operatingmode": "of-tomorrow"}, {}
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
        f"HAMi's nodeconfig: {key}" for key in ("operatingmode mps", *list(said)[2:-1])
    ]
    assert "purser cordon gpu" in notes[-1]


@pytest.mark.parametrize(
    "entries", [[{"name": "a", "operatingmode": "fast"}], ["a"], [{"name": "a", "devicesplitcount": "many"}]]
)
def test_errors_name_the_file(entries: list[Any]) -> None:
    with pytest.raises(SharingError, match="HAMi's nodeconfig"):
        config("a", *entries)
