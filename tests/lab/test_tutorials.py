"""The tutorials, followed command by command: what is printed is what they show."""

import re
from pathlib import Path

import pytest

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting

from .tutorials import ORDER, ROOT, Reader, blocks, unlike

pytestmark = [pytest.mark.gate, pytest.mark.processes]


@pytest.mark.parametrize(
    ("node", "names"), [("a100-40gb-8", ["first-share"]), ("t4-4", ["first-lost-gpu", "first-why"])]
)
async def test_a_tutorial_prints_what_it_shows(node: str, names: list[str], tmp_path: Path, quiet_logs: None) -> None:
    async with Lab(LabSettings(node_choices([node]))) as lab:
        async with waiting.limit():
            await lab.ready()
        reader = Reader(tmp_path, lab.kubeconfig)
        for name in names:
            await reader.follow(name)
            await reader.given("kubectl delete deployments,pods --all")


async def test_a_driver_upgrade_prints_what_its_tutorial_shows(tmp_path: Path, quiet_logs: None) -> None:
    async with Lab(LabSettings(node_choices(["t4-4:3"]), operator=True)) as lab:
        async with waiting.limit():
            await lab.ready()
        await Reader(tmp_path, lab.kubeconfig).follow("first-upgrade")


async def test_policies_print_what_their_tutorial_shows(tmp_path: Path) -> None:
    await Reader(tmp_path).follow("first-policy")
    (quoted,) = re.findall(r"^> (.+)", (ROOT / "docs/first-policy.md").read_text(), re.MULTILINE)
    assert quoted in (tmp_path / "report.html").read_text()


def test_every_tutorial_begins_with_a_lab_or_its_installation_and_shows_outputs() -> None:
    pages = sorted(path.stem for path in ROOT.glob("docs/first-*.md"))
    assert pages == sorted(ORDER)
    for name in pages:
        found = blocks(name)
        assert re.match(r"make |purser lab ", found[0].commands[0]), name
        assert sum(bool(block.shown) for block in found) >= 3, name


def test_a_line_that_is_not_printed_is_seen() -> None:
    said = "n 1 Tesla T4 Healthy\nn 2 Tesla T4 Healthy\n  Normal  GpuRecovered  71s  x\n"
    assert unlike(("n   3   Tesla T4   Healthy", "Normal GpuRecovered 4s"), said) == []
    assert unlike(("n 0 Tesla T4 Healthy",) * 3, said) == ["n GPU Tesla T4 Healthy"]
