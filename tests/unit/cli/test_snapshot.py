"""`purser snapshot`: the file, what the command says, and who reads it."""

import gzip
import json
import re

import pytest
from tests.unit.cli.typed import beside, here
from tests.unit.kube.servers import api_server
from tests.unit.scheduler.explained import dump, gpu, gpus, node, pod

from purser.kube.resources import NODES, PODS

OBJECTS = (
    node("machine", gpus("machine", 1, 8000)),
    pod("held", gpu(100), on="machine", share={"machine-0": 100}),
    pod("p", gpu(9000)),
)


@pytest.fixture
def cluster(tmp_path):
    file = tmp_path / "cluster.json"
    file.write_bytes(dump(*OBJECTS))
    return file


def test_a_file_is_written_and_read_by_why_and_by_simulate(cluster, tmp_path):
    written = tmp_path / "snapshot.json.gz"
    code, out, err = here("snapshot", "--from", cluster, "-o", written)
    assert (code, out, err) == (0, "", f"purser: wrote 1 node and 2 pods to {written}\n")
    assert json.loads(gzip.decompress(written.read_bytes()))["kind"] == "List"
    assert here("why", "p", "--from", written) == here("why", "p", "--from", cluster)
    one = ("--policy", "purser", "-o", "json")
    simulated = [here("simulate", "--from", file, *one) for file in (written, cluster)]
    assert simulated[0][0] == 0
    untimed = [re.sub(r'"[a-z_]*second[a-z_]*": [^,\n]*', "", out) for _, out, _ in simulated]
    assert untimed[0] == untimed[1] and "purser" in untimed[0]


def test_an_anonymized_file_has_no_name_of_the_cluster(cluster):
    code, out, err = here("snapshot", "--anonymize", "--from", cluster)
    assert (code, err) == (0, "")
    assert not {word for word in ("machine", "held", "uid-p", '"p"') if word in out}
    assert "Tesla T4" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("-o", "json"), "-o must be the file to write"),
        (("-o", "/nowhere/file"), "cannot write -o /nowhere/file"),
        (("--context", "c"), "--from cannot be used with --kubeconfig or --context"),
    ],
)
def test_wrong_usage_is_said(cluster, words, says):
    code, out, err = here("snapshot", "--from", cluster, *words)
    assert (code, out, says in err) == (2, "", True)


def test_a_file_that_is_none_is_wrong_usage(tmp_path):
    file = tmp_path / "file"
    assert "No such file" in here("snapshot", "--from", file)[2]
    file.write_bytes(b"\x1f\x8bx")
    for command in (("snapshot",), ("why", "p"), ("simulate",)):
        code, out, err = here(*command, "--from", file)
        assert (code, out, "the file is damaged" in err) == (2, "", True)


async def test_a_cluster_is_read(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig, tls=False) as (_, client):
        await client.create(NODES, {"metadata": {"name": "n"}})
        await client.create(PODS, {**pod("p", {}), "metadata": {"name": "p", "namespace": "default"}})
        code, out, err = await beside("snapshot", f"--kubeconfig={kubeconfig}")
        assert (code, err) == (0, "")
        kinds = {each["kind"] for each in json.loads(out)["items"]}
        assert {"Node", "Pod", "Namespace", "PersistentVolumeClaimList"} <= kinds
        assert "Secret" not in kinds
