"""Admission webhooks: whom the server asks, what it sends, what it makes of the answers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from purser.lab.apiserver import ApiServer

from .client import Answer, Api, until
from .hook import Hook, patch, serving
from .objects import binding, config_map, pod

PATH = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
NAME = "hook.contract.dev"
Register = Callable[..., Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def hook() -> AsyncIterator[Hook]:
    async with serving() as made:
        yield made


@pytest_asyncio.fixture(loop_scope="session")
async def register(api: Api, ns: str, unique: str, hook: Hook) -> AsyncIterator[Register]:
    """Registers a webhook for the test's namespace and returns once the server asks it."""
    made: list[str] = []

    async def make(
        kind: str = "mutating", *, resources: list[str] | None = None, probe: bool = True, **webhook: Any
    ) -> None:
        rule = {
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "resources": resources or ["pods", "configmaps"],
        }
        body = {
            "metadata": {"name": f"{unique}-{kind}"},
            "webhooks": [
                {
                    "name": NAME,
                    "clientConfig": {"url": hook.url, "caBundle": hook.ca_bundle},
                    "rules": [rule],
                    "namespaceSelector": {"matchLabels": {"contract": unique}},
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    **webhook,
                }
            ],
        }
        path = PATH.format(kind)
        (await api.post(path, body)).ok()
        made.append(f"{path}/{unique}-{kind}")
        if probe:
            asked = len(hook.named("probe"))  # a real cluster's controllers create ConfigMaps, too

            async def in_force() -> bool:
                await api.post(f"{ns}/configmaps", config_map("probe"), dryRun="All")
                return len(hook.named("probe")) > asked

            await until("the webhook is asked", in_force)

    yield make
    for path in made:
        await api.delete(path)


async def test_a_mutating_webhook_changes_what_is_stored(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register()
    hook.decide = lambda request: patch({"op": "add", "path": "/metadata/labels", "value": {"by": "hook"}})
    answer = (await api.post(f"{ns}/configmaps", config_map("a"))).ok()
    assert answer.body["metadata"]["labels"] == {"by": "hook"}
    assert (await api.get(f"{ns}/configmaps/a")).body["metadata"]["labels"] == {"by": "hook"}


async def test_the_review_says_who_wants_what(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register()
    asked = pod("a", labels={"x": "y"})
    del asked["spec"]["schedulerName"]
    (await api.post(f"{ns}/pods", asked)).ok()
    request = hook.named("a")[-1]
    assert request["kind"] == {"group": "", "version": "v1", "kind": "Pod"}
    assert request["resource"] == {"group": "", "version": "v1", "resource": "pods"}
    assert (request["operation"], request["namespace"], request["dryRun"]) == ("CREATE", ns.rsplit("/", 1)[1], False)
    assert "system:masters" in request["userInfo"]["groups"]
    assert request["options"]["kind"] == "CreateOptions"
    assert request["oldObject"] is None
    seen = request["object"]
    assert (seen["kind"], seen["apiVersion"], seen["metadata"]["labels"]) == ("Pod", "v1", {"x": "y"})
    assert seen["spec"]["schedulerName"] == "default-scheduler", "webhooks see the defaults"
    assert seen["spec"]["serviceAccountName"] == "default"


async def test_a_limit_range_completes_the_containers_that_a_webhook_adds(
    api: Api, ns: str, hook: Hook, register: Register
) -> None:
    await register()
    limits = [{"type": "Container", "defaultRequest": {"cpu": "100m"}}]
    (await api.post(f"{ns}/limitranges", {"metadata": {"name": "range"}, "spec": {"limits": limits}})).ok()
    added = {"name": "added", "image": "i"}
    hook.decide = lambda request: patch({"op": "add", "path": "/spec/containers/-", "value": added})
    made = (await api.post(f"{ns}/pods", pod("a"))).ok().body
    assert hook.named("a")[-1]["object"]["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m"}}
    assert [each["resources"] for each in made["spec"]["containers"]] == [{"requests": {"cpu": "100m"}}] * 2


async def test_validating_webhooks_are_asked_after_limit_ranges_and_before_quotas(
    api: Api, ns: str, hook: Hook, register: Register
) -> None:
    await register("validating")
    limits = [{"type": "Pod", "max": {"cpu": "1"}}]
    (await api.post(f"{ns}/limitranges", {"metadata": {"name": "range"}, "spec": {"limits": limits}})).ok()
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": 0}}}
    (await api.post(f"{ns}/resourcequotas", quota)).ok()

    async def is_counted() -> Any:
        return (await api.get(f"{ns}/resourcequotas/none")).body.get("status", {}).get("used")

    await until("the quota is counted", is_counted)
    asked = pod("a", resources={"limits": {"cpu": "2"}})
    assert "maximum cpu usage" in (await api.post(f"{ns}/pods", asked)).message and not hook.named("a")
    asked = pod("b", resources={"limits": {"cpu": "1"}})
    assert "exceeded quota" in (await api.post(f"{ns}/pods", asked)).message and hook.named("b")


async def test_what_a_pod_asks_for_as_a_whole_counts_the_containers_that_a_webhook_adds(
    api: Api, ns: str, hook: Hook, register: Register
) -> None:
    if api.minor < 37:
        pytest.skip("older servers fill in what a pod asks for as a whole before they ask webhooks")
    await register()
    asked = pod("a", resources={"limits": {"cpu": "200m"}})
    asked["spec"]["resources"] = {"limits": {"cpu": "1"}}
    added = {"name": "added", "image": "i", "resources": {"requests": {"cpu": "300m"}}}
    hook.decide = lambda request: patch({"op": "add", "path": "/spec/containers/-", "value": added})
    made = (await api.post(f"{ns}/pods", asked)).ok().body
    assert hook.named("a")[-1]["object"]["spec"]["resources"] == {"limits": {"cpu": "1"}}
    assert made["spec"]["resources"]["requests"] == {"cpu": "500m"}


async def test_updates_show_old_and_new(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}))
    await register("validating")
    (await api.patch(f"{ns}/configmaps/a", {"data": {"x": "2"}})).ok()
    request = hook.named("a")[-1]
    assert request["operation"] == "UPDATE"
    assert (request["oldObject"]["data"], request["object"]["data"]) == ({"x": "1"}, {"x": "2"})


async def test_deletions_show_the_object_as_old(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await api.post(f"{ns}/configmaps", config_map("a", {"x": "1"}))
    await register("validating")
    (await api.delete(f"{ns}/configmaps/a")).ok()
    request = hook.named("a")[-1]
    assert (request["operation"], request["object"]) == ("DELETE", None)
    assert request["oldObject"]["data"] == {"x": "1"}


async def test_a_refusal_is_reported_in_the_webhooks_words(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register("validating")
    hook.decide = lambda request: {"allowed": False, "status": {"message": "not like this"}}
    answer = await api.post(f"{ns}/configmaps", config_map("a"))
    assert (answer.status, answer.reason) == (400, "")
    assert answer.message == f'admission webhook "{NAME}" denied the request: not like this'
    hook.decide = lambda request: {"allowed": False}
    answer = await api.post(f"{ns}/configmaps", config_map("a"))
    assert answer.message == f'admission webhook "{NAME}" denied the request without explanation'


async def test_a_refusal_can_choose_its_code(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register("mutating")
    status = {"code": 422, "message": "bad number", "reason": "Invalid"}
    hook.decide = lambda request: {"allowed": False, "status": status}
    answer = await api.post(f"{ns}/configmaps", config_map("a"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == f'admission webhook "{NAME}" denied the request: bad number'


async def test_warnings_are_passed_on(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register()
    hook.decide = lambda request: {"allowed": True, "warnings": ["mind the gap", "two\nlines", "\x7f", ""]}
    answer = (await api.post(f"{ns}/configmaps", config_map("a"))).ok()
    assert answer.headers.getall("Warning") == ['299 - "mind the gap"']


async def test_what_a_webhook_adds_is_checked(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register()
    hook.decide = lambda request: patch({"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}})
    answer = await api.post(f"{ns}/configmaps", config_map("a"))
    assert (answer.status, answer.reason) == (422, "Invalid")
    hook.decide = lambda request: patch({"op": "remove", "path": "/not/there"})
    assert (await api.post(f"{ns}/configmaps", config_map("a"))).status == 500


async def test_limits_that_a_webhook_adds_become_requests(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register()
    limits = {"op": "add", "path": "/spec/containers/0/resources", "value": {"limits": {"nvidia.com/gpu": "1"}}}
    hook.decide = lambda request: patch(limits) if request["kind"]["kind"] == "Pod" else {"allowed": True}
    body = (await api.post(f"{ns}/pods", pod("a"))).ok().body
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "1"}


async def test_validators_see_what_mutators_made(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register("mutating")
    await register("validating")
    hook.reviews.clear()
    hook.decide = lambda request: (
        patch({"op": "add", "path": "/data", "value": {"made": "yes"}})
        if not request["object"].get("data")
        else {"allowed": True}
    )
    (await api.post(f"{ns}/configmaps", config_map("a"))).ok()
    assert [request["object"].get("data") for request in hook.named("a")] == [None, {"made": "yes"}]


async def test_bindings_can_be_intercepted(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await api.post(f"{ns}/pods", pod("a"))
    await register("validating", resources=["pods/binding", "configmaps"])
    (await api.post(f"{ns}/pods/a/binding", binding("a", "n1"))).ok()
    request = hook.named("a")[-1]
    assert (request["kind"]["kind"], request["subResource"], request["operation"]) == ("Binding", "binding", "CREATE")
    assert request["object"]["target"]["name"] == "n1"


async def test_objects_are_selected_by_label(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register(objectSelector={"matchLabels": {"ask": "yes"}}, probe=False)

    async def in_force() -> bool:
        await api.post(f"{ns}/configmaps", config_map("probe", labels={"ask": "yes"}), dryRun="All")
        return bool(hook.reviews)

    await until("the webhook is asked", in_force)
    await api.post(f"{ns}/configmaps", config_map("a", labels={"ask": "no"}))
    assert not hook.named("a")


async def test_an_unreachable_webhook_fails_or_is_ignored(api: Api, ns: str, hook: Hook, register: Register) -> None:
    nowhere = {"url": "https://127.0.0.1:1/hook", "caBundle": hook.ca_bundle}
    await register(clientConfig=nowhere, probe=False)

    async def fails() -> Answer | None:
        answer = await api.post(f"{ns}/configmaps", config_map("a"), dryRun="All")
        return answer if answer.status == 500 else None

    answer: Answer = await until("the webhook is asked", fails)
    assert answer.reason == "InternalError"
    assert answer.message.startswith(f'Internal error occurred: failed calling webhook "{NAME}": ')
    assert (await api.get(f"{ns}/configmaps/a")).status == 404


async def test_an_ignored_failure_lets_the_object_pass(api: Api, ns: str, hook: Hook, register: Register) -> None:
    await register(failurePolicy="Ignore")
    hook.decide = lambda request: {"uid": "not the right one", "allowed": False}
    assert (await api.post(f"{ns}/configmaps", config_map("a"))).status == 201


async def test_another_ca_is_not_trusted(api: Api, ns: str, hook: Hook, register: Register) -> None:
    async with serving() as other:
        await register(clientConfig={"url": hook.url, "caBundle": other.ca_bundle}, probe=False)

        async def fails() -> Answer | None:
            answer = await api.post(f"{ns}/configmaps", config_map("a"), dryRun="All")
            return answer if answer.status == 500 else None

        answer: Answer = await until("the webhook is called", fails)
    assert "certificate" in answer.message
    assert not hook.reviews


async def test_a_slow_webhook_times_out_and_holds_up_nobody_else(
    api: Api, ns: str, hook: Hook, register: Register
) -> None:
    await register(timeoutSeconds=2, failurePolicy="Fail")
    hook.delay_seconds = 30
    slow = asyncio.create_task(api.post(f"{ns}/configmaps", config_map("a")))

    async def asked() -> bool:
        return bool(hook.named("a"))

    await until("the webhook is asked", asked)
    assert (await api.post(f"{ns}/secrets", {"metadata": {"name": "b"}})).status == 201
    assert not slow.done()
    answer = await slow
    assert answer.status == 500
    assert f'failed calling webhook "{NAME}"' in answer.message
    assert "context deadline exceeded" in answer.message or "Client.Timeout" in answer.message


async def test_a_webhook_with_side_effects_is_not_asked_about_dry_runs(
    api: Api, ns: str, hook: Hook, register: Register
) -> None:
    await register("validating", sideEffects="NoneOnDryRun")
    assert hook.named("probe")[-1]["dryRun"] is True


async def test_services_are_reached_through_the_labs_map(
    api: Api, ns: str, hook: Hook, register: Register, server: ApiServer | None
) -> None:
    if server is None:
        pytest.skip("a real cluster has a service network")
    service = {"namespace": "purser-system", "name": "hook", "path": "/hook"}
    server.service_urls["purser-system", "hook"] = hook.url.removesuffix("/hook")
    await register(clientConfig={"service": service, "caBundle": hook.ca_bundle})
    assert (await api.post(f"{ns}/configmaps", config_map("a"))).status == 201
    assert hook.named("a")
    del server.service_urls["purser-system", "hook"]
    answer = await api.post(f"{ns}/configmaps", config_map("b"))
    assert answer.message.endswith('service "hook" not found')


async def test_configurations_are_checked_and_defaulted(api: Api, ns: str, unique: str) -> None:
    webhook: dict[str, Any] = {"name": "short", "clientConfig": {"url": "https://127.0.0.1:1/"}}
    answer = await api.post(PATH.format("mutating"), {"metadata": {"name": unique}, "webhooks": [webhook]})
    assert answer.status == 422
    fields = {field for _, field in answer.causes}
    assert {"webhooks[0].name", "webhooks[0].sideEffects", "webhooks[0].admissionReviewVersions"} <= fields
    webhook |= {"name": NAME, "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "namespaceSelector": {"matchLabels": {"contract": unique}}}  # fmt: skip
    body = (await api.post(PATH.format("mutating"), {"metadata": {"name": unique}, "webhooks": [webhook]})).ok().body
    made = body["webhooks"][0]
    assert (made["failurePolicy"], made["timeoutSeconds"], made["reinvocationPolicy"]) == ("Fail", 10, "Never")
    assert (made["matchPolicy"], made["objectSelector"]) == ("Equivalent", {})
    await api.delete(f"{PATH.format('mutating')}/{unique}")
