"""Images: whole references, parts, defaults, digests and OS suffixes."""

import pytest

from purser.operator.policy.fields import DEFAULTS, Image, reference, split


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
