"""Text as Go writes it, for kubelet's state files: JSON, and the checksum over spew's print of a value."""

import json
from collections.abc import Mapping

MAX_STATE_BYTES = 8 * 1024 * 1024
"""Of one state file; longer ones are not read: an agent is to stay within 80 MiB, and what kubelet writes for a
thousand containers with devices is about 1 MiB."""


def fnv1a_32(text: str) -> int:
    """FNV-1a, 32 bits, of a text's UTF-8: kubelet's checksum.New over what spew prints."""
    value = 0x811C9DC5
    for byte in text.encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def go_json(value: object) -> str:
    """JSON without spaces, and with the three characters escaped that HTML would mind."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def with_data_of(file: Mapping[str, object], content: object) -> dict[str, object]:
    """A state file of kubelet 1.37: the fields of the former format, and the content as a string with a checksum."""
    data = go_json(content)
    return {**file, "data": data, "dataChecksum": fnv1a_32(data_hash_input(data))}


def data_hash_input(data: str) -> str:
    """What the checksum of that string is taken of, as spew prints it."""
    return f"(string){data}"
