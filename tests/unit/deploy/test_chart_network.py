"""Who can connect to what of Purser, as the chart sets it up."""

import helm_python
import pytest
import yaml
from typer.testing import CliRunner

from purser.cli import app
from purser.core.names import CA_CONFIGMAP
from purser.options import AGENT_METRICS_PORT
from purser.scheduler.read_api.access import READ_VERB, STATE_PATH

from .test_helm_chart import VARIANTS, find, render

OPERATOR = {"operator": {"enabled": True}}


def policies(values):
    return {d["metadata"]["name"]: d["spec"] for d in render(values) if d["kind"] == "NetworkPolicy"}


def ports(spec):
    return [[port["port"] for port in rule["ports"]] for rule in spec["ingress"]]


def scheduler(values):
    return find(render(values), "Deployment", "purser-scheduler")["spec"]["template"]


def purser_container(values):
    return next(c for c in scheduler(values)["spec"]["containers"] if c["name"] == "purser")


def given(values):
    return [tuple(argument.partition("=")[::2]) for argument in purser_container(values)["args"]]


@pytest.mark.parametrize("variant", VARIANTS)
def test_kube_scheduler_asks_the_extender_on_loopback_and_nobody_else_can(variant):
    values = VARIANTS[variant]
    (text,) = find(render(values), "ConfigMap", "purser-kube-scheduler")["data"].values()
    arguments = dict(given(values))
    assert yaml.safe_load(text)["extenders"][0]["urlPrefix"] == f"https://127.0.0.1:{arguments['--extender-port']}"
    assert "--extender-address" not in arguments  # the default is loopback
    open_ports = {port["containerPort"] for port in purser_container(values)["ports"]}
    assert int(arguments["--extender-port"]) not in open_ports


def test_the_service_has_the_webhook_alone():
    [port] = find(render({}), "Service", "purser-webhook")["spec"]["ports"]
    names = {each["name"]: str(each["containerPort"]) for each in purser_container({})["ports"]}
    assert (port["port"], names[port["targetPort"]]) == (443, dict(given({}))["--webhook-port"])


def test_without_a_webhook_no_port_is_there_for_it():
    values = {"webhook": {"enabled": False}}
    assert [port["name"] for port in purser_container(values)["ports"]] == ["metrics"]
    assert ports(policies(values)["purser-scheduler"]) == [[9401]]


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ({}, {"purser-scheduler": [[8443], [9401]], "purser-agents": [[9440]]}),
        (
            {"agent": {"metricsPort": 1}, "scheduler": {"metricsPort": 2}},
            {"purser-scheduler": [[8443], [2]], "purser-agents": [[1]]},
        ),
        (
            OPERATOR,
            {
                "purser-scheduler": [[8443], [9401]],
                "purser-agents": [[AGENT_METRICS_PORT]],
                "purser-operator": [[9402]],
            },
        ),
        ({"networkPolicy": {"enabled": False}}, {}),
    ],
    ids=["the chart's agent", "other ports", "operator", "none"],
)
def test_the_webhook_and_metrics_can_be_reached_and_nothing_else(values, wanted):
    found = policies(values)
    assert {name: ports(spec) for name, spec in found.items()} == wanted
    assert all(spec["policyTypes"] == ["Ingress"] for spec in found.values())


def test_the_read_api_is_there_where_it_is_asked_for_with_a_role_for_its_readers():
    def of_it(values):
        documents = render(values)
        port = purser_container(values).get("ports", ())
        return {
            "arguments": [value for name, value in given(values) if name == "--read-api-port"],
            "ports": [each["containerPort"] for each in port if each["name"] == "read-api"],
            "services": [
                d["spec"]["ports"][0]["targetPort"] for d in documents if d["metadata"]["name"] == "purser-read-api"
            ],
            "roles": [d["rules"] for d in documents if d["metadata"]["name"] == "purser-view"],
        }

    assert of_it({}) == {"arguments": [], "ports": [], "services": [], "roles": []}
    assert of_it({"readAPI": {"enabled": True}}) == {
        "arguments": ["8445"],
        "ports": [8445],
        "services": ["read-api"],
        "roles": [[{"nonResourceURLs": [STATE_PATH], "verbs": [READ_VERB]}]],
    }


WEB = {"readAPI": {"enabled": True}, "web": {"enabled": True}}


def test_the_web_pages_have_no_rights_and_ask_the_read_api():
    documents = render(WEB)
    pod = find(documents, "Deployment", "purser-web")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False and "serviceAccountName" not in pod
    (container,) = pod["containers"]
    assert container["args"][:3] == [
        "web",
        "--scheduler=https://purser-read-api.purser-system.svc",
        "--certificate-authority=/etc/purser/ca/ca.crt",
    ]
    assert {"name": "ca", "configMap": {"name": CA_CONFIGMAP}} in pod["volumes"]
    assert CliRunner().invoke(app, [*container["args"], "--help"]).exit_code == 0
    service = find(documents, "Service", "purser-web")["spec"]
    assert service["ports"][0]["targetPort"] in [port["name"] for port in container["ports"]]
    assert [each for each in render({}) if each["metadata"]["name"] == "purser-web"] == []


def test_web_pages_without_the_read_api_are_refused():
    with pytest.raises(Exception, match=r"web\.enabled needs readAPI\.enabled"):
        render({"web": {"enabled": True}})


def test_who_reaches_the_web_pages_and_from_there_the_read_api():
    assert policies(WEB)["purser-web"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": 8480}]}]
    peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress"}}}]
    limited = policies({**WEB, "networkPolicy": {"webPeers": peers, "readAPICIDRs": ["192.0.2.0/24"]}})
    assert limited["purser-web"]["ingress"][0]["from"] == peers
    (readers,) = [each for each in limited["purser-scheduler"]["ingress"] if each["ports"][0]["port"] == 8445]
    labels = find(render(WEB), "Deployment", "purser-web")["spec"]["template"]["metadata"]["labels"]
    network, pods = readers["from"]
    assert network == {"ipBlock": {"cidr": "192.0.2.0/24"}}
    assert pods["podSelector"]["matchLabels"].items() <= labels.items()


def test_policies_select_the_pods_that_they_are_for():
    for values in ({}, OPERATOR, WEB):
        documents = render(values)
        pods = [
            d["spec"]["template"]["metadata"]["labels"] for d in documents if d["kind"] in ("Deployment", "DaemonSet")
        ]
        for name, spec in policies(values).items():
            wanted = spec["podSelector"]["matchLabels"].items()
            chosen = [labels for labels in pods if wanted <= labels.items()]
            assert len(chosen) == (0 if (name, values) == ("purser-agents", OPERATOR) else 1), name


def test_where_callers_are_known_only_they_can_connect():
    to_webhook, to_metrics = policies(VARIANTS["everything set"])["purser-scheduler"]["ingress"]
    assert [peer["ipBlock"]["cidr"] for peer in to_webhook["from"]] == ["10.0.0.0/8", "fd00::/8"]
    labels = to_metrics["from"][0]["namespaceSelector"]["matchLabels"]
    assert labels == {"kubernetes.io/metadata.name": "monitoring"}
    assert "from" not in policies({})["purser-scheduler"]["ingress"][0]


def test_where_the_networks_of_readers_are_known_only_they_can_connect_to_the_read_api():
    def to_read_api(**values):
        found = policies({"readAPI": {"enabled": True}, "networkPolicy": values})["purser-scheduler"]["ingress"]
        (rule,) = [each for each in found if each["ports"][0]["port"] == 8445]
        return rule

    assert "from" not in to_read_api()
    readers = to_read_api(readAPICIDRs=["192.0.2.0/24"], webhookCIDRs=["10.0.0.0/8"])["from"]
    assert readers == [{"ipBlock": {"cidr": "192.0.2.0/24"}}]


@pytest.mark.parametrize(
    ("place", "volume"),
    [({"configMap": "a"}, {"configMap": {"name": "a"}}), ({"secret": "a"}, {"secret": {"secretName": "a"}})],
)
def test_the_webhooks_client_ca_is_where_the_process_looks_for_it(place, volume):
    values = {"webhook": {"clientCA": {**place, "names": ["one", "two"]}}}
    volumes = scheduler(values)["spec"]["volumes"]
    assert {"name": "webhook-client-ca", **volume} in volumes
    [mount] = [each for each in purser_container(values)["volumeMounts"] if each["name"] == "webhook-client-ca"]
    arguments = given(values)
    assert ("--webhook-client-ca-file", f"{mount['mountPath']}/ca.crt") in arguments
    assert [value for name, value in arguments if name == "--webhook-client-name"] == ["one", "two"]


@pytest.mark.parametrize("place", [{"configMap": "a", "secret": "b"}, {"names": ["a"]}])
def test_a_client_ca_that_says_two_things_or_none_is_refused(place):
    with pytest.raises(helm_python.HelmError):
        render({"webhook": {"clientCA": place}})
