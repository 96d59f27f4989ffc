"""YAML in which every text stays a text for any parser.

Parsers disagree on what is a text: kubectl's makes booleans of ``y`` and ``n``, and numbers of ``0o17``, ``1e3`` and
``-_1``, which PyYAML writes without quotes.
"""

import re
from typing import Any

import yaml

_WORDS = r"y|n|yes|no|on|off|true|false|null|~|=|<<|[-+]?\.(inf|nan)"
_NUMBERS = r"[-+]?[._]*[0-9].*"
"""Whatever begins like one: versions, dates and addresses, too."""

_OTHER_TYPE_PATTERN = re.compile(f"({_WORDS}|{_NUMBERS})", re.IGNORECASE | re.DOTALL)
_RARE_LINE_BREAKS = re.compile("[\x85\u2028\u2029]")
"""Parsers of YAML 1.1 take these for line breaks, others do not: between double quotes they are escaped."""


_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_DUMPER):  # type: ignore[misc]
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = '"' if _RARE_LINE_BREAKS.search(text) else "'" if _OTHER_TYPE_PATTERN.fullmatch(text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def yaml_text(value: Any, *, sort_keys: bool = False, width: int = 80) -> str:
    """A plain value as one YAML document. Without anchors: what occurs twice is written twice."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True, width=width)
    return text
