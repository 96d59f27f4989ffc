"""JSON patch (RFC 6902) and JSON merge patch (RFC 7396) over decoded JSON. Pure: the argument is not changed."""

from typing import Any

from .errors import Obj, StatusError, bad_request
from .jsonio import deep_copy, json_kind


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396: null deletes, objects merge, everything else replaces."""
    if not isinstance(patch, dict):
        return deep_copy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


def json_patch(target: Obj, operations: Any) -> Obj:
    """RFC 6902; raises 400 for a malformed patch and 422 for one that does not apply (a failed `test` among them)."""
    if not isinstance(operations, list):
        raise bad_request("a JSON patch must be a list of operations")
    document: Any = deep_copy(target)
    for operation in operations:
        document = _apply(document, operation)
    return document  # type: ignore[no-any-return]


def _apply(document: Any, operation: Any) -> Any:
    if not isinstance(operation, dict) or not isinstance(operation.get("path"), str):
        raise bad_request("every JSON patch operation must have op and path")
    path = _pointer(operation["path"])
    match operation.get("op"):
        case "add":
            return _add(document, path, deep_copy(operation.get("value")))
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, deep_copy(operation.get("value")))
        case "test":
            return _apply_test(document, path, operation.get("value"))
        case "copy":
            return _add(document, path, deep_copy(_get(document, _pointer(operation.get("from")))))
        case "move":
            source = _pointer(operation.get("from"))
            value = _get(document, source)
            return _add(_remove(document, source), path, value)
        case other:
            raise bad_request(f'unknown JSON patch operation "{other or ""}"')


def _pointer(text: Any) -> list[str]:
    if text == "":
        return []
    if not isinstance(text, str) or not text.startswith("/"):
        raise bad_request(f'JSON pointer must start with a slash: "{text or ""}"')
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _failed(why: str) -> StatusError:
    return StatusError(422, "Invalid", f"the server rejected our request due to an error in our request: {why}", {})


def _step(container: Any, key: str) -> Any:
    if isinstance(container, dict) and key in container:
        return container[key]
    if isinstance(container, list):
        return container[_position(container, key, len(container) - 1)]
    raise _failed(f'path "{key}" does not exist')


def _position(container: list[Any], key: str, last: int) -> int:
    if not key.isdigit() or int(key) > last:
        raise _failed(f'index "{key}" is out of bounds for a list of length {len(container)}')
    return int(key)


def _get(document: Any, path: list[str]) -> Any:
    for key in path:
        document = _step(document, key)
    return document


def _add(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    if isinstance(parent, list):
        index = len(parent) if path[-1] == "-" else _position(parent, path[-1], len(parent))
        parent.insert(index, value)
    elif isinstance(parent, dict):
        parent[path[-1]] = value
    else:
        raise _failed(f'cannot add "{path[-1]}" to {json_kind(parent)}')
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        raise _failed("the whole document cannot be removed")
    parent = _get(document, path[:-1])
    _step(parent, path[-1])
    del parent[int(path[-1]) if isinstance(parent, list) else path[-1]]
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    if not path:
        return value
    parent = _get(document, path[:-1])
    _step(parent, path[-1])
    parent[int(path[-1]) if isinstance(parent, list) else path[-1]] = value
    return document


def _apply_test(document: Any, path: list[str], value: Any) -> Any:
    try:
        actual = _get(document, path)
    except StatusError:
        actual = None
    if actual != value:
        raise _failed(f"testing path /{'/'.join(path)} failed")
    return document
