import asyncio
import io
import json
import ssl
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.texts import any_text
from tests.tiers import examples

from purser.scheduler.certificates import make_authority
from purser.scheduler.certificates_keeper import CertificateKeeper, MemoryStore
from purser.scheduler.extender_api import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    MetaPod,
    MetaVictims,
)
from purser.scheduler.leadership_gate import NotLeadingError
from purser.scheduler.metrics import SchedulerMetrics
from purser.scheduler.server import ClientAuth, extender_app, trust_clients, webhook_app
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.validation import Validation
from purser.telemetry import listening

from .reviews import container, pod, review

EVERYBODY = ClientAuth()
WEBHOOK, EXTENDER = ("mutate", "validate"), ("filter", "prioritize", "bind", "preempt")
POD = {"metadata": {"name": "p", "namespace": "team", "creationTimestamp": None}, "spec": {"containers": [container()]}}


class PlainExtender:
    """Even nodes fit."""

    def __init__(self):
        self.asked = []

    async def filter(self, args):
        self.asked.append(args)
        if args.pod.metadata.name == "broken":
            raise RuntimeError("a bug")
        if args.pod.metadata.name == "refused":
            return ExtenderFilterResult(error="not today")
        names = args.node_names
        return ExtenderFilterResult(names[::2], dict.fromkeys(names[1::2], "odd"), {"gone": "no inventory"})

    async def prioritize(self, args):
        return [HostPriority(name, index % 11) for index, name in enumerate(args.node_names)]

    async def bind(self, args):
        self.asked.append(args)
        return ExtenderBindingResult("" if args.node == "n1" else "no such node")

    async def preempt(self, args):
        return ExtenderPreemptionResult({"n1": MetaVictims((MetaPod("u-9"),), 1)})


class Served:
    """Both servers, and a client of both."""

    def __init__(self, session, ports, extender, metrics):
        self.session = session
        self.ports = ports
        self.extender = extender
        self.metrics = metrics

    def url(self, verb):
        return f"https://127.0.0.1:{self.ports[0 if verb in WEBHOOK else 1]}/{verb}"

    async def post(self, verb, body, **kwargs):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.url(verb), data=io.BytesIO(data), **kwargs) as response:
            return response.status, await response.read()

    async def ask(self, verb, body):
        status, answer = await self.post(verb, body)
        assert status == 200, answer
        return json.loads(answer)


@asynccontextmanager
async def serving(auth=EVERYBODY, prepare=lambda context: None, client=lambda context: None):
    keeper = CertificateKeeper(MemoryStore(), ["127.0.0.1"])
    await keeper.refresh()
    extender, metrics = PlainExtender(), SchedulerMetrics()
    apps = webhook_app(Mutation(), Validation(), metrics, auth), extender_app(extender, metrics, auth)
    trust = ssl.create_default_context(cadata=keeper.ca_bundle.decode())
    client(trust)
    async with AsyncExitStack() as stack:
        ports = []
        for app in apps:
            context = keeper.new_context()
            prepare(context)
            ports.append(await stack.enter_async_context(listening(app, "127.0.0.1", 0, context)))
        connector = aiohttp.TCPConnector(ssl=trust)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Served(session, ports, extender, metrics)


@pytest.fixture
async def served():
    async with serving() as it:
        yield it


async def test_filter_speaks_kube_schedulers_words(served):
    body = {"Pod": POD, "Nodes": None, "NodeNames": ["a", "b", "c"]}
    assert await served.ask("filter", body) == {
        "NodeNames": ["a", "c"],
        "FailedNodes": {"b": "odd"},
        "FailedAndUnresolvableNodes": {"gone": "no inventory"},
    }
    assert served.extender.asked[0].pod.metadata.namespace == "team"


async def test_prioritize_bind_and_preempt_speak_them_too(served):
    assert await served.ask("prioritize", {"Pod": POD, "NodeNames": ["a", "b"]}) == [
        {"Host": "a", "Score": 0},
        {"Host": "b", "Score": 1},
    ]
    binding = {"PodName": "p", "PodNamespace": "team", "PodUID": "u-1", "Node": "n1"}
    assert await served.ask("bind", binding) == {"Error": ""}
    assert await served.ask("bind", {**binding, "Node": "n2"}) == {"Error": "no such node"}
    assert served.extender.asked[0].pod_uid == "u-1"
    victims = {"n1": {"Pods": [{"UID": "u-9"}], "NumPDBViolations": 0}, "n2": {"Pods": None, "NumPDBViolations": 0}}
    answer = await served.ask("preempt", {"Pod": POD, "NodeNameToVictims": None, "NodeNameToMetaVictims": victims})
    assert answer == {"NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "u-9"}], "NumPDBViolations": 1}}}


async def test_the_names_of_very_many_nodes_are_taken(served):
    names = [f"node-{i:05}.of-a-cluster-with-quite-long-names.example.internal" for i in range(20_000)]
    answer = await served.ask("filter", {"Pod": POD, "NodeNames": names})
    assert answer["NodeNames"] == names[::2]


@pytest.mark.parametrize(
    ("verb", "body", "says"),
    [
        ("mutate", b"not json", "not an AdmissionReview"),
        ("validate", b"[" * 50_000, "not an AdmissionReview"),
        ("mutate", review({"spec": 5}), "the pod in the AdmissionReview cannot be read"),
        ("validate", review(pod(container()), operation="UPDATE"), "no oldObject"),
        ("validate", review({"metadata": {"annotations": 5}}, subresource="binding"), "the Binding"),
        ("filter", {"Pod": POD, "Nodes": {"items": []}}, "nodeCacheCapable"),
        (
            "prioritize",
            {"Pod": POD, "NodeNames": [1]},
            "NodeNames cannot be read: Expected `str`, got `int` - at `$[0]`",
        ),
        ("filter", {"NodeNames": []}, "Pod is missing"),
        ("filter", {"Pod": {"spec": []}, "NodeNames": []}, "Pod cannot be read"),
        ("bind", {"PodName": "p"}, "are all required"),
        ("preempt", {"Pod": POD, "NodeNameToVictims": {}}, "nodeCacheCapable"),
        (
            "preempt",
            {"Pod": {"metadata": {"name": "p"}}, "NodeNameToMetaVictims": {}},
            "metadata.name are both required",
        ),
    ],
    ids=str,
)
async def test_bad_input_is_answered_with_a_sentence(served, verb, body, says):
    status, answer = await served.post(verb, body)
    assert status == 400
    assert says in answer.decode()


async def test_a_bug_is_answered_and_does_not_end_the_server(served):
    status, answer = await served.post("filter", {"Pod": {"metadata": {"name": "broken"}}, "NodeNames": []})
    assert (status, b"see the log" in answer) == (500, True)
    assert await served.ask("filter", {"Pod": POD, "NodeNames": []}) == {
        "NodeNames": [],
        "FailedAndUnresolvableNodes": {"gone": "no inventory"},
    }


async def test_a_replica_that_may_not_decide_says_so(served):
    async def fenced(args):
        raise NotLeadingError("not active")

    served.extender.preempt = fenced
    status, answer = await served.post("preempt", {"Pod": POD, "NodeNameToMetaVictims": {}})
    assert (status, answer) == (503, b"not active\n")


@pytest.mark.parametrize(("verb", "mib"), [("mutate", 9), ("filter", 33)])
async def test_a_body_beyond_all_bounds_is_refused(served, verb, mib):
    status, answer = await served.post(verb, b" " * (mib * 1024 * 1024))
    assert (status, b"bytes" in answer) == (413, True)


async def test_each_server_has_its_own_paths_and_no_others(served):
    webhook, extender = (f"https://127.0.0.1:{port}" for port in served.ports)
    for verb in (*EXTENDER, "metrics", "healthz", "readyz", "nothing"):
        for ask in (served.session.post, served.session.get):
            async with ask(f"{webhook}/{verb}") as response:
                assert response.status == 404, verb
    for verb in (*WEBHOOK, "metrics"):
        async with served.session.post(f"{extender}/{verb}") as response:
            assert response.status == 404, verb
    async with served.session.get(f"{webhook}/mutate") as response:
        assert response.status == 405


async def test_requests_and_decisions_are_counted(served):
    await served.ask("filter", {"Pod": POD, "NodeNames": []})
    await served.ask("filter", {"Pod": {"metadata": {"name": "refused"}}, "NodeNames": []})
    await served.post("filter", {"Pod": {"metadata": {"name": "broken"}}, "NodeNames": []})
    await served.post("filter", b"")
    await served.ask("mutate", review(pod(container(limits={"nvidia.com/gpu": 1}))))
    await served.ask("validate", review(pod(container(limits={"nvidia.com/gpu": 1}))))
    text = served.metrics.exposition().decode()
    for line in (
        'purser_scheduler_request_seconds_count{outcome="ok",verb="filter"} 1.0',
        'purser_scheduler_request_seconds_count{outcome="error",verb="filter"} 1.0',
        'purser_scheduler_request_seconds_count{outcome="failed",verb="filter"} 1.0',
        'purser_scheduler_request_seconds_count{outcome="bad-request",verb="filter"} 1.0',
        'purser_scheduler_webhook_decisions_total{decision="patched",reason="admitted",webhook="mutate"} 1.0',
        'purser_scheduler_webhook_decisions_total{decision="denied",reason="not-mutated",webhook="validate"} 1.0',
        "purser_scheduler_build_info{",
    ):
        assert line in text


def client_certificate(authority, now, common_name="system:kube-scheduler"):
    """What a cluster's own CA gives kube-scheduler; Purser itself only makes certificates for servers."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, None)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    certificate = (
        x509.CertificateBuilder(issuer.subject, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem) + private


@pytest.mark.parametrize(
    ("common_name", "names", "status"),
    [
        ("kube-apiserver", (), 200),
        (None, (), 401),
        ("kube-apiserver", ("kube-apiserver",), 200),
        ("pod", ("a", "b"), 403),
    ],
)
async def test_with_a_client_ca_only_its_clients_are_answered(tmp_path, common_name, names, status):
    now = datetime.now(UTC)
    authority = make_authority(now)
    ca, client = tmp_path / "ca.pem", tmp_path / "client.pem"
    ca.write_bytes(authority.certificate)

    def present(context):
        if common_name:
            client.write_bytes(client_certificate(authority, now, common_name))
            context.load_cert_chain(client)

    auth = ClientAuth(certificate=True, names=frozenset(names))
    async with serving(auth, lambda context: trust_clients(context, ca), present) as served:
        for verb, body in (("filter", {"Pod": POD, "NodeNames": []}), ("mutate", review(pod(container())))):
            assert (await served.post(verb, body))[0] == status


async def test_a_client_with_a_certificate_by_nobody_known_is_turned_away(tmp_path):
    now = datetime.now(UTC)
    ca, client = tmp_path / "ca.pem", tmp_path / "client.pem"
    ca.write_bytes(make_authority(now).certificate)
    client.write_bytes(client_certificate(make_authority(now), now))
    auth = ClientAuth(certificate=True)
    async with serving(auth, lambda context: trust_clients(context, ca), lambda c: c.load_cert_chain(client)) as served:
        with pytest.raises(aiohttp.ClientError):
            await served.post("filter", {"Pod": POD, "NodeNames": []})


WORDS = [
    "apiVersion",
    "kind",
    "request",
    "uid",
    "object",
    "oldObject",
    "operation",
    "resource",
    "spec",
    "containers",
    "metadata",
    "annotations",
    "resources",
    "limits",
    "name",
    "Pod",
    "NodeNames",
    "PodName",
    "Node",
    "NodeNameToMetaVictims",
    "Pods",
    "nvidia.com/gpu",
]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | any_text(max_size=10),
    lambda children: (
        st.lists(children, max_size=3)
        | st.dictionaries(
            st.sampled_from(WORDS) | any_text(max_size=5),
            children,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@st.composite
def bodies(draw):
    kind = draw(st.sampled_from(["bytes", "json", "review", "args"]))
    if kind == "bytes":
        return draw(st.binary(max_size=100))
    if kind == "review":
        operation = draw(st.sampled_from(["CREATE", "UPDATE", "DELETE", ""]))
        sub = draw(st.sampled_from(["", "binding", "status"]))
        obj = draw(
            json_values | st.builds(lambda spec, meta: {"spec": spec, "metadata": meta}, json_values, json_values)
        )
        return json.dumps(review(obj, old=draw(json_values), operation=operation, subresource=sub)).encode()
    if kind == "args":
        return json.dumps({"Pod": draw(json_values), "NodeNames": draw(json_values)}).encode()
    return json.dumps(draw(json_values)).encode()


@examples(10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.sampled_from(WEBHOOK + EXTENDER), bodies()), min_size=5, max_size=20))
def test_no_body_brings_the_server_down(requests):
    async def scenario():
        async with serving() as served:
            for verb, body in requests:
                status, answer = await served.post(verb, body)
                assert status in (200, 400), (verb, body, answer)

    asyncio.run(scenario())
