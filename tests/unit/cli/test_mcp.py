"""`purser mcp`, asked by the protocol's own client over standard input and output of a process."""

import json
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from tests.unit.cli.typed import here
from tests.unit.kube.servers import api_server
from tests.unit.scheduler.explained import gpu, gpus, node, pod

import purser
from purser.adapters.objects import objects_of_dump
from purser.cli.mcp import NEEDS_MCP
from purser.cli.mcp_tools import ClusterTools, Listing, ToolFailure, bounded
from purser.core.grant.signing import GRANT_ANNOTATION
from purser.kube import Client, ClusterConfig
from purser.kube.resources import NODES, PODS
from purser.kube.workloads import STATEFUL_SETS

pytestmark = pytest.mark.processes


@asynccontextmanager
async def assistant(kubeconfig):
    """One that has started the server."""
    # Here: the import takes a second, in every process that collects this file.
    from mcp import Client as Assistant
    from mcp.client.stdio import StdioServerParameters, stdio_client

    arguments = ["-c", "from purser.cli import main; main()", "mcp", f"--kubeconfig={kubeconfig}"]
    env = {"PYTHONPATH": str(Path(purser.__file__).parents[1])}  # the client hands nothing on by itself
    started = StdioServerParameters(command=sys.executable, args=arguments, env=env)
    # Its default is the standard error of when it was imported, which may be that of a command in this process.
    async with Assistant(stdio_client(started, errlog=sys.__stderr__)) as found:
        yield found


def said(result) -> str:
    return "\n".join(each.text for each in result.content)


@pytest.mark.gate
async def test_an_assistant_asks_about_a_cluster_and_is_told_what_is_wrong_with_its_questions(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    async with api_server(kubeconfig, tls=False) as (api, client):
        made = node("n", gpus("n", 2, 8000))
        await client.create(NODES, {"metadata": {**made["metadata"], "uid": None}})
        await client.patch_merge(NODES, "n", {"status": made["status"]}, subresource="status")
        waiting = {**pod("p", gpu(9000)), "metadata": {"name": "p", "namespace": "default"}}
        template = {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template}
        db = await client.create(STATEFUL_SETS, {"metadata": {"name": "db", "namespace": "default"}, "spec": spec})
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": db.metadata.uid}
        waiting["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        await client.create(PODS, waiting)
        async with assistant(kubeconfig) as asking:
            tools = (await asking.list_tools()).tools
            assert {each.name for each in tools} == {"why", "why_manifest", "snapshot", "get", "plan_free"}
            assert all(each.annotations.read_only_hint and each.description for each in tools)

            why = await asking.call_tool("why", {"pod": "p"})
            assert not why.is_error
            found = why.structured_content
            assert found["text"].startswith("default/p waits: it does not fit on the only node")
            assert found["explanation"]["reasons"][0]["reason"] == "CardInsufficientMemory"
            assert found["left_out"] == {}

            of_db = (await asking.call_tool("why", {"pod": "sts/db"})).structured_content["text"].splitlines()
            lines = found["text"].splitlines()
            assert (of_db[0].startswith("StatefulSet default/db has"), of_db[-len(lines) :]) == (True, lines)

            manifest = json.dumps({"apiVersion": "v1", **pod("new", gpu(9000))})
            new = (await asking.call_tool("why_manifest", {"manifest": manifest})).structured_content
            assert new["text"].startswith("default/new would wait: it does not fit on the only node")

            both = yaml.safe_dump_all(
                {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "new"}, "spec": {"template": template}}
                for kind in ("Deployment", "StatefulSet")
            )
            found = await asking.call_tool("why_manifest", {"manifest": both, "name": "deployment/new"})
            assert found.structured_content["text"].startswith("default/new")
            several = await asking.call_tool("why_manifest", {"manifest": both, "name": "new"})
            assert "set the argument name to one of Deployment/new, StatefulSet/new" in said(several)

            for anonymize in (True, False):
                taken = await asking.call_tool("snapshot", {"anonymize": anonymize})
                objects = objects_of_dump(taken.structured_content["snapshot"].encode())
                assert [each.metadata.name for each in objects.nodes] == ["node-1" if anonymize else "n"]
                assert taken.structured_content["notes"] == []

            listed = (await asking.call_tool("get", {"what": "gpus", "node": "n"})).structured_content
            assert [each["uuid"] for each in listed["gpus"]] == ["n-0", "n-1"]
            assert (await asking.call_tool("get", {"what": "gpus", "node": "m"})).structured_content["gpus"] == []
            for what in ("nodes", "grants", "namespaces"):
                assert not (await asking.call_tool("get", {"what": what})).is_error

            free = (await asking.call_tool("plan_free", {"gpus": 2})).structured_content
            assert (free["cost"], free["rooms"][0]["node"]) == (0, "n")

            async with Client(ClusterConfig.load(kubeconfig)) as client:
                held = pod("held", gpu(1000), on="n", share={"n-0": 1000})
                held["spec"]["priority"] = 0
                made = await client.create(PODS, {**held, "metadata": {**held["metadata"], "uid": None}})
                text = held["metadata"]["annotations"][GRANT_ANNOTATION].replace("uid-held", made.metadata.uid)
                await client.patch_merge(
                    PODS, "held", {"metadata": {"annotations": {GRANT_ANNOTATION: text}}}, "default"
                )
            refused = said(await asking.call_tool("plan_free", {"gpus": 2}))
            assert "default/held has no controller and would be lost (to allow this, use force)" in refused
            assert "--" not in refused
            forced = (await asking.call_tool("plan_free", {"gpus": 2, "force": True})).structured_content
            assert [each["pod"] for each in forced["steps"]] == ["default/held"]

            for tool, arguments, says in (
                ("why", {"pod": "q"}, "namespace default has no pod q"),
                ("why", {"pod": "service/q"}, "cannot explain service/q"),
                ("why", {"pod": ""}, "at least 1 character"),
                ("why", {}, "required"),
                ("why_manifest", {"manifest": "kind: Secret"}, "the manifest"),
                ("why_manifest", {"manifest": manifest, "name": "other"}, "set the argument name to one of Pod/new"),
                ("get", {"what": "secrets"}, "'gpus', 'grants', 'nodes'"),
                ("plan_free", {"gpus": 0}, "greater than or equal to 1"),
                ("plan_free", {"gpus": 9}, "no schedulable node has 9 usable GPUs"),
            ):
                refused = await asking.call_tool(tool, arguments)
                assert (refused.is_error, says.lower() in said(refused).lower()) == (True, True), said(refused)

            await api.stop()
            away = await asking.call_tool("why", {"pod": "p"})
            assert (away.is_error, "Check server in the kubeconfig" in said(away)) == (True, True), said(away)


def test_without_a_kubeconfig_the_command_says_so_at_once(tmp_path):
    code, out, err = here("mcp", "--kubeconfig", tmp_path / "none")
    assert (code, out, err) == (
        2,
        "",
        f"purser: cannot read kubeconfig {tmp_path / 'none'}: No such file or directory\n",
    )


async def test_a_snapshot_that_is_too_large_to_read_is_the_users_to_take(tmp_path, monkeypatch):
    monkeypatch.setattr("purser.cli.mcp_tools.MAX_SNAPSHOT_BYTES", 10)
    async with api_server(tmp_path / "kubeconfig", tls=False):
        with pytest.raises(ToolFailure, match="have the user run purser snapshot -o FILE"):
            await ClusterTools(tmp_path / "kubeconfig", None).snapshot(True)


async def test_a_kubeconfig_that_has_gone_is_said_to_be_gone(tmp_path):
    with pytest.raises(ToolFailure, match=f"cannot read kubeconfig {tmp_path / 'none'}"):
        await ClusterTools(tmp_path / "none", None).get(Listing.NODES, None, None)


def test_where_the_package_is_missing_the_command_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    assert here("mcp") == (2, "", f"purser: {NEEDS_MCP}\n")


def test_a_long_answer_is_cut_and_says_where():
    document = {"rows": [{"names": list(range(5))}, 2, 3], "by": {"a": 1, "b": 2, "c": 3}}
    assert bounded(document, 2) == {
        "rows": [{"names": [0, 1]}, 2],
        "by": {"a": 1, "b": 2},
        "left_out": {"rows": 1, "rows[0].names": 3, "by": 1},
    }
