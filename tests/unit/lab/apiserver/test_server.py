"""The server as a part: starting, stopping, users, faults."""

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiohttp import web

from purser.lab.apiserver import ApiServer, LogOptions, StatusError, User


async def fetch(
    api: ApiServer, path: str, *, token: str = "", method: str = "GET", body: Any = None
) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token or api.admin_token}", "Content-Type": "application/json"}
    context = ssl.create_default_context(cadata=api.ca)
    data = json.dumps(body) if body is not None else None
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, api.url + path, headers=headers, ssl=context, data=data) as response,
    ):
        raw = await response.read()
        return response.status, json.loads(raw) if raw and "json" in response.content_type else raw


POD = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
PODS = "/api/v1/namespaces/default/pods"


async def test_several_servers_run_side_by_side_and_know_nothing_of_each_other() -> None:
    async with ApiServer() as one, ApiServer() as two:
        assert one.url != two.url
        assert (await fetch(one, PODS, method="POST", body=POD))[0] == 201
        assert (await fetch(two, f"{PODS}/a"))[0] == 404
        assert (await fetch(two, PODS, token=one.admin_token))[0] == 401
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            context = ssl.create_default_context(cadata=one.ca)
            async with aiohttp.ClientSession() as session, session.get(two.url, ssl=context):
                pass


async def test_a_restart_keeps_port_objects_and_identity() -> None:
    api = ApiServer()
    await api.start()
    url = api.url
    _, made = await fetch(api, PODS, method="POST", body=POD)
    await api.stop()
    with pytest.raises(aiohttp.ClientConnectorError):
        await fetch(api, PODS)
    await api.start()
    assert api.url == url
    assert (await fetch(api, f"{PODS}/a"))[1] == made
    await api.stop()


async def test_stopping_ends_open_watches() -> None:
    api = ApiServer()
    await api.start()
    headers = {"Authorization": f"Bearer {api.admin_token}"}
    query = {"watch": "true", "sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    context = ssl.create_default_context(cadata=api.ca)
    async with (
        aiohttp.ClientSession() as session,
        session.get(api.url + PODS, headers=headers, params=query, ssl=context) as response,
    ):
        assert json.loads(await response.content.readline())["type"] == "BOOKMARK"
        await api.stop()
        rest = await asyncio.wait_for(response.content.read(), 10)
    assert [json.loads(line)["type"] for line in rest.splitlines()] in ([], ["BOOKMARK"])


async def test_the_kubeconfig_carries_everything_a_client_needs(tmp_path: Path) -> None:
    async with ApiServer() as api:
        path = api.write_kubeconfig(tmp_path / "config")
        assert path.stat().st_mode & 0o077 == 0
        config = yaml.safe_load(path.read_text())
        cluster = config["clusters"][0]["cluster"]
        assert cluster["server"] == api.url
        assert base64.b64decode(cluster["certificate-authority-data"]).decode() == api.ca
        assert config["users"][0]["user"]["token"] == api.admin_token


async def test_users_are_known_by_their_token() -> None:
    users = {"first": User("jane", ("team",), "u1")}
    async with ApiServer(users=users) as api:
        api.add_user("second", User("joe"))
        for token, name in (("first", "jane"), ("second", "joe")):
            review = {"spec": {"token": token}}
            _, answer = await fetch(
                api, "/apis/authentication.k8s.io/v1/tokenreviews", token=token, method="POST", body=review
            )
            assert answer["status"]["user"]["username"] == name
        assert (await fetch(api, PODS, token="third"))[0] == 401


async def test_requests_can_be_intercepted() -> None:
    async with ApiServer() as api:

        async def overload(request: web.Request) -> web.StreamResponse | None:
            return web.Response(status=429, headers={"Retry-After": "1"}) if request.path == PODS else None

        api.intercept(overload)
        assert (await fetch(api, PODS))[0] == 429
        assert (await fetch(api, "/api/v1/nodes"))[0] == 200
        api.intercept(None)
        assert (await fetch(api, PODS))[0] == 200


async def test_a_refusal_of_the_log_source_reaches_the_client() -> None:
    async with ApiServer() as api:
        await fetch(api, PODS, method="POST", body={**POD, "spec": {**POD["spec"], "nodeName": "n"}})

        async def refuse(pod: Any, options: LogOptions) -> Any:
            raise StatusError(503, "ServiceUnavailable", "the kubelet is away")
            yield b""

        assert (await fetch(api, f"{PODS}/a/log"))[0] == 503
        api.serve_logs(refuse)
        code, status = await fetch(api, f"{PODS}/a/log")
        assert (code, status["message"]) == (503, "the kubelet is away")


async def test_old_events_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("purser.lab.apiserver.garbage.EVENT_LIFE_SECONDS", 0)
    events = "/api/v1/namespaces/default/events"
    async with ApiServer() as api:
        for name in ("one", "two"):
            body = {"metadata": {"name": name}, "involvedObject": {"kind": "Pod", "name": "a"}}
            assert (await fetch(api, events, method="POST", body=body))[0] == 201

        async def left() -> list[str]:
            return [item["metadata"]["name"] for item in (await fetch(api, events))[1]["items"]]

        deadline = asyncio.get_running_loop().time() + 10
        while "one" in await left():
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.sleep(0.01)


async def test_a_dependent_of_an_unknown_kind_is_kept() -> None:
    owner = {"apiVersion": "unknown.dev/v1", "kind": "Thing", "name": "t", "uid": "u"}
    maps = "/api/v1/namespaces/default/configmaps"
    async with ApiServer() as api:
        await fetch(api, maps, method="POST", body={"metadata": {"name": "kept", "ownerReferences": [owner]}})
        known = {"apiVersion": "v1", "kind": "Node", "name": "t", "uid": "v"}
        await fetch(api, maps, method="POST", body={"metadata": {"name": "gone", "ownerReferences": [known]}})
        deadline = asyncio.get_running_loop().time() + 10
        while (await fetch(api, f"{maps}/gone"))[0] != 404:
            assert asyncio.get_running_loop().time() < deadline
        assert (await fetch(api, f"{maps}/kept"))[0] == 200
