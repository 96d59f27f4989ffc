"""The image of what is Purser's own: the operator's, with the parts that the policy replaces."""

import pytest

from purser.operator.operands.own_images import purser_reference, split
from purser.operator.policy.fields import Image

from .wanteds import IMAGE, daemon_set


@pytest.mark.parametrize(
    ("own", "image", "wanted"),
    [
        ("r.example:5000/x/purser:1", Image(), "r.example:5000/x/purser:1"),
        ("r.example:5000/x/purser:1", Image(version="2"), "r.example:5000/x/purser:2"),
        ("r.example/purser:1", Image(repository="mirror.example/y"), "mirror.example/y/purser:1"),
        ("r.example/purser:1", Image(image="test"), "r.example/test:1"),
        ("r.example/purser:1", Image(image="other.example/test:9"), "other.example/test:9"),
        ("r.example/purser:1", Image(version="sha256:ab"), "r.example/purser@sha256:ab"),
        ("purser@sha256:cd", Image(), "purser@sha256:cd"),
        ("purser", Image(), "purser"),
    ],
    ids=["as it is", "version", "registry", "name", "whole", "digest", "own digest", "bare"],
)
def test_parts_that_are_given_replace_the_operators(own: str, image: Image, wanted: str) -> None:
    assert purser_reference(own, image) == wanted


def test_a_registrys_port_is_no_tag() -> None:
    assert split("r.example:5000/x/purser") == ("r.example:5000/x", "purser", "")
    assert split("r.example:5000/x/purser:1@sha256:ab") == ("r.example:5000/x", "purser", "sha256:ab")


def test_operands_of_pursers_own_run_the_operators_image() -> None:
    for name in ("purser-device-plugin-containerd", "purser-mig-manager", "purser-gpu-discovery"):
        pod = daemon_set(name)["spec"]["template"]["spec"]
        assert [each["image"] for each in pod["containers"]] == [IMAGE]


def test_discovery_is_pulled_as_the_others_are() -> None:
    sections = {
        name: {"imagePullPolicy": "Always", "imagePullSecrets": [name.lower()]}
        for name in ("devicePlugin", "migManager")
    }
    pod = daemon_set("purser-gpu-discovery", sections)["spec"]["template"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "deviceplugin"}, {"name": "migmanager"}]
    assert pod["containers"][0]["imagePullPolicy"] == "Always"
    nvidia = {**sections, "devicePlugin": {**sections["devicePlugin"], "flavor": "nvidia"}}
    assert daemon_set("purser-gpu-discovery", nvidia)["spec"]["template"]["spec"]["imagePullSecrets"] == [
        {"name": "migmanager"}
    ]
