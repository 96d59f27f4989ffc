"""The read API behind the TokenReview and SubjectAccessReview of a real API server, with the chart's own RBAC."""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from purser.scheduler.read_api.access import READ_AUDIENCE, STATE_PATH, VERDICT_TTL_S
from tests.scenarios.pods import share, whole

from .kubernetes import RealCluster, busybox_pod
from .purser_processes import LOOPBACK, PURSER, Purser

NAMESPACE = "readers"
OTHER = "read-by-nobody"
PART = f"/v1/namespaces/{NAMESPACE}/state"


class Readers:
    """Service accounts and their tokens, and what is answered to them."""

    def __init__(self, purser: Purser, folder: Path) -> None:
        self.cluster, self._folder = purser.cluster, folder
        self.url = f"https://{LOOPBACK}:{purser.read_api_port}"
        self.ca_file = folder / "ca.crt"
        webhooks = self.cluster.get("mutatingwebhookconfigurations", "purser-mutating")["webhooks"]
        self.ca_file.write_bytes(base64.b64decode(webhooks[0]["clientConfig"]["caBundle"]))

    def account(self, name: str, role: str = "") -> str:
        """A service account, bound to a ClusterRole where one is named; its token."""
        self.cluster.kubectl("create", "serviceaccount", name, f"-n{NAMESPACE}")
        if role:
            whose = f"--serviceaccount={NAMESPACE}:{name}"
            self.cluster.kubectl("create", "clusterrolebinding", name, f"--clusterrole={role}", whose)
        return self.token(name)

    def token(self, name: str, *options: str) -> str:
        return self.cluster.kubectl("create", "token", name, f"-n{NAMESPACE}", *options).strip()

    def get(self, token: str, path: str = STATE_PATH) -> tuple[int, str]:
        """Status and text. curl, for it knows nothing of Purser."""
        header = ("-H", f"Authorization: Bearer {token}") if token else ()
        command = ["curl", "--silent", "--cacert", str(self.ca_file), "--write-out", "\n%{http_code}", *header]
        done = subprocess.run([*command, self.url + path], capture_output=True, text=True, timeout=60, check=True)
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def purser(self, token: str, *words: str) -> subprocess.CompletedProcess[str]:
        """A command that asks with this token."""
        file = self._folder / "token"
        file.write_text(token)
        trusted = ("--token-file", str(file), "--certificate-authority", str(self.ca_file))
        command = [str(PURSER), *words, "--scheduler", self.url, *trusted]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    def until(self, status: int, token: str) -> None:
        """Until that is the answer: verdicts are remembered for some seconds, no longer."""
        what = f"the answer is {status}"
        self.cluster.wait_until(what, lambda: self.get(token)[0] == status, VERDICT_TTL_S + 10)


@pytest.fixture(scope="module")
def readers(real_cluster: RealCluster, purser: Purser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    real_cluster.create_namespace(NAMESPACE)
    real_cluster.create_namespace(OTHER)
    yield Readers(purser, tmp_path_factory.mktemp("readers"))
    real_cluster.delete("clusterrolebindings", "viewer", "leaving", "other", "gone")
    real_cluster.delete("namespace", NAMESPACE, OTHER)


@pytest.fixture(scope="module")
def viewer(readers: Readers) -> str:
    """The token of one who may read."""
    return readers.account("viewer", "purser-view")


def test_those_bound_to_the_charts_role_may_read_and_others_may_not(readers: Readers, viewer: str) -> None:
    status, text = readers.get(viewer)
    assert (status, json.loads(text)["api_version"]) == (200, "v1")
    assert readers.get(viewer, "/v1/other")[0] == 404
    nobody = readers.account("nobody")
    status, text = readers.get(nobody)
    assert status == 403
    assert f'user "system:serviceaccount:{NAMESPACE}:nobody" is not allowed to get {STATE_PATH}' in text
    # A right to the objects that it tells of is none to this path.
    assert readers.get(readers.account("other", "view"))[0] == 403


def test_what_is_no_valid_token_is_nobodys(readers: Readers, viewer: str) -> None:
    header, claims, signature = viewer.split(".")
    forged = json.loads(base64.urlsafe_b64decode(f"{claims}=="))
    forged["sub"] = "system:serviceaccount:kube-system:clusterrole-aggregation-controller"
    tokens = {
        "none": "",
        "garbage": "no-token",
        "three parts": "a.b.c",
        "another subject, signed for viewer": ".".join((header, _part(forged), signature)),
        "unsigned": ".".join((_part({"alg": "none"}), claims, "")),
        "for another audience": readers.token("viewer", "--audience=https://elsewhere"),
        "expired": expired(readers.cluster, viewer),
    }
    assert {what: readers.get(token)[0] for what, token in tokens.items()} == dict.fromkeys(tokens, 401)
    assert readers.get(expired(readers.cluster, viewer, ago_s=-600))[0] == 200, "what is wrong is the time alone"


def test_a_token_for_the_read_api_alone_is_enough_and_good_for_nothing_else(readers: Readers, viewer: str) -> None:
    made = readers.token("viewer", f"--audience={READ_AUDIENCE}")
    assert readers.get(made)[0] == 200
    assert readers.purser(made, "top", "--once").returncode == 0
    cluster = readers.cluster
    with pytest.raises(RuntimeError, match="Unauthorized"):
        cluster.kubectl("get", "nodes", f"--token={made}", kubeconfig=_nobody(cluster))
    both = ("token", "viewer", f"-n{NAMESPACE}", f"--audience={READ_AUDIENCE}", "--audience=https://elsewhere")
    assert readers.get(cluster.kubectl("create", *both).strip())[0] == 200


def expired(cluster: RealCluster, token: str, ago_s: float = 60) -> str:
    """The same token, signed by the API server's own key, but of another time."""
    header, claims, _ = token.split(".")
    found = json.loads(base64.urlsafe_b64decode(f"{claims}=="))
    found |= {"exp": int(time.time() - ago_s)}
    signed = f"{header}.{_part(found)}"
    key = load_pem_private_key(cluster.files.signing.key.read_bytes(), None)
    assert isinstance(key, EllipticCurvePrivateKey)
    numbers = decode_dss_signature(key.sign(signed.encode(), ECDSA(SHA256())))
    return f"{signed}.{_text(b''.join(number.to_bytes(32, 'big') for number in numbers))}"


def _part(claims: dict[str, Any]) -> str:
    return _text(json.dumps(claims).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def test_a_right_or_an_account_that_is_taken_away_counts_for_seconds(readers: Readers) -> None:
    token = readers.account("leaving", "purser-view")
    gone = readers.account("gone", "purser-view")
    assert [readers.get(each)[0] for each in (token, gone)] == [200, 200]
    readers.cluster.delete("clusterrolebinding", "leaving")
    readers.cluster.delete("serviceaccount", "gone", f"-n{NAMESPACE}")
    readers.until(403, token)
    readers.until(401, gone)
    again = ("clusterrolebinding", "leaving", "--clusterrole=purser-view", f"--serviceaccount={NAMESPACE}:leaving")
    readers.cluster.kubectl("create", *again)
    readers.until(200, token)


def test_top_and_why_read_it_with_a_token_that_may_do_nothing_else(readers: Readers, viewer: str) -> None:
    cluster = readers.cluster
    with pytest.raises(RuntimeError, match="forbidden"):
        cluster.kubectl("get", "nodes", f"--token={viewer}", f"--server={cluster.server}", kubeconfig=_nobody(cluster))
    cluster.create(busybox_pod("held", namespace=NAMESPACE, resources=share(9000)))
    cluster.wait_pod("held", NAMESPACE)
    cluster.create(busybox_pod("large", namespace=NAMESPACE, resources=whole(9)))

    def told() -> dict[str, Any]:
        done = readers.purser(viewer, "top", "--once", "-o", "json")
        assert (done.returncode, done.stderr) == (0, "")
        state: dict[str, Any] = json.loads(done.stdout)
        refused = [each for each in state["waiting"] if each["pod"] == "large" and each["reasons"]]
        running = [each for each in state["grants"] if each["pod"] == "held" and each["state"] == "running"]
        return state if refused and running else {}

    state = cluster.wait_until("a pod runs, and one was refused", told)
    [node] = state["nodes"]
    assert (node["name"], len(node["gpus"])) == (cluster.node_name, 8)
    [waiting] = state["waiting"]
    assert (waiting["gpus"], waiting["reasons"][0]["nodes"]) == (9, 1)
    events = cluster.get("events", namespace=NAMESPACE)["items"]
    said = [
        each for each in events if each["reason"] == "FailedScheduling" and each["involvedObject"]["name"] == "large"
    ]
    assert said, "kube-scheduler says so, too"
    for words in ((), ("--view", "gpus", "-o", "wide")):
        done = readers.purser(viewer, "top", "--once", *words)
        assert (done.returncode, done.stderr) == (0, "")
        assert cluster.node_name in done.stdout
    why = readers.purser(viewer, "why", "large", "-n", NAMESPACE)
    assert (why.returncode, why.stderr) == (0, "")
    assert waiting["reasons"][0]["reason"] in why.stdout and f"{NAMESPACE}/large waits: " in why.stdout
    placed = readers.purser(viewer, "why", "held", "-n", NAMESPACE)
    assert f"{NAMESPACE}/held is on node {cluster.node_name} (running)" in placed.stdout
    for token, says in (("no-token", "401"), (readers.token("nobody"), "purser-view")):
        done = readers.purser(token, "top", "--once")
        assert (done.returncode, done.stdout, says in done.stderr) == (1, "", True), done.stderr


def test_who_may_list_the_pods_of_a_namespace_reads_its_part_and_nothing_of_another(readers: Readers) -> None:
    cluster, tenant = readers.cluster, readers.account("tenant")
    assert [readers.get(tenant, path)[0] for path in (PART, STATE_PATH)] == [403, 403]
    whose = ("--clusterrole=view", f"--serviceaccount={NAMESPACE}:tenant")
    cluster.kubectl("create", "rolebinding", "tenant", f"-n{NAMESPACE}", *whose)
    cluster.wait_until("the tenant may read", lambda: readers.get(tenant, PART)[0] == 200, VERDICT_TTL_S + 10)
    assert [readers.get(tenant, path)[0] for path in (f"/v1/namespaces/{OTHER}/state", STATE_PATH)] == [403, 403]

    for namespace in (NAMESPACE, OTHER):
        cluster.create(busybox_pod(f"of-{namespace}", namespace=namespace, resources=share(1000)))
        cluster.wait_pod(f"of-{namespace}", namespace)

    def part(token: str) -> dict[str, Any]:
        text = readers.get(token, PART)[1]
        assert OTHER not in text
        state: dict[str, Any] = json.loads(text)
        return state if f"of-{NAMESPACE}" in {each["pod"] for each in state["grants"]} else {}

    state = cluster.wait_until("the pod's GPU is in the document", lambda: part(tenant))
    held = {share["gpu"] for grant in state["grants"] for each in grant["containers"] for share in each["shares"]}
    [node] = state["nodes"]
    assert {each["uuid"] for each in node["gpus"]} == held
    top = readers.purser(tenant, "top", "--once", "-n", NAMESPACE)
    assert (top.returncode, top.stderr, cluster.node_name in top.stdout) == (0, "", True)
    why = readers.purser(tenant, "why", f"of-{NAMESPACE}", "-n", NAMESPACE)
    assert (why.returncode, f"is on node {cluster.node_name}" in why.stdout) == (0, True), why.stderr

    cluster.kubectl("create", "clusterrole", "sees-nodes", "--verb=list", "--resource=nodes")
    whose = ("--clusterrole=sees-nodes", f"--serviceaccount={NAMESPACE}:tenant")
    cluster.kubectl("create", "clusterrolebinding", "sees-nodes", *whose)

    def has_all_gpus() -> bool:
        return [len(each["gpus"]) for each in part(tenant)["nodes"]] == [8]

    cluster.wait_until("who may list nodes sees all GPUs", has_all_gpus, VERDICT_TTL_S + 10)
    cluster.delete("clusterrole", "sees-nodes")
    cluster.delete("clusterrolebinding", "sees-nodes")


def _nobody(cluster: RealCluster) -> Path:
    """A kubeconfig that has the server's CA, and no user."""
    path = cluster.folder / "nobody.kubeconfig"
    cluster_of = {"server": cluster.server, "certificate-authority": str(cluster.files.ca.cert)}
    context = {"name": "a", "context": {"cluster": "a", "user": ""}}
    config = {"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "a", "cluster": cluster_of}]}
    path.write_text(json.dumps({**config, "contexts": [context], "current-context": "a"}))
    return path
