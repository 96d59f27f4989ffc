"""Write the lab API server's table of protobuf field numbers from the `generated.proto` files of the Kubernetes API.

Only numbers, names and types are taken. Usage: `python scripts/make_apiserver_protobuf.py FOLDER...`, where each
folder holds such files and the types.go beside them (checkouts of k8s.io/api, k8s.io/apimachinery and
k8s.io/apiextensions-apiserver). Field numbers never change, so any version at least as new as the schemas does.
"""

import json
import re
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/purser/lab/apiserver"
SCHEMAS = PACKAGE / "builtin_schemas.json"
TARGET = PACKAGE / "builtin_protobuf.json"
MESSAGE = re.compile(r"^message (\w+) \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"^  (optional|repeated|map<string, ?([.\w]+)>)\s+(?:([.\w]+) )?(\w+) = (\d+);", re.MULTILINE)
INLINED = (
    "ProbeHandler",
    "VolumeSource",
    "PersistentVolumeSource",
    "LocalObjectReference",
    "Rule",
    "EphemeralContainerCommon",
)
STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
GO_FIELD = re.compile(r'^\s+\w+\s+(\S+)\s+`json:"(\w+)([\w,]*)"', re.MULTILINE)
SCALARS = ("string", "int32", "int64", "bool", "bytes", "double")


def short(package: str, name: str) -> str:
    """`.k8s.io.api.core.v1.PodSpec` -> `core.v1.PodSpec`; bare names belong to the file's package."""
    if name in SCALARS:
        return name
    full = name.lstrip(".") if "." in name else f"{package}.{name}"
    return ".".join(full.split(".")[-3:])


def messages(text: str) -> dict[str, dict[str, list[str]]]:
    """Fields of each message by number: name, type, and `one`, `many` or `map`."""
    package = re.search(r"^package ([\w.]+);", text, re.MULTILINE)
    assert package
    found: dict[str, dict[str, list[str]]] = {}
    for name, body in MESSAGE.findall(text):
        fields = {}
        for kind, mapped, plain, field, number in FIELD.findall(body):
            shape = "map" if mapped else "many" if kind == "repeated" else "one"
            fields[number] = [field, short(package[1], mapped or plain), shape]
        found[short(package[1], name)] = fields
    return found


def kept_zeros(folder: Path, group: str) -> set[tuple[str, str]]:
    """(type, field) of the scalars whose zero value means something: pointers, and fields that JSON never omits."""
    types = (folder / "types.go").read_text()
    found = set()
    for name, body in STRUCT.findall(types):
        for go_type, field, options in GO_FIELD.findall(body):
            if go_type.startswith("*") or "omitempty" not in options:
                found.add((f"{group}.v1.{name}", field))
    return found


def main(folders: list[str]) -> None:
    """Keep the messages whose types are served; mark what Go inlines by an empty name."""
    schemas = json.loads(SCHEMAS.read_text())
    every: dict[str, dict[str, list[str]]] = {}
    zeros: set[tuple[str, str]] = set()
    for folder in folders:
        for path in sorted(Path(folder).rglob("v1/generated.proto")):
            every |= messages(path.read_text())
            zeros |= kept_zeros(path.parent, path.parts[-3])
    wanted, table = [name for name in schemas if name in every], {}
    while wanted:
        name = wanted.pop()
        if name in table or name not in every:
            continue
        spelled = {field.lower(): field for field in schemas.get(name, {}).get("properties", {})}
        kept = {}
        for number, (field, type_name, shape) in every[name].items():
            inlined = type_name.rsplit(".", 1)[-1] in INLINED and field.lower() not in spelled
            if not spelled or inlined or field.lower() in spelled:
                spelling = "" if inlined else spelled.get(field.lower(), field)
                zero = ["zero"] if type_name in SCALARS and shape == "one" and (name, spelling) in zeros else []
                kept[number] = [spelling, type_name, shape, *zero]
                wanted.append(type_name)
        table[name] = kept
    lines = [f"{json.dumps(name)}: {json.dumps(table[name], separators=(',', ':'))}" for name in sorted(table)]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
