"""`purser why -f` of a cluster: the API server says whether it would create the pod, and as what.

No webhook is registered with these API servers.
"""

import asyncio

import pytest
import yaml
from aiohttp import web
from tests.unit.cli.typed import beside
from tests.unit.kube.servers import api_server, serving, status
from tests.unit.scheduler.explained import gpu, gpus, node

from purser.adapters.dry_runs import dry_run
from purser.adapters.manifests import manifest_pods
from purser.kube import Client, ClusterConfig
from purser.kube.resources import NODES, PODS, untyped_resource

LIMIT_RANGES = untyped_resource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS = untyped_resource("", "v1", "resourcequotas", "ResourceQuota")
PRIORITY_CLASSES = untyped_resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)


def manifest(kind="Pod", name="p", **spec):
    container = {"name": "c", "image": "i", "resources": {"limits": gpu(4000)}}
    pod = {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}
    return (
        {"kind": "Pod", **pod} if kind == "Pod" else {"kind": kind, **pod, "spec": {"template": {"spec": pod["spec"]}}}
    )


class Asking:
    def __init__(self, client, folder):
        self.client, self._folder = client, folder

    async def why(self, body, *words):
        file = self._folder / "manifest.yaml"
        await asyncio.to_thread(file.write_text, yaml.safe_dump(body))
        return await beside("why", "-f", file, "--kubeconfig", self._folder / "kubeconfig", *words)


@pytest.fixture
async def asking(tmp_path):
    async with api_server(tmp_path / "kubeconfig") as (_, client):
        await client.create(NODES.raw(), node("n", gpus("n", 2, 8000), cpu="4"))
        yield Asking(client, tmp_path)
        assert all(each["metadata"]["name"] == "old" for each in (await client.list(PODS.raw(), "default")).items)


async def limit(client, kind, **bounds):
    spec = {"limits": [{"type": kind, **bounds}]}
    await client.create(LIMIT_RANGES, {"metadata": {"name": "bounds"}, "spec": spec}, "default")


async def test_a_pod_that_the_api_server_would_create_is_explained_and_nothing_is_left_unsaid(asking):
    code, out, err = await asking.why(manifest())
    assert (code, out.splitlines()[0]) == (
        0,
        "default/p would fit on 1 of 1 node now (n), placed by scheduler default-scheduler",
    ), err
    assert "not checked" not in err


async def test_what_a_limit_range_or_a_quota_refuses_is_not_said_to_fit(asking):
    await limit(asking.client, "Container", max={"nvidia.com/gpumem": "3000"})
    code, out, _ = await asking.why(manifest())
    assert (code, out) == (
        0,
        'default/p would not be placed: the API server would reject the pod: pods "p" is forbidden: maximum '
        "nvidia.com/gpumem usage per Container is 3k, but limit is 4k\n",
    )
    await asking.client.delete(LIMIT_RANGES, "bounds", "default")
    quota = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "0"}}}
    await asking.client.create(RESOURCE_QUOTAS, quota, "default")
    out = (await asking.why(manifest("Deployment", "web")))[1]
    assert "default/web would not be placed: the API server would reject the pod: " in out
    assert "exceeded quota: few, requested: pods=1, used: pods=0, limited: pods=0" in out


async def test_defaults_of_a_limit_range_are_the_pods_own(asking):
    """Five cores, of which no node has as many."""
    await limit(asking.client, "Container", defaultRequest={"cpu": "5"}, default={"cpu": "5"})
    out = (await asking.why(manifest()))[1]
    assert out.startswith("default/p would wait: it does not fit on the only node")
    assert "- container c requests cpu: 4 instead of 5: the pod then fits on n" in out.splitlines()


async def test_a_priority_class_that_does_not_exist_is_named(asking):
    out = (await asking.why(manifest(priorityClassName="gold")))[1]
    assert "would not be placed: the API server would reject the pod: " in out
    assert "no PriorityClass with name gold was found" in out


async def test_of_a_pod_that_exists_a_second_one_is_asked_for(asking):
    old = manifest(name="old")
    await asking.client.create(PODS.raw(), {key: old[key] for key in ("metadata", "spec")}, "default")
    code, out, err = await asking.why(manifest(name="old"))
    assert (code, out.startswith("default/old would fit on 1 of 1 node now (n)")) == (0, True)
    assert "pod old exists: the API server was asked about a second pod like it" in err


async def test_a_namespace_that_does_not_exist_is_the_answer(asking):
    out = (await asking.why(manifest(), "-n", "nowhere"))[1]
    assert out.startswith("nowhere/p would not be placed: the API server would reject the pod: ")


RBAC = (
    'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "default": RBAC: denied'
)
SIDE_EFFECTS = 'admission webhook "w.example.com" does not support dry run'
WEBHOOK_DOWN = 'Internal error occurred: failed calling webhook "w.example.com": connection refused'


@pytest.mark.parametrize(
    ("code", "reason", "message", "is_refusal"),
    [
        (403, "Forbidden", RBAC, False),
        (403, "Forbidden", 'pods "p" is forbidden: exceeded quota: few', True),
        (403, "Forbidden", 'admission webhook "w.example.com" denied the request: no', True),
        (400, "BadRequest", SIDE_EFFECTS, False),
        (400, "BadRequest", 'admission webhook "w.example.com" denied the request: no', True),
        (422, "Invalid", 'Pod "p" is invalid: spec.containers: Required value', True),
        (500, "InternalError", WEBHOOK_DOWN, True),
        (500, "InternalError", "etcdserver: request timed out", False),
        (401, "Unauthorized", "Unauthorized", False),
    ],
)
async def test_only_what_the_creation_would_meet_is_a_refusal(code, reason, message, is_refusal):
    """Sentences of kube-apiserver 1.37."""

    async def answer(request):
        assert (request.method, request.query["dryRun"]) == ("POST", "All")
        return web.json_response(status(code, reason, message), status=code)

    [asked] = manifest_pods(yaml.safe_dump(manifest()).encode(), "f")
    async with serving(answer) as url, Client(ClusterConfig.insecure(url)) as client:
        found = await dry_run(client, asked, "default")
    assert (found.pod, found.refusal if is_refusal else found.unknown.partition(" (")[0]) == (None, message)
    assert bool(found.refusal) == is_refusal
