"""The scheduler's side of the extender protocol, with a real HTTPS server on the other end."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from purser.kube.resources import PODS
from purser.lab.controllers.manager import run_scheduler
from purser.lab.controllers.scheduling.extender import ExtenderSettings

MANAGED = ("example.com/gpu",)


class FakeExtender:
    """Answers as configured and keeps what it was asked."""

    def __init__(self, client):
        self.client = client
        self.calls = []
        self.failed = {}
        self.scores = {}
        self.bind_errors = []
        self.victims = None

    async def answer(self, request):
        verb, body = request.match_info["verb"], await request.json()
        self.calls.append((verb, body))
        return web.json_response(await getattr(self, verb)(body))

    async def filter(self, body):
        failed = {name: why for name, why in self.failed.items() if name in body["NodeNames"]}
        return {"NodeNames": [n for n in body["NodeNames"] if n not in failed], "FailedNodes": failed, "Error": ""}

    async def prioritize(self, body):
        return [{"Host": name, "Score": self.scores.get(name, 0)} for name in body["NodeNames"]]

    async def bind(self, body):
        if self.bind_errors:
            return {"Error": self.bind_errors.pop()}
        await self.client.bind(body["PodNamespace"], body["PodName"], body["PodUID"], body["Node"], {"by": "extender"})
        return {"Error": ""}

    async def preempt(self, body):
        return {"NodeNameToMetaVictims": body["NodeNameToMetaVictims"] if self.victims is None else self.victims}


def server_context(folder):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "extender")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, now + timedelta(days=1))
    ).sign(key, hashes.SHA256())
    path = folder / "tls.pem"
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context


@pytest.fixture
async def extender(world):
    fake = FakeExtender(world.client)
    app = web.Application()
    app.router.add_post("/scheduler/{verb}", fake.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context(world.folder)).start()
    settings = ExtenderSettings(
        url_prefix=f"https://127.0.0.1:{runner.addresses[0][1]}/scheduler",
        filter_verb="filter",
        prioritize_verb="prioritize",
        bind_verb="bind",
        preempt_verb="preempt",
        managed_resources=MANAGED,
    )
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    # Before the scheduler: it hears of pods and of nodes that come later each by a watch of its own.
    for name in ("a", "b", "c"):
        await world.node(name, **{"example.com/gpu": "4"})
    world.start(run_scheduler(world.client, "gpu-scheduler", [settings], context=trusting))
    yield fake
    await runner.cleanup()


async def gpu_pod(world, name, gpus="1", priority=None):
    limits = {"example.com/gpu": gpus}
    container = {"name": "c", "image": "i", "resources": {"limits": limits}}
    spec = {"schedulerName": "gpu-scheduler", "containers": [container]}
    if priority:
        spec["priorityClassName"] = priority
    return await world.client.create(PODS.raw(), {"metadata": {"name": name}, "spec": spec}, "default")


async def test_it_is_asked_with_names_of_the_nodes_that_fit_and_its_scores_decide(world, extender):
    extender.failed = {"b": "no card"}
    extender.scores = {"a": 1, "c": 10}
    pod = await gpu_pod(world, "p")
    assert await world.bound("p") == "c"
    verbs = [verb for verb, _ in extender.calls]
    assert verbs == ["filter", "prioritize", "bind"]
    asked = extender.calls[0][1]
    assert (asked["NodeNames"], asked["Nodes"]) == (["a", "b", "c"], None)
    assert asked["Pod"]["metadata"]["uid"] == pod["metadata"]["uid"]
    assert not {"kind", "apiVersion"} & asked["Pod"].keys()
    assert extender.calls[1][1]["NodeNames"] == ["a", "c"]
    assert extender.calls[2][1] == {
        "PodName": "p",
        "PodNamespace": "default",
        "PodUID": pod["metadata"]["uid"],
        "Node": "c",
    }
    assert (await world.client.get(PODS, "p", "default")).metadata.annotations == {"by": "extender"}


async def test_a_pod_without_a_managed_resource_is_none_of_its_business(world, extender):
    await world.pod("plain", schedulerName="gpu-scheduler")
    await world.bound("plain")
    assert extender.calls == []


async def test_its_reasons_are_counted_beside_the_schedulers_own(world, extender):
    extender.failed = {"a": "2/2 no memory", "b": "2/2 no memory"}
    await gpu_pod(world, "filler", "4")
    assert await world.bound("filler") == "c"
    await gpu_pod(world, "p", "2")
    message = await world.event("p", "FailedScheduling")
    assert message.startswith("0/3 nodes are available: 1 Insufficient example.com/gpu, 2 2/2 no memory. preemption: ")


async def test_a_refused_bind_is_an_event_and_tried_again(world, extender):
    extender.bind_errors = ["the card is gone"]
    await gpu_pod(world, "p")
    assert await world.event("p", "FailedScheduling") == "the card is gone"
    assert await world.bound("p")


async def test_a_dead_extender_keeps_its_pods_waiting_and_no_others(world, extender):
    settings = ExtenderSettings(url_prefix="https://127.0.0.1:1/", filter_verb="filter", managed_resources=MANAGED)
    world.start(run_scheduler(world.client, "dead-scheduler", [settings]))
    await world.client.create(
        PODS.raw(),
        {
            "metadata": {"name": "waits"},
            "spec": {
                "schedulerName": "dead-scheduler",
                "containers": [{"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}],
            },
        },
        "default",
    )
    await world.pod("plain", schedulerName="dead-scheduler")
    assert await world.bound("plain")
    message = await world.event("waits", "FailedScheduling")
    assert message == 'Post "https://127.0.0.1:1/filter": dial tcp 127.0.0.1:1: connect: connection refused'


async def test_preemption_asks_it_and_evicts_what_it_leaves(world, extender):
    uids = {}
    for name in ("a", "b", "c"):
        extender.scores = {name: 10}
        pod = await gpu_pod(world, f"low-{name}", "4")
        assert await world.bound(f"low-{name}") == name
        uids[name] = pod["metadata"]["uid"]
    extender.victims = {"b": {"Pods": [{"UID": uids["b"]}], "NumPDBViolations": 0}}
    await gpu_pod(world, "urgent", "2", "system-node-critical")

    async def evicted():
        pods = {pod["metadata"]["name"]: pod for pod in await world.pods()}
        gone = {name for name in uids if pods[f"low-{name}"]["metadata"].get("deletionTimestamp")}
        return (gone, pods["urgent"]["status"].get("nominatedNodeName")) if gone else None

    assert await world.until(evicted) == ({"b"}, "b")
    asked = next(body for verb, body in extender.calls if verb == "preempt")
    assert asked["NodeNameToMetaVictims"] == {
        name: {"Pods": [{"UID": uid}], "NumPDBViolations": 0} for name, uid in uids.items()
    }
    await world.client.delete(PODS, "low-b", "default", grace_period_seconds=0)
    assert await world.bound("urgent") == "b"
