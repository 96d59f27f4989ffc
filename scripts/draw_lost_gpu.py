"""Draws docs/pictures/lost-gpu.svg: what commands printed in a lab in which a GPU was lost, frame by frame.

    python scripts/draw_lost_gpu.py [REPOSITORY]
    python scripts/draw_lost_gpu.py --record

With ``--record`` it starts a lab, gives the commands there and keeps what they print in docs/pictures/lost-gpu.txt,
from which it draws. It needs kubectl and `purser` on the PATH. A test compares the picture with what is drawn here.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
RECORD = Path("docs/pictures/lost-gpu.txt")
PICTURE = Path("docs/pictures/lost-gpu.svg")

LAB = ("purser", "lab", "--node", "t4-4")
TRY_S, READY_S = 90, 120
"""How long a command is given again until it prints what is awaited, and a lab may take to start. Seconds."""

SECONDS = 6
"""How long a frame is shown."""
STILL = 1
"""The frame that readers see who want no motion, or whose program knows no animations."""
COLUMN, LINE, MARGIN, HEADER = 7.8, 18, 20, 44
"""Pixels: a character of 13 pixels in a font of fixed width, a line, the border, and what is above the first line."""


@dataclass(frozen=True)
class Frame:
    """A caption and a screen: commands, each after ``$ ``, and what they printed."""

    caption: str
    lines: tuple[str, ...]


def main(arguments: list[str]) -> None:
    """Record, where that is asked for, and draw."""
    if arguments == ["--record"]:
        (REPOSITORY / RECORD).write_text(recorded())
        arguments = []
    repository = Path(arguments[0]) if arguments else REPOSITORY
    (repository / PICTURE).write_text(drawn())


def recorded() -> str:
    """The text of all frames, from a lab of its own."""
    with subprocess.Popen(LAB, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as lab:
        try:
            return "\n".join(_story(Terminal(os.environ | {"KUBECONFIG": _kubeconfig(lab)})))
        finally:
            lab.terminate()


def _kubeconfig(lab: "subprocess.Popen[str]") -> str:
    assert lab.stdout
    end = time.monotonic() + READY_S
    for line in lab.stdout:
        if found := re.search(r"KUBECONFIG=(\S+)", line):
            return found[1]
        if time.monotonic() > end:
            break
    raise SystemExit("the lab did not start")


class Terminal:
    """Where commands are given."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment

    def output(self, command: str) -> str:
        """What a command prints, on both streams."""
        done = subprocess.run(
            command.split(),
            cwd=REPOSITORY,
            env=dict(self._environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return "".join(f"{line.rstrip()}\n" for line in done.stdout.splitlines())

    def given(self, command: str, awaited: str = "") -> str:
        """The command and what it printed, once a pattern is in that."""
        end = time.monotonic() + TRY_S
        while not re.search(awaited, printed := self.output(command)):
            if time.monotonic() > end:
                raise SystemExit(f"{command} never printed {awaited}, but:\n{printed}")
            time.sleep(0.5)
        return f"$ {command}\n{printed}"


def _story(terminal: Terminal) -> list[str]:
    given = terminal.given
    begin = [given("kubectl apply -f examples/deployment.yaml"), given("purser get grants", r"(running[^$]*){6}")]
    lost = int(re.findall(r"t4-4-0 +(\d)", begin[1])[0])
    events = "kubectl get events --field-selector reason=GpuUnhealthy -o custom-columns=MESSAGE:.message --no-headers"
    fails = [
        given(f"purser lab gpu lose t4-4-0 {lost}"),
        given("purser get gpus", "Unhealthy"),
        given(events, "fallen off the bus"),
    ]
    pods = re.findall(rf"^default +(\S+) +main +t4-4-0 +{lost} ", begin[1], re.MULTILINE)
    move = [given(f"kubectl delete pods {' '.join(pods)}"), given("purser get grants", r"(running[^$]*){6}")]
    recover = [given(f"purser lab gpu recover t4-4-0 {lost}"), given("purser get gpus", r"^(?![\s\S]*Unhealthy)")]
    return [
        "# Six pods hold half a GPU each",
        *begin,
        f"# GPU {lost} falls off the bus: new pods avoid it, and an event says what to do",
        *fails,
        "# You delete its two pods: their replicas get the GPU that is free",
        *move,
        f"# GPU {lost} answers again, and takes pods",
        *recover,
    ]


def frames(text: str) -> list[Frame]:
    """The frames of a record: each begins with a caption after ``# ``."""
    parts = re.split(r"^# (.+)\n", text, flags=re.MULTILINE)[1:]
    return [
        Frame(caption, tuple(screen.strip("\n").split("\n")))
        for caption, screen in zip(parts[::2], parts[1::2], strict=True)
    ]


def drawn() -> str:
    """The picture of the record that is kept. Fonts are the reader's own: nothing is loaded from elsewhere."""
    shown = frames((REPOSITORY / RECORD).read_text())
    width = round(max(len(line) for frame in shown for line in frame.lines) * COLUMN + 2 * MARGIN)
    height = HEADER + max(len(frame.lines) for frame in shown) * LINE + MARGIN
    total = SECONDS * len(shown)
    screens = "\n".join(_screen(frame, place, len(shown), total) for place, frame in enumerate(shown))
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" {size} xml:space="preserve" role="img" aria-labelledby="title">
<title id="title">A GPU is lost in purser lab: {escape("; ".join(frame.caption for frame in shown))}</title>
<style>
svg {{ --paper: #ffffff; --edge: #d0d7de; --ink: #24292f; --strong: #0550ae; --bad: #b3261e; --good: #1a7f37; }}
@media (prefers-color-scheme: dark) {{
svg {{ --paper: #161b22; --edge: #444c56; --ink: #d1d7e0; --strong: #79c0ff; --bad: #ff8b82; --good: #6fdd8b; }}
}}
rect {{ fill: var(--paper); stroke: var(--edge); }}
text {{ fill: var(--ink); font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; }}
.caption {{ font: bold 15px system-ui, sans-serif; }}
.command {{ fill: var(--strong); font-weight: bold; }}
.bad {{ fill: var(--bad); font-weight: bold; }}
.good {{ fill: var(--good); }}
.frame {{ opacity: 0; animation: show {total}s step-end infinite; }}
.still {{ opacity: 1; }}
@keyframes show {{ 0% {{ opacity: 1; }} {100 / len(shown):g}% {{ opacity: 0; }} }}
@media (prefers-reduced-motion: reduce) {{ .frame {{ animation: none; }} }}
</style>
<rect x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="8"/>
{screens}
</svg>
"""


def _screen(frame: Frame, place: int, count: int, total: int) -> str:
    lines = "\n".join(
        f'<text x="{MARGIN}" y="{HEADER + (number + 1) * LINE}">{_marked(line)}</text>'
        for number, line in enumerate(frame.lines)
        if line
    )
    still = " still" if place == STILL else ""
    return f"""\
<g class="frame{still}" style="animation-delay: {place * SECONDS - total}s">
<text class="caption" x="{MARGIN}" y="30">{place + 1}/{count} {escape(frame.caption)}</text>
{lines}
</g>"""


def _marked(line: str) -> str:
    text = escape(line, quote=False)
    if text.startswith("$ "):
        return f'<tspan class="command">{text}</tspan>'
    text = re.sub(r"\b(Unhealthy|unhealthy|Warning:)", r'<tspan class="bad">\1</tspan>', text)
    return re.sub(r"\b(Healthy|running)\b", r'<tspan class="good">\1</tspan>', text)


if __name__ == "__main__":
    main(sys.argv[1:])
