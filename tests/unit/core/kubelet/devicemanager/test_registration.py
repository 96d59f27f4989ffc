"""Which plugins kubelet takes, and the texts by which it refuses the others."""

import pytest

from purser.core.kubelet.devicemanager.registration import is_extended_resource, register_refusal, watcher_refusal


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("nvidia.com/gpu", id="the usual one"),
        pytest.param("nvidia.com/mig-1g.5gb", id="dots and dashes in the name"),
        pytest.param("a/b", id="short"),
        pytest.param("vendor.com/X_1.y", id="upper case and underscores in the name"),
        pytest.param(f"{'a' * 60}.com/{'b' * 63}", id="the longest name"),
    ],
)
def test_extended_resources(name: str) -> None:
    assert is_extended_resource(name)
    assert register_refusal("v1beta1", name) is None
    assert watcher_refusal(["v1alpha", "v1beta1"], name) is None


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("gpu", id="no domain"),
        pytest.param("kubernetes.io/gpu", id="kubernetes' own domain"),
        pytest.param("x.kubernetes.io/gpu", id="below kubernetes' own domain"),
        pytest.param("requests.vendor.com/gpu", id="that of a quota"),
        pytest.param("Vendor.com/gpu", id="upper case in the domain"),
        pytest.param("vendor.com/", id="no name"),
        pytest.param("/gpu", id="empty domain"),
        pytest.param("vendor.com/a/b", id="two slashes"),
        pytest.param("vendor.com/-gpu", id="name begins with a dash"),
        pytest.param(f"vendor.com/{'b' * 64}", id="name too long"),
        pytest.param(f"{'a.' * 122}a/gpu", id="domain too long once requests. stands before it"),
        pytest.param("vendor.com/gpu\n", id="a line break"),
        pytest.param("", id="empty"),
    ],
)
def test_other_names(name: str) -> None:
    assert not is_extended_resource(name)


def test_the_registration_socket_names_what_it_refuses() -> None:
    assert register_refusal("v1alpha", "gpu") == (
        'requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]'
    )
    assert register_refusal("v1beta1", 'g"pu') == 'the ResourceName "g\\"pu" is invalid'


def test_the_plugin_watcher_has_words_of_its_own() -> None:
    assert watcher_refusal(["v1", "v2"], "vendor.com/gpu") == (
        "manager version, v1beta1, is not among plugin supported versions [v1 v2]"
    )
    assert watcher_refusal(["v1beta1"], "gpu") == (
        'invalid name of device plugin socket: the ResourceName "gpu" is invalid'
    )
