"""What kubelet says to a plugin that registers, by either path."""

import json
from collections.abc import Collection

from purser.core.kubernetes.naming import is_subdomain, is_unprefixed_name

API_VERSION = "v1beta1"
"""The only version of the device plugin API there is."""


def register_refusal(version: str, resource: str) -> str | None:
    """The error of a Register call on kubelet.sock; None when it is accepted."""
    if version != API_VERSION:
        return (
            f"requested API version {_quote(version)} is not supported by kubelet. "
            f"Supported version is [{_quote(API_VERSION)}]"
        )
    return None if is_extended_resource(resource) else _invalid_name(resource)


def watcher_refusal(versions: Collection[str], resource: str) -> str | None:
    """The error in NotifyRegistrationStatus for a plugin in plugins_registry; None when it is accepted."""
    if API_VERSION not in versions:
        return f"manager version, {API_VERSION}, is not among plugin supported versions [{' '.join(versions)}]"
    return (
        None if is_extended_resource(resource) else f"invalid name of device plugin socket: {_invalid_name(resource)}"
    )


def is_extended_resource(name: str) -> bool:
    """Whether kubelet would take this name for a device plugin's resource (IsExtendedResourceName)."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    prefix, _, rest = f"requests.{name}".partition("/")
    return is_subdomain(prefix) and is_unprefixed_name(rest)


def _invalid_name(resource: str) -> str:
    return f"the ResourceName {_quote(resource)} is invalid"


def _quote(text: str) -> str:
    """As Go's ``%q`` writes printable text."""
    return json.dumps(text, ensure_ascii=False)
