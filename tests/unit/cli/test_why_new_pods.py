"""`purser why -f pod.yaml`: what would happen to a pod that does not exist yet."""

import json
from pathlib import Path

import pytest
import yaml
from tests.unit.cli.typed import here
from tests.unit.scheduler.explained import dump, gpu, gpus, node, pod
from typer.testing import CliRunner

from purser.cli import app
from purser.core.names import INVENTORY_ANNOTATION
from purser.lab.apiserver.patch import json_patch
from purser.scheduler.webhook import Mutation, mutate_pod
from purser.scheduler.webhook.patches import patched

EXAMPLES = Path(__file__).parents[3] / "examples"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team}
spec:
  containers:
  - name: c
    image: i
    resources: {limits: {nvidia.com/gpumem: %s}}
"""


@pytest.fixture
def asked(tmp_path):
    cluster = tmp_path / "cluster.json"
    nodes = [node(name, gpus(name, 2, memory)) for name, memory in (("m", 4000), ("n", 8000))]
    namespaces = [{"kind": "Namespace", "metadata": {"name": name}} for name in ("default", "team")]
    cluster.write_bytes(dump(*nodes, *namespaces, pod("q", gpu(8000), on="n", share={"n-0": 8000})))

    def ask(text: str, *words: str) -> tuple[int, str, str]:
        manifest = tmp_path / "manifest.yaml"
        manifest.write_text(text)
        return here("why", "-f", manifest, "--from", cluster, *words)

    return ask


def test_a_pod_that_would_fit_is_said_to_and_where(asked):
    """It names no GPU and no scheduler, both of which only the webhook sets."""
    code, out, err = asked(POD % 8000)
    assert (code, err.count("warning for the pod's author: limits of GPU shares are advisory")) == (0, 1)
    assert "LimitRanges, other ResourceQuotas and other webhooks are not checked" in err
    lines = out.splitlines()
    assert lines[0] == "team/p would fit on 1 of 2 nodes now (n), placed by scheduler purser-scheduler"
    assert (len(lines), "CardInsufficientMemory" in lines[3]) == (4, True)


def test_a_pod_that_would_wait_is_told_why_and_what_would_help(asked):
    code, out, err = asked(POD % 9000)
    assert (code, out.splitlines()[0]) == (0, "team/p would wait: it fits on none of 2 nodes")
    assert "CardInsufficientMemory" in out
    assert "- container c requests nvidia.com/gpumem: 8000 instead of 9000: the pod then fits on n" in out.splitlines()
    assert "warning for the pod's author: a container requests 9000 MiB of GPU memory" in err
    document = json.loads(asked(POD % 9000, "-o", "json")[1])
    assert (document["state"], document["suggestions"][0]["text"]) == (
        "New",
        "container c requests nvidia.com/gpumem: 8000 instead of 9000",
    )


def test_a_manifest_without_a_name_or_for_another_namespace_is_wrong_usage(asked):
    code, _, err = asked((POD % 9).replace("name: p, ", ""))
    assert (code, "a Pod has no metadata.name, which is required" in err) == (2, True)
    code, _, err = asked(POD % 9, "-n", "default")
    assert (code, "-n default does not match the manifest's namespace team: omit -n, or use -n team" in err) == (
        2,
        True,
    )
    assert asked(POD % 9, "-n", "team")[0] == 0


def test_what_the_webhook_would_refuse_is_not_said_to_fit(asked):
    code, out, _ = asked(POD % "many")
    assert (code, out.startswith("team/p would not be placed: Purser's webhook would reject the pod: ")) == (0, True)
    preset = POD % 8000 + "  nodeName: n\n"
    assert "Purser's webhook would reject the pod: " in asked(preset)[1]
    unasked = preset.replace("nvidia.com/gpumem: 8000", "cpu: 1")
    assert "spec.nodeName is n: the kubelet on that node would run the pod without a scheduler" in asked(unasked)[1]
    assert asked((POD % 8000).replace("team", "nowhere"))[1] == (
        "nowhere/p would not be placed: namespace nowhere does not exist\n"
    )


def test_a_pod_that_keeps_the_webhook_away_stays_as_it_is(asked):
    ignored = (POD % 8000).replace("name: p,", "name: p, labels: {purser.dev/webhook: ignore},")
    out = asked(ignored)[1]
    assert "placed by scheduler default-scheduler" in out or "would wait" in out


def test_a_cluster_without_agents_has_no_webhook(tmp_path):
    plain = node("n", (), nvidia_com__gpu="8")
    assert INVENTORY_ANNOTATION not in plain["metadata"]["annotations"]
    cluster, manifest = tmp_path / "cluster.json", tmp_path / "pod.yaml"
    cluster.write_bytes(dump(plain))
    manifest.write_text((POD % 1).replace("nvidia.com/gpumem", "nvidia_com/gpu"))
    code, out, _ = here("why", "-f", manifest, "--from", cluster)
    assert (code, out) == (0, "team/p would fit on 1 of 1 node now (n), placed by scheduler default-scheduler\n")


def test_templates_are_pods_and_one_of_several_is_chosen_by_name(asked):
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": gpu(8000)}}]}}
    documents = [
        {"kind": "Service", "metadata": {"name": "s"}},
        {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": template}},
        {"kind": "CronJob", "metadata": {"name": "night"}, "spec": {"jobTemplate": {"spec": {"template": template}}}},
    ]
    text = yaml.safe_dump_all(documents)
    assert asked(text, "web")[1].startswith("default/web would fit on 1 of 2 nodes now (n)")
    assert asked(text, "night", "-n", "team")[1].startswith("team/night would fit on 1 of 2 nodes now (n)")
    code, _, err = asked(text)
    assert (
        code,
        err.endswith("has several objects with pods: POD must be the name of one of Deployment web, CronJob night\n"),
    ) == (
        2,
        True,
    )
    code, _, err = asked(yaml.safe_dump_all([*documents, {**documents[1], "kind": "ReplicaSet"}]), "web")
    assert code == 2
    assert err.endswith("has several objects named web: put one of them in a file of its own\n")
    assert asked(yaml.safe_dump({"kind": "List", "items": documents[:2]}))[1].startswith("default/web would fit")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no Pod and nothing with a Pod template"),
        ("a: 1", "is not a manifest: an object in it has no kind"),
        ("{", "invalid YAML"),
        ("kind: DaemonSet\nspec: {template: {spec: {}}}", "it has DaemonSet"),
        ("kind: Pod\nmetadata: {name: p}", "Pod p has no spec"),
        ("kind: Deployment\nmetadata: {name: p}\nspec: {template: 1}", "Deployment p has no Pod template"),
        ("kind: Pod\nmetadata: {name: p, labels: 1}\nspec: {containers: []}", "labels"),
        ("kind: Pod\nmetadata: {name: p}\nspec: {containers: [1]}", "containers"),
    ],
)
def test_what_is_no_manifest_of_a_pod_is_wrong_usage(asked, text, says):
    code, out, err = asked(text)
    assert (code, out, says in err, err.count("\n")) == (2, "", True, 1)


def test_a_manifest_may_come_from_standard_input(tmp_path):
    cluster = tmp_path / "cluster.json"
    cluster.write_bytes(dump(node("n", gpus("n", 1, 8000))))
    done = CliRunner().invoke(app, ["why", "-f", "-", "--from", str(cluster)], input=POD % 8000)
    assert done.stdout.startswith("team/p would fit on 1 of 1 node now (n)")
    assert here("why", "-f", tmp_path / "none", "--from", cluster)[0] == 2
    assert here("why", "--from", cluster)[::2] == (
        2,
        "purser: a pod name, KIND/NAME, or a manifest with -f is required (see --help for examples)\n",
    )


def test_a_pod_is_patched_as_an_api_server_does_it():
    webhook, kinds = Mutation(), set()
    for file in sorted(EXAMPLES.glob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text()):
            if document and document["kind"] == "Pod":
                changed, decision = mutate_pod(document, "default", webhook)
                patch = [dict(each) for each in decision.patch]
                assert changed == json_patch(document, patch) == patched(document, patch)
                kinds |= {each["path"].split("/")[-1] for each in patch}
    assert {"schedulerName", "nvidia.com~1gpu"} <= kinds
