"""Which plugins kubelet takes, and the texts by which it refuses the others."""

import pytest

from purser.core.kubelet.devicemanager.registration import is_extended_resource, register_refusal, watcher_refusal

EXTENDED = {
    "the usual one": "nvidia.com/gpu",
    "dots and dashes in the name": "nvidia.com/mig-1g.5gb",
    "short": "a/b",
    "upper case and underscores in the name": "vendor.com/X_1.y",
    "the longest name": f"{'a' * 60}.com/{'b' * 63}",
}


@pytest.mark.parametrize("name", EXTENDED.values(), ids=EXTENDED)
def test_extended_resources(name: str) -> None:
    assert is_extended_resource(name)
    assert register_refusal("v1beta1", name) is None
    assert watcher_refusal(["v1alpha", "v1beta1"], name) is None


OTHERS = {
    "no domain": "gpu",
    "kubernetes' own domain": "kubernetes.io/gpu",
    "below kubernetes' own domain": "x.kubernetes.io/gpu",
    "that of a quota": "requests.vendor.com/gpu",
    "upper case in the domain": "Vendor.com/gpu",
    "no name": "vendor.com/",
    "empty domain": "/gpu",
    "two slashes": "vendor.com/a/b",
    "name begins with a dash": "vendor.com/-gpu",
    "name too long": f"vendor.com/{'b' * 64}",
    "domain too long once requests. stands before it": f"{'a.' * 122}a/gpu",
    "a line break": "vendor.com/gpu\n",
    "empty": "",
}


@pytest.mark.parametrize("name", OTHERS.values(), ids=OTHERS)
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
