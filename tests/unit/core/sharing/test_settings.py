"""What holds of options, variables and file."""

from typing import Any

import pytest

from purser.core.sharing import (
    MigStrategy,
    PluginSettings,
    SharingError,
    plugin_file,
    plugin_settings,
    usable_file,
    with_last_flags,
)

TWO = {"name": "gpu", "replicas": 2}


def settings(file: Any, options: dict[str, str] | None = None, environment: dict[str, str] | None = None) -> Any:
    return plugin_settings(plugin_file(file)[0], options, environment)


def test_without_options_settings_have_their_defaults() -> None:
    assert settings({}) == PluginSettings(dev_root="/")


def test_command_line_before_environment_before_file() -> None:
    file = {"flags": {"migStrategy": "mixed", "failOnInitError": False, "plugin": {"passDeviceSpecs": True}}}
    assert settings(file).mig_strategy is MigStrategy.MIXED
    assert settings(file, {}, {"MIG_STRATEGY": "single"}).mig_strategy is MigStrategy.SINGLE
    assert settings(file, {"mig-strategy": "none"}, {"MIG_STRATEGY": "single"}).mig_strategy is MigStrategy.NONE
    found = settings(file, {"fail-on-init-error": "T"}, {"PASS_DEVICE_SPECS": ""})
    assert (found.fail_on_init_error, found.pass_device_specs) == (True, False)


def test_values_of_every_kind() -> None:
    found = settings(
        {"flags": {"nvidiaDriverRoot": "/run/nvidia/driver", "plugin": {"nvidiaCTKPath": "/ctk"}}},
        {"device-list-strategy": "cdi-cri, envvar", "imex-channel-ids": "0", "nvidia-cdi-hook-path": "/hook"},
        {"NVIDIA_CTK_PATH": "/of-variable", "DEVICE_ID_STRATEGY": "index"},
    )
    assert found.device_lists == ("cdi-cri", "envvar")
    assert found.imex_channels == (0,)
    assert found.cdi_hook == "/hook"
    assert found.device_ids == "index"
    assert found.dev_root == found.driver_root == "/run/nvidia/driver"
    assert settings({"flags": {"plugin": {"deviceListStrategy": ["volume-mounts"]}}}).device_lists == ("volume-mounts",)


@pytest.mark.parametrize(
    ("file", "options", "environment", "where"),
    [
        ({"flags": {"migStrategy": "half"}}, {}, {}, "file: flags.migStrategy"),
        ({}, {"mig-strategy": "half"}, {}, "option --mig-strategy"),
        ({}, {}, {"MIG_STRATEGY": ""}, "variable MIG_STRATEGY"),
        ({}, {}, {"FAIL_ON_INIT_ERROR": "perhaps"}, "variable FAIL_ON_INIT_ERROR"),
        ({}, {"device-list-strategy": ""}, {}, "option --device-list-strategy"),
        ({"flags": {"plugin": {"sharedDevicesAllocationPolicy": "x"}}}, {}, {}, "sharedDevicesAllocationPolicy"),
        ({"imex": {"channelIDs": [1]}}, {}, {}, "^the device plugin's file: imex.channelIDs"),
        ({}, {"imex-channel-ids": "1"}, {}, r"^imex.channelIDs is \[1\]"),
        ({}, {"imex-channel-ids": "a"}, {}, "option --imex-channel-ids"),
        ({}, {}, {"IMEX_CHANNEL_IDS": "1" * 5000}, "variable IMEX_CHANNEL_IDS"),
        ({"sharing": {"mps": {"resources": [{"name": "gpu", "replicas": 2}]}}}, {"mig-strategy": "mixed"}, {}, "mps"),
    ],
)
def test_errors_name_the_source_of_a_setting(
    file: Any, options: dict[str, str], environment: dict[str, str], where: str
) -> None:
    with pytest.raises(SharingError, match=where):
        settings(file, options, environment)


@pytest.mark.parametrize(
    ("said", "options", "where", "write"),
    [
        ({"flags": {"migStrategy": "half"}}, {}, "flags.migStrategy is half", "must be one of none, single"),
        ({"flags": {"plugin": {"deviceListStrategy": "env"}}}, {}, "flags.plugin.deviceListStrategy", "envvar"),
        ({"flags": {"plugin": {"deviceIDStrategy": "name"}}}, {}, "flags.plugin.deviceIDStrategy", "uuid"),
        ({"flags": {"deviceDiscoveryStrategy": "x"}}, {}, "flags.deviceDiscoveryStrategy", "auto"),
        ({"imex": {"channelIDs": [1]}}, {}, "imex.channelIDs", "empty or contain only 0"),
        (
            {"sharing": {"mps": {"resources": [TWO]}}},
            {"mig-strategy": "mixed"},
            "sharing.mps",
            "use sharing.timeSlicing",
        ),
        (
            {"flags": {"plugin": {"deviceIDStrategy": "index"}}},
            {"mig-strategy": "on-demand"},
            "deviceIDStrategy index",
            "uuid",
        ),
    ],
)
def test_a_bad_value_of_the_file_costs_itself_alone(
    said: dict[str, Any], options: dict[str, str], where: str, write: str
) -> None:
    flags = {**said.get("flags", {}), "gdsEnabled": True}
    file, problems = usable_file(plugin_file({**said, "flags": flags})[0], options)
    found = plugin_settings(file, options)
    assert (found.gds, found.device_lists, found.device_ids) == (True, ("envvar",), "uuid")
    (problem,) = problems
    assert where in problem
    assert write in problem
    assert problem.endswith("is ignored")


def test_what_options_say_is_refused_whatever_the_file_says() -> None:
    with pytest.raises(SharingError, match="option --mig-strategy"):
        usable_file(plugin_file({"flags": {"migStrategy": "mixed"}})[0], {"mig-strategy": "half"})


@pytest.mark.parametrize(
    ("bad", "at", "kept"),
    [
        ({"flags": {"migStrategy": "mixd"}}, "flags.migStrategy", "mixed"),
        ({"flags": {"migStrategy": 3}}, "flags.migStrategy", "mixed"),
        ({"flags": 3}, "flags.migStrategy", "mixed"),
        ({"flags": {"plugin": []}}, "flags.plugin.deviceIDStrategy", "index"),
        ({"imex": {"channelIDs": ["x"]}}, "imex.channelIDs", "0"),
    ],
)
def test_flags_with_mistakes_stay_as_the_last_good_file_has_them(bad: dict[str, Any], at: str, kept: str) -> None:
    flags = {"migStrategy": "mixed", "gdsEnabled": True, "plugin": {"deviceIDStrategy": "index"}}
    good = plugin_file({"flags": flags, "imex": {"channelIDs": [0]}}).file
    read = plugin_file(bad)
    file, problems = usable_file(read.file)
    found, notes = with_last_flags(file, (*read.problems, *problems), good)
    assert f"the device plugin's file: {at}: the value from the last valid file stays in effect: {kept}" in notes
    assert (found.flags.gds_enabled is None) is (bad.get("flags") != 3), (
        "what the file does not say is not the last one's"
    )
    assert with_last_flags(plugin_file({}).file, (), good) == (plugin_file({}).file, ())
