"""Manifests keep to what Kubernetes 1.20 knows: no field and no kind is younger, but those that say so."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from ..operator.manifests.wanteds import KINDS, POOLS, SPECS, rendered
from .test_helm_chart import VARIANTS, render

METADATA = {"name", "namespace", "labels", "annotations", "ownerReferences"}
YOUNGER = {"Service.spec.internalTrafficPolicy"}
"""Whose description in the policy says from when on: a policy with them is for newer clusters."""

NOT_BUILT_IN = {"ClusterPolicy", "ServiceMonitor", "PrometheusRule"}


@cache
def facts() -> Any:
    return json.loads(Path(__file__).with_name("kubernetes_1_20.json").read_text())


def unknown(obj: dict[str, Any]) -> list[str]:
    """Fields of an object, and the object itself, that Kubernetes 1.20 does not know."""
    kind = facts()["kinds"].get(f"{obj['apiVersion']} {obj['kind']}")
    if kind is None:
        return [f"{obj['apiVersion']} {obj['kind']}"]
    body = {name: value for name, value in obj.items() if name not in ("apiVersion", "kind")}
    return list(_unknown(body, kind, obj["kind"]))


def _unknown(value: Any, kind: str, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from _unknown(each, kind, path)
    elif isinstance(value, dict) and kind == "metav1.ObjectMeta":
        yield from (f"{path}.{name}" for name in value.keys() - METADATA)
    elif isinstance(value, dict) and kind in facts()["types"]:
        fields = facts()["types"][kind]
        for name, each in value.items():
            if name not in fields:
                yield f"{path}.{name}"
            else:
                yield from _unknown(each, fields[name], f"{path}.{name}")


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_chart_has_no_younger_fields(variant: str) -> None:
    documents = [each for each in render(VARIANTS[variant], "1.20") if each["kind"] not in NOT_BUILT_IN]
    assert len(documents) > 10
    assert [found for each in documents for found in unknown(each)] == []


@pytest.mark.parametrize("name", SPECS)
def test_what_the_operator_makes_has_no_younger_fields(name: str) -> None:
    objects = [dict(each.object) for each in rendered(SPECS[name], pools=POOLS, runtimes=KINDS)]
    found = {field for each in objects if each["kind"] not in NOT_BUILT_IN for field in unknown(each)}
    assert found <= YOUNGER


def test_a_younger_field_or_kind_would_be_found() -> None:
    probe = {"grpc": {"port": 1}}
    pod = {"containers": [{"name": "a", "startupProbe": probe, "env": [{"name": "a", "value": "b"}]}], "os": {}}
    daemon_set = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a", "labels": {"x": "y"}}}
    daemon_set["spec"] = {"template": {"spec": pod}}
    where = "DaemonSet.spec.template.spec"
    assert sorted(unknown(daemon_set)) == [f"{where}.containers.startupProbe.grpc", f"{where}.os"]
    assert unknown({"apiVersion": "batch/v1", "kind": "CronJob"}) == ["batch/v1 CronJob"]
