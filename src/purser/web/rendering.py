"""Pages as HTML. Whatever comes from the cluster is text: the templates escape it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from purser import __version__
from purser.top.lines import clean
from purser.top.views import age
from purser.web.cards import Health, device_name, health_of, mig_profile
from purser.web.tables import (
    MAX_PODS_OF_A_REASON,
    MIB_PER_GIB,
    HeldAmount,
    message_without_suggestion,
)
from purser.web.waits import wait_text


@dataclass(frozen=True)
class NavigationEntry:
    """A link at the top of each page."""

    path: str
    label: str
    is_current: bool


_PAGES = {"/": "Fleet", "/nodes": "Nodes", "/waiting": "Waiting", "/use": "Use", "/operator": "Operator"}

STATUS_CLASSES = {
    Health.HEALTHY: "status-ok",
    Health.DEGRADED: "status-warn",
    Health.CORDONED: "status-warn",
    Health.PAUSED: "status-warn",
    Health.DISPUTED: "status-bad",
    Health.UNHEALTHY: "status-bad",
}

MAX_NODES_IN_A_SENTENCE = 10


@cache
def _environment() -> Environment:
    """With the templates, each compiled once in a process."""
    environment = Environment(
        loader=PackageLoader("purser.web"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        clean=clean,
        gib=gib,
        health=health_of,
        device_name=device_name,
        mig_profile=mig_profile,
        shell=lambda word: shlex.quote(clean(word)),
        without_suggestion=message_without_suggestion,
        wait=wait_text,
    )
    environment.globals.update(
        health_words=list(Health),
        status_classes=STATUS_CLASSES,
        gpu_memory=lambda gpu: HeldAmount(gpu.memory_held_mib, gpu.memory_mib),
        gpu_cores=lambda gpu: HeldAmount(gpu.cores_held_percent, gpu.cores_percent),
        most_nodes=MAX_NODES_IN_A_SENTENCE,
        most_pods=MAX_PODS_OF_A_REASON,
        version=__version__,
    )
    return environment


def page(template: str, *, path: str, where: str, problem: str, now: float, **values: object) -> str:
    """A whole page. ``path``: where it is; ``where``: what is read; ``now``: seconds since the epoch."""
    return (
        _environment()
        .get_template(template)
        .render(
            nav=navigation(path),
            where=where,
            problem=problem,
            age=lambda since: age(since, now),
            duration=duration,
            **values,
        )
    )


def navigation(path: str) -> Sequence[NavigationEntry]:
    """The links, with the one marked that a page is, or is below."""
    below: Mapping[str, str] = {"gpus": "/nodes"}
    first = path.strip("/").split("/")[0]
    current = "/" if not first else f"/{first}" if f"/{first}" in _PAGES else below.get(first, "")
    return [NavigationEntry(each, label, each == current) for each, label in _PAGES.items()]


def duration(seconds: int) -> str:
    """``30m``, ``6h`` or ``7d``: what a whole number of these is."""
    for unit, length in (("d", 86400), ("h", 3600)):
        if seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds // 60}m"


def gib(mib: int) -> str:
    """``15.0 GiB``."""
    return f"{mib / MIB_PER_GIB:,.1f} GiB"
