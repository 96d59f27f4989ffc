"""What runs Purser's own image, and how that is pulled."""

import pytest

from .wanteds import IMAGE, daemon_set


def test_operands_of_pursers_own_run_the_operators_image() -> None:
    for name in ("purser-device-plugin-containerd", "purser-mig-manager", "purser-gpu-discovery"):
        pod = daemon_set(name)["spec"]["template"]["spec"]
        assert [each["image"] for each in pod["containers"]] == [IMAGE]


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("purser-device-plugin-containerd", "devicePlugin"),
        ("purser-mig-manager", "migManager"),
        ("purser-gpu-discovery", "discovery"),
    ],
)
def test_each_is_pulled_as_its_own_section_says(name: str, section: str) -> None:
    told = {"image": "mirror.example/x/purser", "version": "9", "imagePullPolicy": "Always", "imagePullSecrets": ["s"]}
    pod = daemon_set(name, {section: told})["spec"]["template"]["spec"]
    [main] = pod["containers"]
    assert (main["image"], main["imagePullPolicy"]) == ("mirror.example/x/purser:9", "Always")
    assert pod["imagePullSecrets"] == [{"name": "s"}]


def test_discovery_has_resources_of_its_own_unless_others_are_given() -> None:
    [main] = daemon_set("purser-gpu-discovery")["spec"]["template"]["spec"]["containers"]
    assert main["resources"]["limits"] == {"memory": "128Mi"}
    given = {"discovery": {"resources": {"limits": {"memory": "1Gi"}}}}
    [main] = daemon_set("purser-gpu-discovery", given)["spec"]["template"]["spec"]["containers"]
    assert main["resources"] == {"limits": {"memory": "1Gi"}}
