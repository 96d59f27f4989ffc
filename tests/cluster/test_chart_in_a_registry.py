"""The chart on its way through a registry, with the commands of docs/install.md; no cluster is needed."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from purser import __version__

from .documented import INSTALL, PUBLISH, commands
from .helm import CHART, Helm, registry
from .kubernetes import Binaries, releases
from .neighbours import program


@pytest.fixture
def binaries() -> Binaries:
    if "registry" not in releases.beside(releases.wanted()):
        pytest.skip("no Helm is built beside this release")
    found = Binaries.chosen()
    for name in ("helm", "registry"):
        program(found, name)
    return found


@pytest.fixture
def address(binaries: Binaries, tmp_path: Path) -> Iterator[str]:
    with registry(binaries, tmp_path) as found:
        yield found


@pytest.fixture
def helm(binaries: Binaries, address: str, tmp_path: Path) -> Helm:
    """The registry has the chart."""
    helm = Helm(binaries, tmp_path)
    for command in commands(PUBLISH, address):
        match shlex.split(command):
            case ["helm", *words]:
                helm(*words)
    return helm


def test_what_is_installed_is_the_chart_of_the_checkout(helm: Helm, address: str) -> None:
    [command] = commands(INSTALL, address)
    _, verb, name, chart, _, version, *options = shlex.split(command)
    assert (verb, version) == ("install", __version__)
    helm("pull", chart, f"--version={version}", "--untar")
    pulled = helm.folder / "purser"
    assert contents(pulled) == contents(CHART)
    here = helm("template", name, str(CHART), *options)
    assert helm("template", name, chart, f"--version={version}", *options) == here


def test_a_version_that_nobody_pushed_is_not_found(helm: Helm, address: str) -> None:
    with pytest.raises(RuntimeError, match=r"0\.0\.9.*not found"):
        helm("show", "chart", f"oci://{address}/charts/purser", "--version=0.0.9")


def contents(folder: Path) -> dict[str, object]:
    """Each file's, but for the order in which Helm writes the entries of Chart.yaml."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return {**files, "Chart.yaml": yaml.safe_load(files["Chart.yaml"])}
