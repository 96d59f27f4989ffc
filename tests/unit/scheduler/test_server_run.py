"""The scheduler's process against the lab's API server: real sockets, real TLS, real admission call-outs."""

import asyncio
import base64
import socket
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import aiohttp.web
import msgspec
import pytest
from tests.unit.kube.servers import port_of_nobody
from tests.waiting import eventually

from purser.core.grant import signing
from purser.core.model import Device, NodeInventory
from purser.core.names import GRANT_KEY_SECRET, TLS_SECRET
from purser.kube.client import Client
from purser.kube.clock import SystemClock
from purser.kube.config import ClusterConfig
from purser.kube.errors import ApiError, ConfigError
from purser.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS, SECRETS, VALIDATING_WEBHOOKS
from purser.lab.apiserver import ApiServer
from purser.scheduler.certificates_keeper import CertificateKeeper, SecretStore
from purser.scheduler.keys import SigningKeyError
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.run import run
from purser.scheduler.settings import (
    LeaseTarget,
    SchedulerSettings,
    ServerSettings,
    ServiceTarget,
    UrlTarget,
    WebhookSettings,
)
from purser.scheduler.webhook.configurations import mutating_configuration, validating_configuration
from purser.scheduler.webhook.probe import PROBE_PERIOD_S, WebhookProbe
from purser.scheduler.webhook.registration import WebhookRegistration, differences, own_user

from .extender_world import Clock
from .reviews import container, pod

NAMESPACE = "purser-system"
SETTINGS = SchedulerSettings(
    server=ServerSettings("127.0.0.1", 0, extender_port=0, metrics_address="127.0.0.1", metrics_port=0),
    webhook=WebhookSettings(UrlTarget("127.0.0.1")),
)
DEADLINE_S = 60


class World:
    def __init__(self, api, config, client):
        self.api = api
        self.config = config
        self.client = client
        self.seen = []
        self.writes = []
        self.broken = set()
        api.intercept(self._look)

    async def _look(self, request):
        self.seen.append(request.path)
        if request.method != "GET":
            self.writes.append((request.method, request.path))
        if any(part in request.path for part in self.broken):
            return aiohttp.web.json_response({"kind": "Status", "code": 503, "message": "away"}, status=503)
        return None

    @asynccontextmanager
    async def scheduler(self, settings=SETTINGS):
        """A running scheduler; its addresses."""
        stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()

        async def bring(addresses):
            if settings.webhook:
                await self.bring_webhooks(settings.webhook, settings.webhook.target_at(addresses.webhook))

        running = asyncio.create_task(run(settings, self.config, stop, ready.set_result, bring))
        try:
            await asyncio.wait({running, ready}, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            assert ready.done(), "the scheduler did not become ready"
            yield ready.result()
        finally:
            stop.set()
            await asyncio.wait_for(running, DEADLINE_S)

    async def bring_webhooks(self, settings, target):
        """What the chart does."""
        await self.client.apply(MUTATING_WEBHOOKS, mutating_configuration(settings, target), force=True)
        await self.client.apply(VALIDATING_WEBHOOKS, validating_configuration(settings, target), force=True)

    async def create_pod(self, name, *containers, **fields):
        body = pod(*containers, **fields)
        body["metadata"] |= {"name": name, "namespace": "default"}
        return await self.client.create(PODS, body)

    async def post(self, port, verb, body):
        url = f"https://127.0.0.1:{port}/{verb}"
        connector = aiohttp.TCPConnector(ssl=False)
        async with aiohttp.ClientSession(connector=connector) as session, session.post(url, json=body) as response:
            assert response.status == 200, await response.text()
            return await response.json()

    async def raw_pod(self, name):
        return await self.client.get(PODS.raw(), name, "default")


@pytest.fixture
async def world():
    async with ApiServer() as api:
        config = ClusterConfig.insecure(api.url, api.admin_token)
        async with Client(config) as client:
            await client.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
            inventory = NodeInventory("n1", tuple(Device(f"GPU-{i}", i, "A100", 40960, slots=10) for i in range(2)))
            annotations = {"purser.dev/inventory": msgspec.json.encode(inventory).decode()}
            await client.create(NODES, {"metadata": {"name": "n1", "annotations": annotations}})
            yield World(api, config, client)


async def test_a_pod_is_mutated_placed_and_bound_with_a_grant_that_nobody_can_change(world):
    async with world.scheduler() as addresses:
        await world.create_pod("p", container("c", limits={"nvidia.com/gpumem": "1024"}))
        body = await world.raw_pod("p")
        assert body["spec"]["schedulerName"] == "purser-scheduler"
        assert body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
        fits = await world.post(addresses.extender, "filter", {"Pod": body, "NodeNames": ["n1", "n2"]})
        assert fits["NodeNames"] == ["n1"]
        binding = {"PodName": "p", "PodNamespace": "default", "PodUID": body["metadata"]["uid"], "Node": "n1"}
        assert await world.post(addresses.extender, "bind", binding) == {"Error": ""}
        bound = await world.client.get(PODS, "p", "default")
        grant = signing.read(bound.metadata.annotations)
        assert (grant.node, grant.containers[0].shares[0].memory_mib) == ("n1", 1024)
        with pytest.raises(ApiError, match="must not be changed"):
            await world.client.patch_merge(
                PODS, "p", {"metadata": {"annotations": {"purser.dev/grant": "{}"}}}, "default"
            )


async def test_refusals_and_warnings_come_through_the_api_server(world):
    async with world.scheduler():
        with pytest.raises(ApiError, match="use 16384"):
            await world.create_pod("p", container("c", limits={"nvidia.com/gpumem": "16Gi"}))
        with pytest.raises(ApiError, match="only Purser's scheduler may write"):
            await world.create_pod("p", container("c"), annotations={"purser.dev/grant": "{}"})
        plain = await world.create_pod("plain", container("c"))
        assert plain.spec.scheduler_name != "purser-scheduler"


async def test_a_pod_labelled_so_is_not_touched(world):
    async with world.scheduler():
        body = pod(container("c", limits={"nvidia.com/gpumem": "16Gi"}))
        body["metadata"] |= {"name": "p", "namespace": "default", "labels": {"purser.dev/webhook": "ignore"}}
        created = await world.client.create(PODS, body)
        assert created.spec.scheduler_name != "purser-scheduler"


async def test_a_restart_keeps_ca_and_keys_and_writes_only_the_new_port(world):
    async with world.scheduler():
        before = await world.client.get(MUTATING_WEBHOOKS, "purser-mutating")
        key = await world.client.get(SECRETS, GRANT_KEY_SECRET, NAMESPACE)
        world.writes.clear()
    async with world.scheduler():
        after = await world.client.get(MUTATING_WEBHOOKS, "purser-mutating")
        old, new = (present["webhooks"][0]["clientConfig"] for present in (before, after))
        assert new["caBundle"] == old["caBundle"] != ""
        assert new["url"] != old["url"]
        assert await world.client.get(SECRETS, GRANT_KEY_SECRET, NAMESPACE) == key
        assert {path.rsplit("/", 1)[1] for _, path in world.writes} <= {
            "purser-mutating",
            "purser-validating",
            "selfsubjectreviews",
        }


async def test_a_probe_finds_out_whether_the_webhook_is_called_and_changes_nothing(world):
    for name in ("p", "bound"):
        await world.create_pod(name, container("c"))
    await world.client.bind("default", "bound", (await world.raw_pod("bound"))["metadata"]["uid"], "n1", {})
    pods = {name: await world.client.get(PODS, name, "default") for name in ("p", "bound")}

    async def is_called():
        found = {await WebhookProbe(world.client, SystemClock()).is_called(each) for each in pods.values()}
        assert {name: await world.client.get(PODS, name, "default") for name in pods} == pods
        return found

    assert await is_called() == {False}, "there is no configuration"
    async with world.scheduler():
        assert await is_called() == {True}
    assert await is_called() == {False}, "nobody answers"


@pytest.mark.parametrize(
    ("status", "reason", "is_called"),
    [
        (403, "Forbidden", True),
        (400, "BadRequest", True),
        (409, "Conflict", False),
        (500, "InternalError", False),
    ],
    ids=["a policy of others", "a webhook without dry runs", "a bound pod", "a webhook that is away"],
)
async def test_a_probe_that_others_end_keeps_no_pod_waiting_for_good(world, status, reason, is_called):
    async def refuse(request):
        if request.path.endswith("/binding"):
            body = {"kind": "Status", "code": status, "reason": reason, "message": "no"}
            return aiohttp.web.json_response(body, status=status)
        return None

    await world.create_pod("p", container("c"))
    world.api.intercept(refuse)
    pod = await world.client.get(PODS, "p", "default")
    assert await WebhookProbe(world.client, SystemClock()).is_called(pod) is is_called


async def test_pods_of_one_namespace_share_a_probe(world):
    await world.create_pod("p", container("c"))
    pod, clock = await world.client.get(PODS, "p", "default"), Clock()
    probe = WebhookProbe(world.client, clock)
    for probes in (1, 2):
        assert not await probe.is_called(pod)
        assert not await probe.is_called(pod)
        assert len([path for path in world.seen if path.endswith("/binding")]) == probes
        clock.ahead_s += PROBE_PERIOD_S


async def test_two_replicas_serve_with_one_ca(world):
    async with world.scheduler(), world.scheduler():
        await world.create_pod("p", container("c", limits={"nvidia.com/gpu": "1"}))
        assert (await world.raw_pod("p"))["spec"]["schedulerName"] == "purser-scheduler"


async def test_readiness_waits_for_the_api_server_and_comes_by_itself(world):
    world.broken.add("/api/v1/nodes")
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    with port_of_nobody() as port:
        settings = replace(SETTINGS, server=replace(SETTINGS.server, metrics_port=port))
        running = asyncio.create_task(run(settings, world.config, stop, ready.set_result))
        async with asyncio.timeout(DEADLINE_S), aiohttp.ClientSession() as session:
            assert await readiness(session, port) == (503, "starting\n")
            world.broken.clear()
            await ready
            assert await readiness(session, port) == (200, "ok\n")
            stop.set()
            await running


async def readiness(session, port):
    while True:
        try:
            async with session.get(f"http://127.0.0.1:{port}/readyz") as response:
                return response.status, await response.text()
        except aiohttp.ClientConnectorError:
            await asyncio.sleep(0.01)


async def test_stopping_while_the_api_server_is_away_is_clean(world):
    world.broken.add("secrets")
    stop = asyncio.Event()
    running = asyncio.create_task(run(SETTINGS, world.config, stop))
    async with asyncio.timeout(DEADLINE_S):
        await eventually(lambda: any("secrets" in path for path in world.seen))
        stop.set()
        await running


async def test_what_cannot_be_healed_by_waiting_ends_the_process_with_its_own_error(world):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for server in (
            replace(SETTINGS.server, **{each: port}) for each in ("webhook_port", "extender_port", "metrics_port")
        ):
            with pytest.raises(OSError, match="address already in use"):
                await run(replace(SETTINGS, server=server), world.config, asyncio.Event())


async def test_a_secret_without_a_key_ends_the_process_with_its_own_error(world):
    body = {"metadata": {"name": GRANT_KEY_SECRET, "namespace": NAMESPACE}, "data": {"key.pem": "bm8="}}
    await world.client.create(SECRETS, body)
    with pytest.raises(SigningKeyError, match="delete the Secret"):
        await run(SETTINGS, world.config, asyncio.Event())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"extender_address": "0.0.0.0"}, "extender-client-ca-file"),
        ({"extender_address": "::"}, "could bind pods through the extender"),
        ({"extender_address": "node.example"}, "extender-client-ca-file"),
        ({"extender_address": "127.0.0.1.example"}, "extender-client-ca-file"),
        ({"webhook_client_names": ("kube-apiserver",)}, "set both"),
        ({"webhook_client_ca_file": Path("/nowhere")}, "cannot load the client CA file /nowhere: "),
        ({"extender_client_ca_file": Path("/dev/null")}, "cannot load the client CA file /dev/null: "),
    ],
    ids=str,
)
async def test_a_process_that_would_answer_anybody_does_not_start(world, changes, says):
    with pytest.raises(ConfigError, match=says):
        await run(replace(SETTINGS, server=replace(SETTINGS.server, **changes)), world.config, asyncio.Event())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "localhost"])
async def test_on_loopback_nothing_more_is_needed(world, address):
    async with world.scheduler(replace(SETTINGS, server=replace(SETTINGS.server, extender_address=address))):
        pass


async def test_without_a_webhook_nothing_is_registered_and_the_paths_are_served(world):
    async with world.scheduler(replace(SETTINGS, webhook=None)) as addresses:
        assert (await world.client.list(MUTATING_WEBHOOKS)).items == []
        answer = await world.post(
            addresses.extender,
            "filter",
            {"Pod": pod(container("c"), schedulerName="purser-scheduler"), "NodeNames": ["a"]},
        )
        assert answer["NodeNames"] == ["a"]


async def test_a_replica_whose_kube_scheduler_does_not_lead_does_not_bind(world):
    settings = replace(SETTINGS, follow_lease=LeaseTarget("kube-system", "kube-scheduler"), host_name="here")
    async with world.scheduler(settings) as addresses:
        await world.create_pod("p", container("c", limits={"nvidia.com/gpu": "1"}))
        body = await world.raw_pod("p")
        binding = {"PodName": "p", "PodNamespace": "default", "PodUID": body["metadata"]["uid"], "Node": "n1"}
        assert "not active" in (await world.post(addresses.extender, "bind", binding))["Error"]


TARGET = ServiceTarget(NAMESPACE, "purser-webhook")
IN_CLUSTER = WebhookSettings(TARGET)


def state_of(metrics, name):
    [found] = [
        sample.labels["state"]
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "purser_scheduler_webhook_configuration"
        and sample.labels["configuration"] == name
        and sample.value
    ]
    return found


async def test_the_ca_is_entered_once_and_nothing_else_is_touched(world):
    await world.bring_webhooks(IN_CLUSTER, TARGET)
    before = await world.client.get(VALIDATING_WEBHOOKS, "purser-validating")
    registration = WebhookRegistration(world.client, IN_CLUSTER, TARGET, lambda: b"CA")
    await registration.register()
    after = await world.client.get(VALIDATING_WEBHOOKS, "purser-validating")
    for webhook in after["webhooks"]:
        assert webhook["clientConfig"].pop("caBundle") == base64.b64encode(b"CA").decode()
    for webhook in before["webhooks"]:
        webhook["clientConfig"].pop("caBundle", None)
    assert after["webhooks"] == before["webhooks"]
    assert registration.problems == {}
    world.writes.clear()
    await registration.register()
    assert world.writes == []


async def test_what_a_user_changed_is_reported_and_left_as_it_is(world):
    await world.bring_webhooks(IN_CLUSTER, TARGET)
    raw = await world.client.get(VALIDATING_WEBHOOKS, "purser-validating")
    theirs = {"name": "not.purser.example.org", "clientConfig": {"url": "https://example.org/"}}
    first = raw["webhooks"][0] | {"failurePolicy": "Fail"}
    webhooks = [raw["webhooks"][0] | theirs, *raw["webhooks"][1:], first]
    await world.client.patch_merge(VALIDATING_WEBHOOKS, "purser-validating", {"webhooks": webhooks})
    metrics = SchedulerMetrics()
    registration = WebhookRegistration(world.client, IN_CLUSTER, TARGET, lambda: b"CA", metrics)
    await registration.register()
    assert "failurePolicy differs from the expected value" in registration.problems["purser-validating"]
    assert (state_of(metrics, "purser-validating"), state_of(metrics, "purser-mutating")) == ("different", "right")
    present = {
        each["name"]: each for each in (await world.client.get(VALIDATING_WEBHOOKS, "purser-validating"))["webhooks"]
    }
    assert present[first["name"]]["failurePolicy"] == "Fail"
    assert present[first["name"]]["clientConfig"]["caBundle"]
    assert "caBundle" not in present[theirs["name"]]["clientConfig"]


@pytest.mark.parametrize(("left_out", "state"), [(NAMESPACE, "right"), ("team", "different")])
async def test_a_configuration_with_a_url_may_leave_out_pursers_own_namespace_and_no_other(world, left_out, state):
    """The chart's do, whoever sets their address afterwards."""
    target, metrics = UrlTarget("127.0.0.1", 8443), SchedulerMetrics()
    settings = WebhookSettings(target)
    await world.bring_webhooks(settings, target)
    for resource, name in ((MUTATING_WEBHOOKS, "purser-mutating"), (VALIDATING_WEBHOOKS, "purser-validating")):
        webhooks = (await world.client.get(resource, name))["webhooks"]
        for each in webhooks:
            expressions = each["namespaceSelector"].setdefault("matchExpressions", [])
            expressions.append({"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [left_out]})
        await world.client.patch_merge(resource, name, {"webhooks": webhooks})
    registration = WebhookRegistration(world.client, settings, target, lambda: b"CA", metrics, own_namespace=NAMESPACE)
    await registration.register()
    assert {state_of(metrics, name) for name in ("purser-mutating", "purser-validating")} == {state}


async def test_a_configuration_that_is_missing_is_reported_and_found_once_it_is_there(world):
    metrics = SchedulerMetrics()
    registration = WebhookRegistration(world.client, IN_CLUSTER, TARGET, lambda: b"CA", metrics)
    await registration.register()
    assert "purser webhook manifest" in registration.problems["purser-mutating"]
    assert state_of(metrics, "purser-mutating") == "missing"
    assert (await world.client.list(MUTATING_WEBHOOKS)).items == []
    await world.bring_webhooks(IN_CLUSTER, TARGET)
    await registration.register()
    assert registration.problems == {}
    assert state_of(metrics, "purser-mutating") == "right"


async def test_without_webhook_configurations_the_scheduler_becomes_ready_and_places_pods(world):
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(run(SETTINGS, world.config, stop, ready.set_result))
    async with asyncio.timeout(DEADLINE_S):
        addresses = await ready
        body = pod(container("c", limits={"nvidia.com/gpumem": "1024"}), schedulerName="purser-scheduler")
        answer = await world.post(addresses.extender, "filter", {"Pod": body, "NodeNames": ["n1"]})
        assert answer["NodeNames"] == ["n1"]
        stop.set()
        await running
    assert (await world.client.list(MUTATING_WEBHOOKS)).items == []


async def test_the_cluster_is_read_as_it_was_left_while_the_servers_are_being_made(world):
    lists, is_read = 0, asyncio.Event()

    async def ask(request):
        nonlocal lists
        if request.path == "/api/v1/pods" and "watch" not in request.query:
            lists += 1
            if lists == 3:  # the first two come in any case
                is_read.set()
        if request.path.endswith(f"/secrets/{TLS_SECRET}"):
            async with asyncio.timeout(DEADLINE_S):
                await is_read.wait()

    world.api.intercept(ask)
    async with world.scheduler():
        assert is_read.is_set()


async def test_kube_scheduler_is_told_of_pods_that_wait_once_it_can_ask_about_them(world):
    """It would ask at once, find nobody, and let the pod rest: for a minute and more before Kubernetes 1.22."""
    await world.create_pod("late", container("c", limits={"nvidia.com/gpu": "1"}), schedulerName="purser-scheduler")
    told = asyncio.get_running_loop().create_future()
    with port_of_nobody() as port:

        async def ask(request):
            if request.path.endswith(f"/secrets/{TLS_SECRET}"):  # no server before it has its certificate
                await asyncio.wait({told}, timeout=0.5)
            if request.method == "PATCH" and request.path.endswith("/pods/late/status") and not told.done():
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    told.set_result("it answers")
                except OSError as error:
                    told.set_result(error)

        world.api.intercept(ask)
        settings = replace(SETTINGS, server=replace(SETTINGS.server, extender_port=port))
        async with asyncio.timeout(DEADLINE_S), world.scheduler(settings):
            assert await told == "it answers"


async def test_a_new_ca_is_entered_at_once(world):
    bundle = [b"old"]
    target = UrlTarget("::1", 8443)
    await world.bring_webhooks(WebhookSettings(target), target)
    registration = WebhookRegistration(world.client, WebhookSettings(target), target, lambda: bundle[0])
    running = asyncio.create_task(registration.run())
    async with asyncio.timeout(DEADLINE_S):
        await registration.done()
        bundle[0] = b"new"
        registration.refresh()
        while True:
            raw = await world.client.get(VALIDATING_WEBHOOKS, "purser-validating")
            present = raw["webhooks"][0]["clientConfig"]
            if present["caBundle"] == base64.b64encode(b"new").decode():
                break
            await asyncio.sleep(0.01)
    running.cancel()
    assert present["url"] == "https://[::1]:8443/validate"


@pytest.mark.parametrize(
    ("present", "wanted", "told"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, []),
        ({"a": 1}, {"a": 1, "b": 2}, ["b is missing"]),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"x": 1}]}, []),
        ({"a": [{"x": 1}, {"x": 2}]}, {"a": [{"x": 1}]}, ["a differs from the expected value"]),
        ({"a": {"b": [1]}}, {"a": {"b": [2]}}, ["a.b[0] differs from the expected value"]),
        ({}, {"a": {}}, []),
        ({"s": {"matchLabels": {"x": "y"}}}, {"s": {}}, ["s differs from the expected value"]),
        ({"w": {"name": "a", "matchConditions": [1]}}, {"w": {"name": "a"}}, ["w differs from the expected value"]),
    ],
)
def test_what_differs_from_a_wanted_object_is_reported_by_its_path(present, wanted, told):
    assert list(differences(present, wanted)) == told


async def test_certificates_survive_in_a_secret_and_a_broken_secret_is_replaced(world):
    names = ["127.0.0.1"]
    first = CertificateKeeper(SecretStore(world.client, NAMESPACE), names)
    await first.refresh()
    second = CertificateKeeper(SecretStore(world.client, NAMESPACE), names)
    await second.refresh()
    assert second.ca_bundle == first.ca_bundle
    for broken in ("bm8=", "e30="):
        patch = {"data": {"material.json": broken}}
        await world.client.patch_merge(SECRETS, TLS_SECRET, patch, NAMESPACE)
        await second.refresh()
        assert second.ca_bundle != first.ca_bundle
        assert second.is_valid


async def test_replicas_that_start_at_once_agree_on_one_secret(world):
    keepers = [CertificateKeeper(SecretStore(world.client, NAMESPACE), ["127.0.0.1"]) for _ in range(4)]
    await asyncio.gather(*(keeper.refresh() for keeper in keepers))
    assert len({keeper.ca_bundle for keeper in keepers}) == 1


async def test_who_this_process_is_is_asked_of_the_api_server(world):
    assert await own_user(world.client) == ""  # the lab's API server is older than the question

    async def answer(request):
        if request.path.endswith("/selfsubjectreviews"):
            body = {"metadata": {}, "status": {"userInfo": {"username": "system:serviceaccount:a:b"}}}
            return aiohttp.web.json_response(body, status=201)
        return None

    world.api.intercept(answer)
    assert await own_user(world.client) == "system:serviceaccount:a:b"
