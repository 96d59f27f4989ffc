import base64
import json
import ssl
import sys
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from tests.unit.kube.certificates import Authority
from tests.unit.kube.servers import ManualClock, refuse, serving

from purser.kube import Client, ClusterConfig, ConfigError, TlsError, UnauthorizedError
from purser.kube.config import from_kubeconfig, from_service_account
from purser.kube.login import Login, PluginLogin, Source, StoredLogin

pytestmark = pytest.mark.processes

AUTHORITY = Authority()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kubeconfig(folder: Path, *, cluster=None, user=None, context=None, name="config", **more) -> Path:
    path = folder / name
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"} | (cluster or {})}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"} | (context or {})}],
        "preferences": {},
    } | more
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """A process that has no configuration from anywhere."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_the_order_is_file_then_environment_then_service_account_then_home(nowhere, monkeypatch):
    home = nowhere / "home" / ".kube"
    home.mkdir(parents=True)
    with pytest.raises(
        ConfigError, match=r"KUBECONFIG is not set, purser does not run in a pod, and .*\.kube/config does not exist"
    ):
        ClusterConfig.load()
    with pytest.raises(ConfigError, match=r"KUBECONFIG is not set, a context needs a kubeconfig, and "):
        ClusterConfig.load(context="there")
    kubeconfig(home, cluster={"server": "http://home"})
    assert ClusterConfig.load().server == "http://home"

    account = nowhere / "account"
    account.mkdir()
    (account / "token").write_text("t")
    (account / "ca.crt").write_bytes(AUTHORITY.pem)
    monkeypatch.setattr("purser.kube.config.SERVICE_ACCOUNT_DIR", account)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert ClusterConfig.load().server == "https://10.0.0.1:443"
    assert ClusterConfig.load(context="here").server == "http://home"

    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(nowhere, cluster={"server": "http://environment/"})))
    assert ClusterConfig.load().server == "http://environment"

    given = kubeconfig(nowhere, cluster={"server": "http://given"}, name="given", context={"namespace": "team"})
    assert ClusterConfig.load(given).server == "http://given"
    assert ClusterConfig.load(given).namespace == "team"


def test_files_in_the_environment_are_merged_and_the_first_one_counts(nowhere, monkeypatch):
    one = kubeconfig(nowhere, name="one", users=None, cluster={"server": "http://one"})
    two = kubeconfig(nowhere, name="two", user={"token": "two"}, cluster={"server": "http://two"})
    monkeypatch.setenv("KUBECONFIG", f"{one}:{nowhere / 'missing'}:{two}")
    config = ClusterConfig.load()
    assert config.server == "http://one"
    assert config.source == str(one)


async def test_paths_in_a_kubeconfig_are_relative_to_it(tmp_path):
    (tmp_path / "token").write_text("from-file\n")
    (tmp_path / "ca.pem").write_bytes(AUTHORITY.pem)
    path = kubeconfig(tmp_path, cluster={"certificate-authority": "ca.pem"}, user={"token": "x", "tokenFile": "token"})
    config = from_kubeconfig([path], None)
    assert config.ca == AUTHORITY.pem
    assert await config.login.login() == Login("from-file")


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"cluster": {"server": None}}, "cluster 'c': server is not set"),
        ({"cluster": {"server": "127.0.0.1:6443"}}, "cluster 'c': server must be an http or https URL"),
        ({"cluster": {"server": 6443}}, "Expected `str | null`, got `int` - at `$.clusters[0].cluster.server`"),
        ({"cluster": {"certificate-authority-data": "%%"}}, "cluster 'c': certificate-authority-data is not base64"),
        ({"cluster": {"certificate-authority": "gone.pem"}}, "cluster 'c': certificate-authority: cannot read"),
        ({"cluster": {"proxy-url": "http://p"}}, "cluster 'c': proxy-url is not supported"),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "user 'u': auth-provider is not supported"),
        ({"user": {"username": "me", "password": "x"}}, "user 'u': username is not supported"),
        ({"user": {"as": "admin"}}, "user 'u': as is not supported"),
        ({"user": {"exec": {"command": "x", "apiVersion": "v0"}}}, "user 'u': exec: apiVersion 'v0' is not one of"),
        ({"context": {"cluster": "d"}}, "context 'here' names cluster 'd', which is not defined"),
        ({"context": {"user": "d"}}, "context 'here' names user 'd', which is not defined"),
        ({"current-context": ""}, "current-context is not set; set it, or use --context (contexts: here)"),
        ({"current-context": "there"}, "context 'there' does not exist (contexts: here)"),
        ({"contexts": []}, "context 'here' does not exist (there are no contexts)"),
        ({"contexts": 3}, "Expected `array | null`, got `int` - at `$.contexts`"),
    ],
)
def test_an_error_names_the_file_and_the_field(tmp_path, parts, says):
    path = kubeconfig(tmp_path, **parts)
    with pytest.raises(ConfigError) as caught:
        from_kubeconfig([path], None)
    assert says in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"), [("a: [", "cannot be read"), ("- a", "Expected `object`"), (None, "cannot read")]
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path, text, says):
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=says) as caught:
        ClusterConfig.load(path)
    assert str(path) in str(caught.value)


def test_a_service_account_without_a_token_fails_at_once(tmp_path):
    with pytest.raises(ConfigError, match=r"service account: cannot read .*/token"):
        from_service_account(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})


def test_an_ipv6_service_gets_its_brackets(tmp_path):
    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_bytes(AUTHORITY.pem)
    (tmp_path / "namespace").write_text("purser-system")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
    config = from_service_account(tmp_path, environment)
    assert (config.server, config.namespace) == ("https://[fd00::1]:6443", "purser-system")


async def test_a_token_is_read_again_after_a_minute_and_at_once_when_it_was_rejected(tmp_path):
    clock = ManualClock()
    token = tmp_path / "token"
    token.write_text("one")
    source = StoredLogin(Source("test", path=token), clock=clock)
    one = await source.login()
    token.write_text("two")
    clock.advance(59)
    assert (await source.login()).token == "one"
    clock.advance(1)
    assert (await source.login()).token == "two"
    token.write_text("three")
    assert (await source.login(rejected=one)).token == "two"
    assert (await source.login(rejected=Login("two"))).token == "three"


@pytest.mark.parametrize("token", ["two\nlines", "x y", "ünicode", "\0"])
async def test_what_cannot_be_a_token_is_refused_without_showing_it(tmp_path, token):
    (tmp_path / "token").write_text(token)
    with pytest.raises(ConfigError, match="test: the token contains whitespace, control or non-ASCII") as caught:
        await StoredLogin(Source("test", path=tmp_path / "token")).login()
    assert token not in str(caught.value)


async def test_a_rotated_token_is_picked_up_on_401_and_the_call_goes_through(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")
    valid = "old"

    async def handle(request):
        if request.headers["Authorization"] != f"Bearer {valid}":
            return refuse(401, "Unauthorized")
        return web.json_response({"gitVersion": "v1"})

    async with serving(handle) as url:
        config = ClusterConfig(url, StoredLogin(Source("test", path=token)))
        async with Client(config) as client:
            await client.version()
            valid = "new"
            with pytest.raises(UnauthorizedError):
                await client.version()
            token.write_text("new")
            assert await client.version() == {"gitVersion": "v1"}


def plugin(folder: Path, script: str, **parts):
    program = folder / "plugin.py"
    program.write_text(script)
    path = kubeconfig(folder, user={"exec": {"command": sys.executable, "args": [str(program)]} | parts})
    login = from_kubeconfig([path], None).login
    assert isinstance(login, PluginLogin)
    return login


COUNTING = """
import json, os, pathlib
runs = pathlib.Path({runs!r})
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {{"token": f"{{os.environ['WHO']}}-{{len(runs.read_text())}}", "expirationTimestamp": {expires!r}}}
assert info["spec"]["interactive"] is False
print(json.dumps({{"kind": "ExecCredential", "apiVersion": info["apiVersion"], "status": status}}))
"""


async def test_an_exec_plugin_runs_once_until_its_login_expires_or_is_rejected(tmp_path):
    clock = ManualClock()
    expires = "2026-01-01T01:00:00Z"
    script = COUNTING.format(runs=str(tmp_path / "runs"), expires=expires)
    login = plugin(tmp_path, script, env=[{"name": "WHO", "value": "me"}])
    login._clock = clock
    first = await login.login()
    assert first.token == "me-1"
    assert await login.login() == first
    assert (await login.login(rejected=first)).token == "me-2"
    clock.advance(3600)
    assert (await login.login()).token == "me-3"


async def test_a_login_that_expires_at_gos_zero_time_never_does(tmp_path):
    script = COUNTING.format(runs=str(tmp_path / "runs"), expires="0001-01-01T00:00:00Z")
    login = plugin(tmp_path, script, env=[{"name": "WHO", "value": "me"}])
    assert [(await login.login()).token for _ in range(2)] == ["me-1", "me-1"]


async def test_files_without_an_end_are_named(tmp_path):
    with pytest.raises(ConfigError, match="kubeconfig /dev/zero has 4194305 bytes, more than the maximum"):
        from_kubeconfig([Path("/dev/zero")], None)
    with pytest.raises(ConfigError, match="test: /dev/zero is larger than 1048576 bytes"):
        await StoredLogin(Source("test", path=Path("/dev/zero"))).login()


async def test_an_exec_plugin_gets_the_cluster_where_it_asks_for_it(tmp_path):
    script = (
        "import json, os\n"
        'cluster = json.loads(os.environ["KUBERNETES_EXEC_INFO"])["spec"]["cluster"]\n'
        'print(json.dumps({"status": {"token": cluster["server"]}}))\n'
    )
    assert (await plugin(tmp_path, script, provideClusterInfo=True).login()).token == "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import sys; sys.exit('no session')", "exited with status 1: no session"),
        ("print('hello')", "did not print an ExecCredential"),
        ("print('{\"status\": {}}')", "neither status.token nor status.clientCertificateData"),
        ("while True: print('x' * 4096)", "printed more than 1048576 bytes"),
    ],
)
async def test_an_exec_plugin_that_fails_is_named_with_its_reason(tmp_path, script, says):
    with pytest.raises(ConfigError) as caught:
        await plugin(tmp_path, script).login()
    assert says in str(caught.value)
    assert str(tmp_path / "config") in str(caught.value)


async def test_an_exec_plugin_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"user 'u': exec: cannot run '.*/bin/gone'"):
        await plugin(tmp_path, "", command="./bin/gone").login()


@pytest.fixture
def tls(tmp_path):
    return AUTHORITY.server_context(tmp_path, "kubernetes", ip=None)


async def version(config: ClusterConfig):
    async with Client(config) as client:
        return await client.version()


async def ok(request):
    peer = request.transport.get_extra_info("peercert") or {}
    return web.json_response({"peer": json.dumps(peer.get("subject", ""))})


async def test_the_servers_certificate_must_be_by_the_ca_and_for_the_name(tmp_path, tls):
    async with serving(ok, tls) as url:
        ca = {"certificate-authority-data": b64(AUTHORITY.pem)}
        named = ca | {"server": url, "tls-server-name": "kubernetes"}
        assert await version(from_kubeconfig([kubeconfig(tmp_path, cluster=named)], None))
        with pytest.raises(TlsError, match=r"the certificate of https://.* is not trusted"):
            await version(from_kubeconfig([kubeconfig(tmp_path, cluster=ca | {"server": url})], None))
        other = named | {"certificate-authority-data": b64(Authority().pem)}
        with pytest.raises(TlsError):
            await version(from_kubeconfig([kubeconfig(tmp_path, cluster=other)], None))
        skip = {"server": url, "insecure-skip-tls-verify": True}
        assert await version(from_kubeconfig([kubeconfig(tmp_path, cluster=skip)], None))


async def test_a_client_certificate_is_shown_and_read_again_when_its_file_changed(tmp_path):
    tls = AUTHORITY.server_context(tmp_path, "kubernetes", ip="127.0.0.1", ask_clients=True)
    names = ["one", "two"]
    certificate, key = AUTHORITY.issue(names[0])
    (tmp_path / "client.crt").write_bytes(certificate)
    (tmp_path / "client.key").write_bytes(key)
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    async with serving(ok, tls) as url:
        cluster = {"server": url, "certificate-authority-data": b64(AUTHORITY.pem)}
        config = from_kubeconfig([kubeconfig(tmp_path, cluster=cluster, user=user)], None)
        config.login._clock = clock = ManualClock()
        async with Client(config) as client:
            assert '"one"' in (await client.version())["peer"]
            certificate, key = AUTHORITY.issue(names[1])
            (tmp_path / "client.crt").write_bytes(certificate)
            (tmp_path / "client.key").write_bytes(key)
            clock.advance(61)
            assert '"two"' in (await client.version())["peer"]


@pytest.mark.parametrize("user", [{"client-certificate-data": b64(b"no pem"), "client-key-data": b64(b"none")}])
async def test_a_client_certificate_that_is_none_is_a_configuration_error(tmp_path, user):
    config = from_kubeconfig([kubeconfig(tmp_path, cluster={"server": "https://127.0.0.1:1"}, user=user)], None)
    with pytest.raises(ConfigError, match="client certificate and key cannot be used"):
        await version(config)


def test_a_ca_that_is_none_is_a_configuration_error(tmp_path):
    cluster = {"server": "https://127.0.0.1:1", "certificate-authority-data": b64(b"no pem")}
    with pytest.raises(ConfigError, match="is not a PEM certificate"):
        Client(from_kubeconfig([kubeconfig(tmp_path, cluster=cluster)], None))


def test_logins_do_not_show_their_secrets():
    assert "hush" not in repr(Login("hush", b"hush", b"hush"))
    assert "hush" not in repr(ClusterConfig.insecure("http://x", token="hush"))
    assert ClusterConfig("https://x").ssl_context(Login()).verify_mode == ssl.CERT_REQUIRED
