"""A ClusterPolicy is read with its defaults, or refused with a sentence that names the field; which images operands
run."""

from datetime import date
from typing import Any

import pytest

from purser.operator.order import Operand
from purser.operator.policy import PolicyError, decode
from purser.operator.policy.fields import DEFAULTS, Image, reference, split


def spec(**sections: Any) -> dict[str, Any]:
    return {"metadata": {"name": "gpus", "generation": 3}, "spec": sections}


def test_an_empty_spec_is_a_whole_stack() -> None:
    policy = decode(spec())
    assert policy.metadata.name == "gpus"
    assert policy.metadata.generation == 3
    off = {Operand.DCGM, Operand.NODE_STATUS_EXPORTER}
    assert set(policy.spec.enabled) == set(Operand) - off
    assert policy.spec.driver.upgrade_policy.max_unavailable == "25%"
    assert [t.key for t in policy.spec.daemonsets.tolerations] == ["nvidia.com/gpu"]


def test_sections_and_fields_have_the_names_that_users_know() -> None:
    policy = decode(
        spec(
            driver={"enabled": False, "upgradePolicy": {"gpuPodDeletion": {"deleteEmptyDir": True}}},
            dcgmExporter={"enablePodUID": True, "hostPID": True},
            hostPaths={"rootFS": "/host"},
            daemonsets={"rollingUpdate": {"maxUnavailable": "10%"}},
        )
    )
    assert Operand.DRIVER not in policy.spec.enabled
    assert policy.spec.driver.upgrade_policy.gpu_pod_deletion.delete_empty_dir
    assert policy.spec.dcgm_exporter.enable_pod_uid
    assert policy.spec.dcgm_exporter.host_pid
    assert policy.spec.host_paths.root_fs == "/host"
    assert policy.spec.daemonsets.rolling_update.max_unavailable == "10%"


def test_null_counts_as_absent() -> None:
    assert decode(spec(driver={"enabled": None, "env": None}, toolkit=None)) == decode(spec())


def test_what_a_newer_version_writes_is_left_alone() -> None:
    assert decode(spec(holograms={"enabled": True})) == decode(spec())


@pytest.mark.parametrize(
    ("sections", "events"),
    [
        pytest.param({"driver": {"enabled": "yes"}}, "must be a boolean, not a string", id="a wrong type"),
        pytest.param(
            {"driver": {"version": 580.1}}, "must be a string, not a number: put it in quotes", id="no quotes"
        ),
        pytest.param({"driver": {"version": date(2026, 1, 1)}}, "must be a string, not a date", id="a date"),
        pytest.param(
            {"driver": {"upgradePolicy": {"maxUnavailable": True}}},
            "must be an integer or a string",
            id="two types",
        ),
        pytest.param({"driver": []}, "spec.driver: must be an object, not a list", id="a list"),
        pytest.param(
            {"driver": {"profiles": [{}]}}, "spec.driver.profiles[0]: missing required field name", id="no name"
        ),
        pytest.param(
            {"driver": {"upgradePolicy": {"maxParallelUpgrades": -1}}}, "must be an integer >= 0", id="a bound"
        ),
        pytest.param(
            {"devicePlugin": {"flavor": "amd"}}, "spec.devicePlugin.flavor: invalid value 'amd'", id="an unknown word"
        ),
        pytest.param(
            {"devicePlugin": {"enforcement": "hope"}},
            "spec.devicePlugin.enforcement: invalid value 'hope'",
            id="no way",
        ),
        pytest.param(
            {"devicePlugin": {"featureLabels": False}},
            "spec.devicePlugin.featureLabels: must be a string, not a boolean",
            id="bare off",
        ),
        pytest.param(
            {"devicePlugin": {"taintNodes": "true"}},
            "spec.devicePlugin.taintNodes: must be a boolean, not a string",
            id="a text",
        ),
        pytest.param(
            {"devicePlugin": {"featureLabels": "node-labels"}},
            "spec.devicePlugin.featureLabels is node-labels, but feature discovery writes the same labels",
            id="labels twice",
        ),
        pytest.param(
            {"mig": {"strategy": "on-demand"}, "devicePlugin": {"flavor": "nvidia"}},
            "spec.mig.strategy is on-demand, which needs Purser's agent",
            id="MIG on demand",
        ),
        pytest.param({"devicePlugin": {"slots": 0}}, "spec.devicePlugin.slots is 0", id="no slots"),
        pytest.param(
            {"driver": {"upgradePolicy": {"maxUnavailable": "x"}}}, "upgradePolicy.maxUnavailable", id="no percentage"
        ),
        pytest.param(
            {"driver": {"upgradePolicy": {"maxUnavailable": 0}}}, "no node could ever be upgraded", id="a bound of none"
        ),
        pytest.param(
            {"driver": {"profiles": [{"name": "a", "nodeSelector": {"x": "y"}}] * 2}}, "duplicate name a", id="names"
        ),
        pytest.param({"driver": {"profiles": [{"name": "a", "nodeSelector": {}}]}}, "is empty", id="an empty profile"),
        pytest.param({"driver": {"profiles": [{"name": "A b", "nodeSelector": {}}]}}, "profiles[0].name", id="a name"),
        pytest.param(
            {"driver": {"requirements": [{"nodeSelector": {}, "minimum": "new"}]}},
            "not a driver version",
            id="a version",
        ),
        pytest.param(
            {"migManager": {"enabled": False, "config": {"default": "all-disabled"}}},
            "MIG manager is disabled",
            id="MIG",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_field(sections: dict[str, Any], events: str) -> None:
    with pytest.raises(PolicyError) as refusal:
        decode(spec(**sections))
    assert events in str(refusal.value)


@pytest.mark.parametrize(
    ("image", "wanted"),
    [
        pytest.param(Image(), "nvcr.io/nvidia/driver:595.91.07-ubuntu22.04", id="the default"),
        pytest.param(Image(version="550.1"), "nvcr.io/nvidia/driver:550.1-ubuntu22.04", id="a version alone"),
        pytest.param(
            Image(repository="r.example/x", image="d", version="1"), "r.example/x/d:1-ubuntu22.04", id="all parts"
        ),
        pytest.param(Image(version="sha256:ab"), "nvcr.io/nvidia/driver@sha256:ab", id="a digest has no suffix"),
        pytest.param(Image(image="r.example/d:1"), "r.example/d:1", id="a whole reference"),
        pytest.param(Image(image="d@sha256:ab"), "d@sha256:ab", id="a whole reference with a digest"),
        pytest.param(
            Image(image="r.example/x/d", version="1"), "r.example/x/d:1-ubuntu22.04", id="a path and a version"
        ),
        pytest.param(
            Image(repository="r.example", image="x/d", version="1"),
            "r.example/x/d:1-ubuntu22.04",
            id="a path below a repository",
        ),
        pytest.param(Image(image="mydriver"), "nvcr.io/nvidia/mydriver:595.91.07-ubuntu22.04", id="a name alone"),
    ],
)
def test_a_drivers_image(image: Image, wanted: str) -> None:
    assert reference(DEFAULTS["driver"], image, suffix="-ubuntu22.04") == wanted


@pytest.mark.parametrize(
    ("own", "image", "wanted"),
    [
        pytest.param("r.example:5000/x/purser:1", Image(), "r.example:5000/x/purser:1", id="as it is"),
        pytest.param("r.example:5000/x/purser:1", Image(version="2"), "r.example:5000/x/purser:2", id="a version"),
        pytest.param("r.example/purser:1", Image(repository="m.example/y"), "m.example/y/purser:1", id="a registry"),
        pytest.param("r.example/purser:1", Image(image="test"), "r.example/test:1", id="a name"),
        pytest.param("r.example/purser:1", Image(image="o.example/test:9"), "o.example/test:9", id="a whole one"),
        pytest.param(
            "r.example/o/purser:1",
            Image(image="m.example/x/purser", version="2"),
            "m.example/x/purser:2",
            id="a mirror",
        ),
        pytest.param("r.example/purser:1", Image(version="sha256:ab"), "r.example/purser@sha256:ab", id="a digest"),
        pytest.param("purser@sha256:cd", Image(), "purser@sha256:cd", id="its own digest"),
        pytest.param("purser", Image(), "purser", id="bare"),
    ],
)
def test_pursers_own_image_is_the_operators_with_the_parts_that_are_given(own: str, image: Image, wanted: str) -> None:
    assert reference(split(own), image) == wanted


def test_a_registrys_port_is_no_tag() -> None:
    assert split("r.example:5000/x/purser") == ("r.example:5000/x", "purser", "")
    assert split("r.example:5000/x/purser:1@sha256:ab") == ("r.example:5000/x", "purser", "sha256:ab")


def test_defaults_have_all_their_parts() -> None:
    assert all(all(parts) for parts in DEFAULTS.values())
