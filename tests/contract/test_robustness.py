"""Bodies that make no sense: every one is refused in words, none breaks the server."""

import copy
import random
from typing import Any

import pytest

from purser.lab.apiserver import ApiServer
from tests.tiers import IS_LONG

from .client import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api
from .objects import binding, config_map, definition, deployment, pod

JUNK: list[Any] = [
    None,
    True,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "-",
    "Ä",
    [],
    {},
    [None],
    {"a": None},
    [[]],
    {"": ""},
    "y" * 300,
]
WEBHOOK = {
    "name": "a.b.dev", "sideEffects": "None", "admissionReviewVersions": ["v1"], "failurePolicy": "Ignore",
    "clientConfig": {"service": {"name": "s", "namespace": "n"}},
    "rules": [{"operations": ["CREATE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["pods"]}],
    "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]},
}  # fmt: skip
SCHEMA = {
    "type": "object",
    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}},
}


def rich_pod() -> dict[str, Any]:
    body = pod(
        "p",
        labels={"a": "b"},
        tolerations=[{"key": "k", "operator": "Exists"}],
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    body["metadata"] |= {
        "annotations": {"a": "b"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}],
    }
    body["spec"]["containers"][0] |= {
        "ports": [{"containerPort": 80}],
        "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "livenessProbe": {"httpGet": {"port": 80}},
    }
    return body


def manifests() -> dict[str, tuple[str, dict[str, Any]]]:
    """A valid body and the path it is posted to, by what it is."""
    core, apps = "/api/v1/namespaces/default", "/apis/apps/v1/namespaces/default"
    job = deployment("j")["spec"] | {"selector": None}
    job["template"]["spec"]["restartPolicy"] = "Never"
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}
    hooks = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
    bindings = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
    role = {
        "metadata": {"name": "r"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "User", "name": "u"}],
    }
    status = {
        "capacity": {"cpu": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [{"type": "a", "address": "b"}],
    }
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "p"}, "source": {"component": "c"}}
    new_events = "/apis/events.k8s.io/v1/namespaces/default/events"
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    columns = [{"name": "A", "type": "string", "jsonPath": ".spec.a[0]"}]
    return {
        "pod": (f"{core}/pods", rich_pod()),
        "deployment": (f"{apps}/deployments", deployment("d", replicas=1)),
        "daemon set": (f"{apps}/daemonsets", deployment("d")),
        "job": ("/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "j"}, "spec": job}),
        "service": (f"{core}/services", service),
        "secret": (f"{core}/secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
        "node": ("/api/v1/nodes", {"metadata": {"name": "n"}, "status": status}),
        "event": (f"{core}/events", event),
        "new event": (new_events, {"metadata": {"name": "f"}, "regarding": {"name": "p"}}),
        "definition": (definitions, definition("foos", "x.dev", SCHEMA, additionalPrinterColumns=columns)),
        "webhook": (hooks, {"metadata": {"name": "w"}, "webhooks": [WEBHOOK]}),
        "role binding": (bindings, role),
        "namespace": ("/api/v1/namespaces", {"metadata": {"name": "z"}}),
        "review": ("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "t"}}),
    }  # fmt: skip


SPOILED = 40 if IS_LONG else 10


def spoiled(body: Any, rng: random.Random) -> Any:
    """The body with junk, or nothing, at one random place."""
    body = copy.deepcopy(body)
    spot = body
    while True:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        key = rng.choice(keys)
        if isinstance(spot[key], (dict, list)) and spot[key] and rng.random() < 0.8:
            spot = spot[key]
            continue
        if rng.random() < 0.1:
            del spot[key]
        else:
            spot[key] = rng.choice(JUNK)
        return body


@pytest.mark.parametrize("what", list(manifests()))
async def test_a_spoiled_body_is_taken_or_refused(api: Api, server: ApiServer | None, what: str) -> None:
    if server is None:
        pytest.skip("what is tried is how the embedded server bears it")
    path, body = manifests()[what]
    rng = random.Random(what)
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
    for _ in range(SPOILED):
        bad = spoiled(body, rng)
        answer = await api.post(path, bad)
        assert answer.status < 500, (bad, answer.body)
        name = answer.body.get("metadata", {}).get("name")
        if answer.status == 201 and name:
            await spoil_further(api, f"{path}/{name}", bad, rng)
            assert (await api.request("GET", path, headers=accept)).status == 200
            assert (await api.delete(f"{path}/{name}", gracePeriodSeconds=0)).status < 500


async def spoil_further(api: Api, path: str, body: Any, rng: random.Random) -> None:
    for send in (api.put, *(patcher(api, kind) for kind in (MERGE, STRATEGIC, APPLY))):
        bad = spoiled(body, rng)
        answer = await send(path, bad)
        assert answer.status < 500, (bad, answer.body)
    operations = [{"op": "replace", "path": "/metadata", "value": rng.choice(JUNK)}]
    answer = await api.patch(path, operations, JSON_PATCH)
    assert answer.status < 500, (operations, answer.body)


def patcher(api: Api, content_type: str) -> Any:
    return lambda path, body: api.patch(path, body, content_type, fieldManager="m", force=True)


async def test_spoiled_subresources_and_options_are_refused(api: Api, ns: str, server: ApiServer | None) -> None:
    if server is None:
        pytest.skip("what is tried is how the embedded server bears it")
    rng = random.Random(1)
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "a"},
        "deleteOptions": {"gracePeriodSeconds": 5},
    }
    options = {
        "gracePeriodSeconds": 1,
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u"},
        "dryRun": ["All"],
    }
    for _ in range(40):
        await api.post(f"{ns}/pods", pod("a"))
        for path, body in ((f"{ns}/pods/a/binding", binding("a", "n")), (f"{ns}/pods/a/eviction", eviction)):
            bad = spoiled(body, rng)
            answer = await api.post(path, bad)
            assert answer.status < 500, (path, bad, answer.body)
        bad = spoiled(options, rng)
        answer = await api.delete(f"{ns}/pods/a", bad)
        assert answer.status < 500, (bad, answer.body)
        await api.delete(f"{ns}/pods/a", {"gracePeriodSeconds": 0})


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "x"}, {"limit": "-1"}, {"timeoutSeconds": "x", "watch": True}, {"labelSelector": "a in ("},
        {"fieldSelector": ",,="}, {"continue": "AAAA"}, {"continue": "Ä"}, {"resourceVersion": "-5"},
        {"resourceVersionMatch": "Exact"}, {"dryRun": "Some"}, {"fieldValidation": "Maybe"},
    ],
)  # fmt: skip
async def test_odd_queries_are_refused_or_ignored(
    api: Api, ns: str, query: dict[str, Any], server: ApiServer | None
) -> None:
    if server is None:
        pytest.skip("what is tried is how the embedded server bears it")
    assert (await api.get(f"{ns}/pods", **query)).status < 500
    assert (await api.post(f"{ns}/configmaps", config_map("a"), **query)).status < 500
