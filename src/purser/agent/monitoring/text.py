"""Prometheus' text format, for metrics with other exporters' names and types.

The client library renames counters to ``_total``; DCGM exporter and HAMi have not done so.
"""

from collections.abc import Iterable, Mapping
from typing import TypeAlias

Labels: TypeAlias = Mapping[str, str]
Sample: TypeAlias = tuple[Labels, float]

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def family(name: str, kind: str, about: str, samples: Iterable[Sample]) -> str:
    """A metric with its samples, labels in their order; empty where it has none."""
    lines = "".join(f"{name}{{{spelled(labels)}}} {number(value)}\n" for labels, value in samples)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{lines}" if lines else ""


def spelled(labels: Labels) -> str:
    """Labels as they stand between the braces, their values escaped."""
    return ",".join(f'{label}="{value.translate(_ESCAPES)}"' for label, value in labels.items())


def number(value: float) -> str:
    """A finite value as text; whole numbers without a point."""
    return str(int(value)) if value.is_integer() else repr(value)
