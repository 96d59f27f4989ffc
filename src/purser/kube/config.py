"""Which API server to talk to, and as whom."""

import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from purser.kube.errors import ConfigError
from purser.kube.kubeconfig import ExecConfig, SelectedContext, choose
from purser.kube.login import Login, LoginSource, PluginCommand, PluginLogin, Source, StoredLogin

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PLUGIN_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")


@dataclass(frozen=True)
class ClusterConfig:
    """An API server, the CA that vouches for it, and a source of logins."""

    server: str
    """Base URL, without a slash at the end."""
    login: LoginSource = field(default_factory=StoredLogin, repr=False)
    ca: bytes = field(default=b"", repr=False)
    """PEM of the CA; empty: the system's."""
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    """The name to expect in the server's certificate instead of the URL's host."""
    namespace: str = "default"
    source: str = "arguments"
    """Where this came from, for people."""

    @classmethod
    def load(cls, kubeconfig: Path | None = None, context: str | None = None) -> "ClusterConfig":
        """The configuration of this process.

        In order: the file given, the files in ``$KUBECONFIG``, the pod's service account (unless a context is named:
        it has none), ``~/.kube/config``. Raises `ConfigError`.
        """
        if kubeconfig is not None:
            return from_kubeconfig([kubeconfig], context)
        if listed := [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]:
            existing = [path for path in listed if path.exists()]
            return from_kubeconfig(existing or listed, context)
        if context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            return from_service_account(SERVICE_ACCOUNT_DIR, os.environ)
        return from_home_directory(Path.home() / ".kube" / "config", context)

    @classmethod
    def insecure(cls, server: str, token: str = "") -> "ClusterConfig":
        """A server without TLS, or one whose certificate is not looked at: for the lab and for tests."""
        login = StoredLogin(Source("arguments", token.encode()))
        return cls(server.rstrip("/"), login, insecure_skip_tls_verify=True)

    def ssl_context(self, login: Login) -> ssl.SSLContext | None:
        """What TLS connections with this login are made with; None for plain HTTP. Raises `ConfigError`."""
        if not self.server.startswith("https:"):
            return None
        context = _insecure_context() if self.insecure_skip_tls_verify else _server_trust(self.ca, self.source)
        if login.certificate:
            _load_client_certificate(context, login, self.source)
        return context


def from_home_directory(path: Path, context: str | None) -> ClusterConfig:
    """The kubeconfig of last resort. Raises `ConfigError` that says what was looked for."""
    if not path.exists():
        why = "purser does not run in a pod" if context is None else "a context needs a kubeconfig"
        raise ConfigError(
            f"no cluster is configured: KUBECONFIG is not set, {why}, and {path} does not exist: specify a kubeconfig "
            "with --kubeconfig"
        )
    return from_kubeconfig([path], context)


def from_service_account(folder: Path, environment: Mapping[str, str]) -> ClusterConfig:
    """The configuration that every pod with a service account has. Raises `ConfigError`."""
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    where = "service account"
    token = Source(where, path=folder / "token")
    token.read()  # a pod without automountServiceAccountToken fails here, not at the first request
    namespace = folder / "namespace"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        login=StoredLogin(token),
        ca=Source(where, path=folder / "ca.crt").read(),
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        source=where,
    )


def from_kubeconfig(paths: list[Path], context: str | None) -> ClusterConfig:
    """One context of a kubeconfig. Raises `ConfigError` that names file and field."""
    choice = choose(paths, context)
    cluster = choice.cluster
    where = f"{choice.cluster_file}: cluster {choice.cluster_name!r}"
    if not cluster.server:
        raise ConfigError(f"{where}: server is not set")
    if not cluster.server.startswith(("http://", "https://")):
        raise ConfigError(f"{where}: server must be an http or https URL, not {cluster.server!r}")
    if cluster.proxy_url:
        raise ConfigError(f"{where}: proxy-url is not supported; connect to the server directly or by port-forwarding")
    ca = _source(
        where,
        choice.cluster_file,
        "certificate-authority",
        cluster.certificate_authority,
        cluster.certificate_authority_data,
    )
    return ClusterConfig(
        server=cluster.server.rstrip("/"),
        login=_login(choice),
        ca=ca.read(),
        insecure_skip_tls_verify=bool(cluster.insecure_skip_tls_verify),
        tls_server_name=cluster.tls_server_name or None,
        namespace=choice.context.namespace or "default",
        source=str(choice.cluster_file),
    )


def _login(choice: SelectedContext) -> LoginSource:
    user, file = choice.user, choice.user_file
    where = f"{file}: user {choice.user_name!r}"
    for field_name, value in (
        ("username", user.username),
        ("auth-provider", user.auth_provider),
        ("as", user.impersonate),
    ):
        if value:
            raise ConfigError(f"{where}: {field_name} is not supported; use a token, a client certificate or exec")
    if user.exec_ is not None:
        return PluginLogin(_plugin(choice, user.exec_, f"{where}: exec"))
    token = Source(f"{where}: token", (user.token or "").encode())
    if user.token_file:  # takes precedence over token, as with kubectl
        token = Source(f"{where}: tokenFile", path=_relative_path(file, user.token_file))
    return StoredLogin(
        token,
        _source(where, file, "client-certificate", user.client_certificate, user.client_certificate_data),
        _source(where, file, "client-key", user.client_key, user.client_key_data),
    )


def _plugin(choice: SelectedContext, plugin: ExecConfig, where: str) -> PluginCommand:
    if plugin.api_version not in _PLUGIN_VERSIONS:
        raise ConfigError(f"{where}: apiVersion {plugin.api_version!r} is not one of {', '.join(_PLUGIN_VERSIONS)}")
    # A command with a slash is a path, relative to the file; one without is looked for in PATH.
    command = str(_relative_path(choice.user_file, plugin.command)) if "/" in plugin.command else plugin.command
    cluster = choice.cluster
    cluster_info = {
        "server": cluster.server,
        "certificate-authority-data": cluster.certificate_authority_data,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
    }
    return PluginCommand(
        where,
        plugin.api_version,
        (command, *(plugin.args or ())),
        {variable.name: variable.value for variable in plugin.env or ()},
        {key: value for key, value in cluster_info.items() if value} if plugin.provide_cluster_info else None,
    )


def _source(where: str, file: Path, name: str, path: str | None, data: str | None) -> Source:
    if data:  # takes precedence over the path, as with kubectl
        try:
            return Source(f"{where}: {name}-data", base64.b64decode("".join(data.split()), validate=True))
        except binascii.Error as error:
            raise ConfigError(f"{where}: {name}-data is not base64: {error}") from error
    return Source(f"{where}: {name}", path=_relative_path(file, path) if path else None)


def _relative_path(file: Path, path: str) -> Path:
    return file.parent / path


def _server_trust(ca: bytes, source: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=ca.decode("ascii") if ca else None)
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{source}: the certificate authority is not a PEM certificate: {error}") from error
    # Since Python 3.13 the default asks for extensions that the CAs of many clusters lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _insecure_context() -> ssl.SSLContext:
    """Any certificate is accepted: the machine's authorities are not loaded for nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _load_client_certificate(context: ssl.SSLContext, login: Login, source: str) -> None:
    # OpenSSL's loader takes paths only. The folder and the file are readable by this user alone, and gone at once.
    with tempfile.TemporaryDirectory(prefix="purser-") as folder:
        pem = Path(folder) / "client.pem"
        pem.touch(mode=0o600)
        pem.write_bytes(login.key + b"\n" + login.certificate)
        try:
            context.load_cert_chain(pem, password="")  # never ask on the terminal
        except ssl.SSLError as error:
            raise ConfigError(f"{source}: client certificate and key cannot be used: {error}") from error
