"""The calls the control plane makes to others over HTTPS: a scheduler extender and an admission webhook."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from .kubernetes import RealCluster, busybox_pod

Answer = Callable[[str, Any], Any]


@contextmanager
def https_server(cluster: RealCluster, answer: Answer) -> Iterator[str]:
    """Serve JSON over TLS with a certificate of the cluster's authority; gives the base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reply = json.dumps(answer(self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(reply)))
            self.end_headers()
            self.wfile.write(reply)

        def log_message(self, format: str, *args: object) -> None:
            pass

    pair = cluster.authority.serving("callout", ["localhost"], ["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_the_scheduler_asks_an_extender_over_https_for_its_second_profile(cluster: RealCluster) -> None:
    asked: list[str] = []

    def answer(path: str, body: Any) -> Any:
        asked.append(f"{path} {body['Pod']['metadata']['name']}")
        if path == "/filter":
            return {"NodeNames": body["NodeNames"], "FailedNodes": {}, "Error": ""}
        return [{"Host": name, "Score": 1} for name in body["NodeNames"]]

    with https_server(cluster, answer) as url:
        extender = {
            "urlPrefix": url,
            "filterVerb": "filter",
            "enableHTTPS": True,
            "tlsConfig": {"caData": base64.b64encode(cluster.ca_file.read_bytes()).decode()},
            "nodeCacheCapable": True,
            "managedResources": [{"name": "purser.test/gpu", "ignoredByScheduler": True}],
        }
        profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}]
        cluster.restart_scheduler({"percentageOfNodesToScore": 100, "profiles": profiles, "extenders": [extender]})
        try:
            cluster.create(busybox_pod("plain"), busybox_pod("managed", schedulerName="second", resources=GPU))
            cluster.wait_pod("plain")
            cluster.wait_until("the extender was asked", lambda: asked)
        finally:
            cluster.delete("pod", "plain", "managed")
            cluster.restart_scheduler({})
    assert set(asked) == {"/filter managed"}


GPU = {"purser.test/gpu": "1"}


def test_the_api_server_calls_a_webhook_on_loopback(cluster: RealCluster) -> None:
    def answer(path: str, body: Any) -> Any:
        patch = [{"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}}]
        encoded = base64.b64encode(json.dumps(patch).encode()).decode()
        response = {"uid": body["request"]["uid"], "allowed": True, "patchType": "JSONPatch", "patch": encoded}
        return {"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response}

    with https_server(cluster, answer) as url:
        cluster.create(webhook_configuration(cluster, f"{url}/mutate"))
        try:
            cluster.wait_until("a pod is changed", lambda: created_pod_has_label(cluster))
        finally:
            cluster.delete("mutatingwebhookconfiguration", "harness")


def created_pod_has_label(cluster: RealCluster) -> bool:
    cluster.create(busybox_pod("mutated"))
    labels = cluster.get("pod", "mutated")["metadata"].get("labels", {})
    cluster.delete("pod", "mutated")
    return bool(labels.get("seen") == "yes")


def webhook_configuration(cluster: RealCluster, url: str) -> dict[str, Any]:
    webhook = {
        "name": "harness.purser.dev",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "clientConfig": {"url": url, "caBundle": base64.b64encode(cluster.ca_file.read_bytes()).decode()},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "harness"},
        "webhooks": [webhook],
    }
