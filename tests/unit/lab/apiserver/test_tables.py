"""Rows and columns."""

from typing import Any

import pytest

from purser.lab.apiserver.columns import duration
from purser.lab.apiserver.resources import Registry
from purser.lab.apiserver.tables import json_path, table

REGISTRY = Registry()


def row(group: str, plural: str, obj: Any) -> dict[str, Any]:
    resource = REGISTRY.get(group, "v1", plural)
    assert resource
    made = table(resource, [obj], {}, include="None")
    return dict(zip([column["name"] for column in made["columnDefinitions"]], made["rows"][0]["cells"], strict=True))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"), (600, "10m"), (10_799, "179m"), (10_800, "3h"),
     (12_000, "3h20m"), (86_400, "24h"), (180_000, "2d2h"), (864_000, "10d"), (86_400 * 800, "2y"), (-5, "<invalid>")],
)  # fmt: skip
def test_durations_are_short(seconds: int, expected: str) -> None:
    assert duration(seconds) == expected


def pod(statuses: Any, phase: str = "Running", **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "a", **more},
        "spec": {"containers": [{"name": "x"}, {"name": "y"}], "nodeName": "n"},
        "status": {"phase": phase, "containerStatuses": statuses},
    }


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (pod([{"ready": True, "state": {"running": {}}}]), "Running"),
        (pod([{"state": {"waiting": {"reason": "CrashLoopBackOff"}}}]), "CrashLoopBackOff"),
        (pod([{"state": {"terminated": {"exitCode": 1}}}]), "ExitCode:1"),
        (pod([], deletionTimestamp="2026-01-01T00:00:00Z"), "Terminating"),
        ({**pod([]), "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}}, "UnexpectedAdmissionError"),
        (pod([{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}], "Succeeded"), "Completed"),
    ],
)
def test_a_pods_status_is_its_most_telling_reason(body: Any, status: str) -> None:
    assert row("", "pods", body)["Status"] == status


def test_containers_and_restarts_are_counted() -> None:
    cells = row("", "pods", pod([{"ready": True, "restartCount": 2}, {"ready": False, "restartCount": 1}]))
    assert (cells["Ready"], cells["Restarts"], cells["Node"]) == ("1/2", "3", "n")


def test_nodes_show_roles_and_scheduling() -> None:
    node = {
        "metadata": {"name": "n", "labels": {"node-role.kubernetes.io/gpu": "", "node-role.kubernetes.io/b": ""}},
        "spec": {"unschedulable": True},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    }
    cells = row("", "nodes", node)
    assert (cells["Status"], cells["Roles"]) == ("NotReady,SchedulingDisabled", "b,gpu")


@pytest.mark.parametrize("resource", list(REGISTRY), ids=lambda resource: f"{resource.api_version}/{resource.plural}")
def test_every_kind_can_be_shown_with_nothing_but_a_name(resource: Any) -> None:
    made = table(resource, [{"metadata": {"name": "a"}}], {}, include="Object")
    assert made["rows"][0]["cells"][0] == "a"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.size", [3]),
        (".spec.list[0]", ["a"]),
        (".spec.list[*]", ["a", "b"]),
        (".status.conditions[?(@.type=='Ready')].status", ["True"]),
        ('.status.conditions[?(@.type=="Other")].status', []),
        (".metadata.labels.x\\.dev/y", ["z"]),
        (".nothing.here", []),
    ],
)
def test_json_paths(path: str, expected: list[Any]) -> None:
    obj = {
        "spec": {"size": 3, "list": ["a", "b"]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        "metadata": {"labels": {"x.dev/y": "z"}},
    }
    assert json_path(obj, path) == expected
