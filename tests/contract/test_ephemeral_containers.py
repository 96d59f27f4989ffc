"""Containers that `kubectl debug` adds to pods, behind an endpoint of their own."""

from typing import Any

import pytest
import pytest_asyncio

from .client import STRATEGIC, Api
from .hook import Hook
from .objects import deployment, pod
from .test_webhooks import Register, hook, register

__all__ = ["hook", "register"]  # fixtures


def debugging(*names: str, **fields: Any) -> dict[str, Any]:
    return {"spec": {"ephemeralContainers": [{"name": name, "image": "busybox", **fields} for name in names]}}


@pytest_asyncio.fixture(loop_scope="session")
async def path(api: Api, ns: str) -> str:
    if api.minor < 25:
        pytest.skip("ephemeral containers are stable since 1.25")
    (await api.post(f"{ns}/pods", pod("a"))).ok()
    return f"{ns}/pods/a/ephemeralcontainers"


async def test_they_are_added_behind_their_own_endpoint_and_nothing_else_is(api: Api, path: str) -> None:
    both = debugging("one") | {"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}}
    both["spec"]["activeDeadlineSeconds"] = 9
    body = (await api.patch(path, both, STRATEGIC)).ok().body
    (added,) = body["spec"]["ephemeralContainers"]
    assert (added["name"], added["terminationMessagePolicy"]) == ("one", "File")
    assert "activeDeadlineSeconds" not in body["spec"]
    assert body["status"]["phase"] == "Pending"
    assert len((await api.patch(path, debugging("two"), STRATEGIC)).ok().body["spec"]["ephemeralContainers"]) == 2
    read = (await api.get(path)).ok().body
    assert {each["name"] for each in read["spec"]["ephemeralContainers"]} == {"one", "two"}
    read["spec"]["ephemeralContainers"].append({"name": "three", "image": "busybox"})
    assert len((await api.put(path, read)).ok().body["spec"]["ephemeralContainers"]) == 3


async def test_those_that_are_there_are_neither_changed_nor_removed(api: Api, path: str) -> None:
    (await api.patch(path, debugging("one"), STRATEGIC)).ok()
    changed = await api.patch(path, debugging("one", command=["sh"]), STRATEGIC)
    assert changed.causes == {("FieldValueForbidden", "spec.ephemeralContainers")}
    assert 'existing ephemeral containers "one" may not be changed' in changed.message
    removed = await api.patch(path, {"spec": {"ephemeralContainers": None}})
    assert 'existing ephemeral containers "one" may not be removed' in removed.message


async def test_they_come_neither_with_the_pod_nor_through_it_nor_in_a_template(api: Api, ns: str, path: str) -> None:
    created = await api.post(f"{ns}/pods", pod("b", **debugging("one")["spec"]))
    assert created.causes == {("FieldValueForbidden", "spec.ephemeralContainers")}
    assert (await api.patch(f"{ns}/pods/a", debugging("one"), STRATEGIC)).status == 422
    body = deployment("d")
    body["spec"]["template"]["spec"] |= debugging("one")["spec"]
    apps = ns.replace("/api/v1", "/apis/apps/v1")
    refused = await api.post(f"{apps}/deployments", body)
    assert ("FieldValueForbidden", "spec.template.spec.ephemeralContainers") in refused.causes


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        ({"name": "main"}, ("FieldValueDuplicate", "name")),
        ({"targetContainerName": "none"}, ("FieldValueNotFound", "targetContainerName")),
        ({"resources": {"limits": {"cpu": "1"}}}, ("FieldValueForbidden", "resources")),
        ({"ports": [{"containerPort": 80}]}, ("FieldValueForbidden", "ports")),
        ({"image": ""}, ("FieldValueRequired", "image")),
    ],
)
async def test_what_no_such_container_may_have(api: Api, path: str, fields: Any, cause: tuple[str, str]) -> None:
    body = {"spec": {"ephemeralContainers": [{"name": "one", "image": "busybox", **fields}]}}
    refused = await api.patch(path, body, STRATEGIC)
    assert (cause[0], f"spec.ephemeralContainers[0].{cause[1]}") in refused.causes


async def test_webhooks_are_asked_about_them(api: Api, path: str, hook: Hook, register: Register) -> None:
    hook.decide = lambda request: {
        "allowed": request.get("subResource") != "ephemeralcontainers",
        "status": {"message": "no"},
    }
    await register("validating", resources=["configmaps", "pods/ephemeralcontainers"])
    refused = await api.patch(path, debugging("one"), STRATEGIC)
    assert "denied the request: no" in refused.message
    (asked,) = hook.named("a")
    assert (asked["operation"], asked["subResource"], asked["kind"]["kind"]) == ("UPDATE", "ephemeralcontainers", "Pod")
    assert asked["object"]["spec"]["ephemeralContainers"][0]["name"] == "one"
    assert "ephemeralContainers" not in asked["oldObject"]["spec"]
