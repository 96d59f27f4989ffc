"""Everything served that is not a resource: version, discovery, OpenAPI. Pure."""

from dataclasses import dataclass

from . import discovery, jsonio, openapi
from .errors import Obj
from .resources import Registry

_ROOT: Obj = {
    "paths": ["/api", "/apis", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/readyz", "/version"],
}


@dataclass(frozen=True, slots=True)
class Document:
    """Bytes and what they are."""

    body: bytes
    content_type: str = "application/json"


def find(registry: Registry, parts: list[str], accept: str, address: str) -> Document | None:
    """The document at a path, or None where a resource must answer; raises 404 for groups that are not served."""
    if parts[:2] == ["openapi", "v2"] and openapi.ACCEPT_V2 in accept:
        return Document(openapi.v2_protobuf(), openapi.PROTOBUF_V2)
    content = _content(registry, parts, address)
    return None if content is None else Document(jsonio.encode(content))


def _content(registry: Registry, parts: list[str], address: str) -> Obj | None:
    match parts:
        case []:
            return _ROOT
        case ["version"]:
            return discovery.version()
        case ["api"]:
            return discovery.core_versions(address)
        case ["apis"]:
            return discovery.groups(registry)
        case ["apis", group]:
            return discovery.group(registry, group)
        case ["api", version]:
            return discovery.resources(registry, "", version)
        case ["apis", group, version]:
            return discovery.resources(registry, group, version)
        case ["openapi", "v2"]:
            return openapi.v2()
        case ["openapi", "v3"]:
            return openapi.v3_index(registry)
        case ["openapi", "v3", *path]:
            return openapi.v3(registry, "/".join(path))
    return None
