"""The CRD is what its types say, is in the chart as it is made, and an API server takes it and judges by it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import pytest_asyncio

from purser.lab.apiserver import ApiServer
from purser.operator.policy import ClusterPolicySpec, crd, decode

pytestmark = pytest.mark.processes

CHART = Path(__file__).parents[4] / "deploy" / "helm" / "purser"
DEFINITION = "crds/clusterpolicies.purser.dev.yaml"
Kubectl = Callable[..., Any]


def schema() -> dict[str, Any]:
    return dict(crd.definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


def every_field(found: dict[str, Any], path: str) -> list[tuple[str, dict[str, Any]]]:
    below = [each for name, sub in found.get("properties", {}).items() for each in every_field(sub, f"{path}.{name}")]
    return [(path, found), *below, *(every_field(found["items"], f"{path}[]") if "items" in found else [])]


def test_every_field_is_described_and_has_a_type() -> None:
    for path, found in every_field(schema()["properties"]["spec"], "spec") + every_field(
        schema()["properties"]["status"], "status"
    ):
        assert found.get("type") or found.get("x-kubernetes-int-or-string"), path
        if not path.endswith("[]"):
            assert len(found.get("description", "")) > 3, path


def defaulted(found: dict[str, Any]) -> Any:
    """What an API server makes of an empty value."""
    return {
        name: defaulted(sub) if sub["default"] == {} else sub["default"]
        for name, sub in found.get("properties", {}).items()
        if "default" in sub
    }


def test_the_crds_defaults_are_the_operators() -> None:
    spec = defaulted(schema()["properties"]["spec"])
    assert spec["driver"]["upgradePolicy"]["maxUnavailable"] == "25%"
    assert decode({"spec": spec}).spec == ClusterPolicySpec()
    jsonschema.validate(spec, schema()["properties"]["spec"])


@pytest.mark.parametrize("version", ["1.25", "1.28", kubernetes_validate.latest_version()])
def test_the_crd_fits_the_schema_of_the_kubernetes_version(version: str) -> None:
    kubernetes_validate.validate(crd.definition(), version, strict=True)


# --- on an API server


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def kubectl(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Kubectl]:
    tmp_path = tmp_path_factory.mktemp("crd")
    async with ApiServer() as server:
        config = server.write_kubeconfig(tmp_path / "kubeconfig")

        async def run(*args: str, given: Any = None) -> tuple[int, str]:
            process = await asyncio.create_subprocess_exec(
                "kubectl",
                f"--kubeconfig={config}",
                f"--cache-dir={tmp_path / 'cache'}",
                *args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            out, _ = await process.communicate(json.dumps(given).encode() if given else None)
            return process.returncode or 0, out.decode()

        code, said = await run("apply", "-f", str(CHART / DEFINITION))
        assert code == 0, said
        code, said = await run("wait", "--for=condition=Established", "crd/clusterpolicies.purser.dev", "--timeout=20s")
        assert code == 0, said
        yield run


def policy(name: str = "gpus", **sections: Any) -> dict[str, Any]:
    return {
        "apiVersion": "purser.dev/v1alpha1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": sections,
    }


@pytest.mark.asyncio(loop_scope="module")
async def test_an_api_server_fills_defaults_and_shows_columns(kubectl: Kubectl) -> None:
    code, said = await kubectl("apply", "-f", "-", given=policy(driver={"version": "570.1"}))
    assert code == 0, said
    _, text = await kubectl("get", "pcp", "gpus", "-o", "json")
    stored = json.loads(text)
    assert stored["spec"]["driver"]["version"] == "570.1"
    assert stored["spec"]["daemonsets"]["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert decode(stored).spec == decode({"spec": {"driver": {"version": "570.1"}}}).spec
    _, table = await kubectl("get", "clusterpolicies")
    assert table.split("\n")[0].split() == ["NAME", "STATUS", "READY", "NODES", "UPGRADED", "HALTED", "AGE"]
    _, text = await kubectl("explain", "pcp.spec.driver.upgradePolicy.canary")
    assert "How long the canary nodes must stay healthy" in text


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown word": ({"devicePlugin": {"flavor": "amd"}}, "flavor"),
    "no slots": ({"devicePlugin": {"slots": 0}}, "slots"),
    "a text for a number": ({"devicePlugin": {"slots": "ten"}}, "slots"),
    "no percentage": ({"driver": {"upgradePolicy": {"maxUnavailable": "many"}}}, "maxUnavailable"),
    "a profile for all nodes": ({"driver": {"profiles": [{"name": "a", "nodeSelector": {}}]}}, "nodeSelector"),
    "a profile without a name": ({"driver": {"profiles": [{"nodeSelector": {"a": "b"}}]}}, "name"),
    "a name that is none": ({"driver": {"profiles": [{"name": "A b", "nodeSelector": {"a": "b"}}]}}, "name"),
    "a version that is none": ({"driver": {"requirements": [{"nodeSelector": {}, "minimum": "new"}]}}, "minimum"),
    "negative seconds": ({"driver": {"upgradePolicy": {"retryAfterSeconds": -1}}}, "retryAfterSeconds"),
    "a quantity that is none": ({"driver": {"resources": {"limits": {"cpu": "lots"}}}}, "limits"),
    "a field nobody knows": ({"drivers": {}}, "drivers"),
}


@pytest.mark.asyncio(loop_scope="module")
async def test_an_api_server_refuses_what_makes_no_sense_and_names_the_field(kubectl: Kubectl) -> None:
    policies = [policy(f"bad-{number}", **spec) for number, (spec, _) in enumerate(BAD.values())]
    given = {"apiVersion": "v1", "kind": "List", "items": policies}
    code, said = await kubectl("create", "-f", "-", "--validate=strict", given=given)
    assert code != 0
    for (case, (_, field)), line in zip(BAD.items(), said.splitlines(), strict=True):
        assert line.startswith("Error from server"), (case, line)
        assert field in line, (case, line)
