"""Kinds of runtime are distinguished only where manifests differ."""

from typing import Any

import pytest

from purser.operator.manifests import runtime_class_key
from purser.operator.model import RuntimeKind
from purser.operator.names import RUNTIME_LABEL
from purser.operator.policy import decode

from .wanteds import KINDS, SPECS, rendered

OLD = RuntimeKind("containerd", "rke2", cdi=False, config_v2=True)
NVIDIA = {"devicePlugin": {"flavor": "nvidia"}}


def told_apart(kind: RuntimeKind, spec: dict[str, Any]) -> RuntimeKind:
    return runtime_class_key(kind, decode({"metadata": {"name": "p"}, "spec": spec}).spec)


@pytest.mark.parametrize(
    ("spec", "label"),
    [
        ({}, "containerd-rke2-v2"),
        (NVIDIA, "containerd-rke2-v2-nocdi"),
        ({**NVIDIA, "cdi": {"enabled": False}}, "containerd-rke2-v2"),
        ({**NVIDIA, "toolkit": {"enabled": False}}, "containerd-rke2-nocdi"),
        ({"toolkit": {"enabled": False}}, "containerd-rke2"),
    ],
    ids=["purser's agent", "nvidia's plugin", "CDI switched off", "without a toolkit", "neither of them"],
)
def test_what_an_old_runtime_lacks_counts_where_the_policy_could_use_it(spec: dict[str, Any], label: str) -> None:
    assert told_apart(OLD, spec).label == label


def pods(kind: RuntimeKind, spec: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """By operand: the pods on this kind, without the label that says which kind it is."""
    found = []
    for each in rendered(spec, runtimes=(kind,)):
        if each.object["kind"] == "DaemonSet":
            pod = each.object["spec"]["template"]["spec"]
            pod["nodeSelector"].pop(RUNTIME_LABEL, None)
            found.append((each.operand, pod))
    return found


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("kind", [*KINDS, OLD], ids=lambda kind: kind.label)
def test_kinds_that_are_not_distinguished_have_equal_pods(kind: RuntimeKind, name: str) -> None:
    spec = SPECS[name]
    assert pods(kind, spec) == pods(told_apart(kind, spec), spec)
