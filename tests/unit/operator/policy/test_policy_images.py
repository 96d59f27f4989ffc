"""Images: whole references, parts, defaults, digests and OS suffixes."""

import pytest

from purser.operator.policy.fields import Image
from purser.operator.policy.images import DEFAULTS, reference


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
        pytest.param(Image(image="mydriver"), "nvcr.io/nvidia/mydriver:595.91.07-ubuntu22.04", id="a name alone"),
    ],
)
def test_a_drivers_image(image: Image, wanted: str) -> None:
    assert reference("driver", image, suffix="-ubuntu22.04") == wanted


def test_there_is_a_default_for_whatever_is_not_pursers_own() -> None:
    assert all(all(parts) for parts in DEFAULTS.values())
    with pytest.raises(KeyError):
        reference("unheard-of", Image())
