"""Kubeconfig files: reading, merging, and picking one context."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from purser.core.decoding import UnreadableError, convert_value
from purser.kube.errors import ConfigError
from purser.yaml_reading import MAX_YAML_BYTES, read_yaml

N = TypeVar("N", bound="_Named")


class KubeconfigCluster(msgspec.Struct, frozen=True, rename="kebab"):
    """Where an API server is and how to know it."""

    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class ExecVariable(msgspec.Struct, frozen=True):
    """An environment variable of a plugin."""

    name: str
    value: str


class ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    """A plugin that prints credentials."""

    command: str
    api_version: str = "client.authentication.k8s.io/v1"
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    provide_cluster_info: bool | None = None


class KubeconfigUser(msgspec.Struct, frozen=True, rename="kebab"):
    """How to log in."""

    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    auth_provider: dict[str, Any] | None = None
    impersonate: str | None = msgspec.field(default=None, name="as")
    exec_: ExecConfig | None = msgspec.field(default=None, name="exec")


class Context(msgspec.Struct, frozen=True):
    """A cluster and a user."""

    cluster: str
    user: str = ""
    namespace: str | None = None


class _Named(msgspec.Struct, frozen=True):
    name: str


class _NamedCluster(_Named, frozen=True):
    cluster: KubeconfigCluster


class _NamedUser(_Named, frozen=True):
    user: KubeconfigUser | None = None


class _NamedContext(_Named, frozen=True):
    context: Context


class _File(msgspec.Struct, frozen=True, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    users: list[_NamedUser] | None = None
    contexts: list[_NamedContext] | None = None


@dataclass(frozen=True, slots=True)
class SelectedContext:
    """One context of a kubeconfig, with the files its parts stand in: relative paths are relative to those."""

    context: Context
    cluster: KubeconfigCluster
    cluster_name: str
    cluster_file: Path
    user: KubeconfigUser
    user_name: str
    user_file: Path


def choose(paths: Sequence[Path], context: str | None = None) -> SelectedContext:
    """The named context, or the current one, out of one or more files.

    Of entries with the same name the first file's counts, as with kubectl. Raises `ConfigError`.
    """
    files = [(path, _read(path)) for path in paths]
    shown = ", ".join(map(str, paths))
    name = context or next((file.current_context for _, file in files if file.current_context), None)
    if not name:
        raise ConfigError(f"{shown}: current-context is not set; set it, or use --context ({_names(files)})")
    found = _find([(path, file.contexts) for path, file in files], name)
    if found is None:
        raise ConfigError(f"{shown}: context {name!r} does not exist ({_names(files)})")
    return _resolve(files, found[0], found[1])


def _resolve(files: list[tuple[Path, _File]], path: Path, named: _NamedContext) -> SelectedContext:
    context = named.context
    cluster = _find([(path, file.clusters) for path, file in files], context.cluster)
    if cluster is None:
        raise ConfigError(f"{path}: context {named.name!r} names cluster {context.cluster!r}, which is not defined")
    user = _find([(path, file.users) for path, file in files], context.user)
    if user is None and context.user:
        raise ConfigError(f"{path}: context {named.name!r} names user {context.user!r}, which is not defined")
    user_file, user_value = (user[0], user[1].user or KubeconfigUser()) if user else (path, KubeconfigUser())
    return SelectedContext(
        context, cluster[1].cluster, context.cluster, cluster[0], user_value, context.user, user_file
    )


def _find(lists: list[tuple[Path, list[N] | None]], name: str) -> tuple[Path, N] | None:
    return next(((path, item) for path, items in lists for item in items or () if item.name == name), None)


def _names(files: list[tuple[Path, _File]]) -> str:
    names = [context.name for _, file in files for context in file.contexts or ()]
    return f"contexts: {', '.join(names)}" if names else "there are no contexts"


def _read(path: Path) -> _File:
    try:
        with path.open("rb") as file:  # it may be a pipe
            document = read_yaml(file.read(MAX_YAML_BYTES + 1), f"kubeconfig {path}")
        return convert_value(document or {}, _File, f"kubeconfig {path}")
    except OSError as error:
        raise ConfigError(f"cannot read kubeconfig {path}: {error.strerror}") from error
    except UnreadableError as error:
        raise ConfigError(str(error)) from error
