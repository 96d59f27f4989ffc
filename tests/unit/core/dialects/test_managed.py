"""kube-scheduler asks Purser about every name that an agent can list by itself: of all profiles that are known, by each
MIG strategy, divided or not, the same in chart and lab."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from purser.core.device.gpus import NodeGpu, NodeMigDevice
from purser.core.dialects.managed import is_managed, managed_resources
from purser.core.mig import MIG_KINDS
from purser.core.mig.families import FAMILIES
from purser.core.mig.listing import ids_by_resource
from purser.core.model import Device
from purser.core.sharing import MigStrategy, advertised_devices, plugin_file
from purser.lab import profile as lab_profile
from purser.operator.manifests.mig_manager import layouts

CHART = Path(__file__).parents[4] / "deploy" / "helm" / "purser" / "files" / "managed-resources.yaml"
LISTS = {
    "chart": {each["name"] for each in yaml.safe_load(CHART.read_text())},
    "lab": {each["name"] for each in lab_profile.configuration(0)["extenders"][0]["managedResources"]},
}
PROFILES = {
    "layouts": {name for each in layouts().values() for entry in each for name in entry.get("mig-devices", ())},
    "tables": {profile.name for kind in MIG_KINDS.values() for profile in kind.profiles},
    "families": {name for family in FAMILIES for name in (*family.profiles, *family.balanced)},
}
FILES = {
    "plain": {},
    "divided": {"sharing": {"timeSlicing": {"resources": "all", "renameByDefault": False}}},
    "renamed": {"sharing": {"timeSlicing": {"resources": "all", "renameByDefault": True}}},
}


def listed(profile: str, strategy: MigStrategy, file: str) -> Iterator[str]:
    """The names of a node with a GPU that is cut into this profile, or of two GPUs that are not."""
    mig = NodeMigDevice(uuid="m", profile=profile, memory_mib=1)
    cut = NodeGpu(uuid="a", index=0, model="A100", memory_mib=2, can_mig=True, mig_enabled=True, migs=(mig,))
    for gpu in (cut, NodeGpu(uuid="b", index=0, model="A100", memory_mib=2)):
        plain = advertised_devices([gpu], plugin_file({})[0], strategy)
        value = FILES[file]
        if value:
            entries = [{"name": name, "replicas": 2} for name in dict.fromkeys(each.resource for each in plain)]
            said = {**value["sharing"]["timeSlicing"], "resources": entries}
            value = {"sharing": {"timeSlicing": said}} if entries else {}
        yield from (each.resource for each in advertised_devices([gpu], plugin_file(value)[0], strategy))


@pytest.mark.parametrize("where", LISTS)
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("source", PROFILES)
def test_every_name_that_agents_list_by_themselves_is_managed(source: str, file: str, where: str) -> None:
    found = {
        name for profile in PROFILES[source] for strategy in MigStrategy for name in listed(profile, strategy, file)
    }
    assert any("+" in profile for profile in PROFILES[source])
    assert found - LISTS[where] == set()


@pytest.mark.parametrize("kind", MIG_KINDS)
def test_and_every_name_of_a_gpu_that_is_cut_on_demand(kind: str) -> None:
    names = set(ids_by_resource(Device("g", 0, "A100", 40960, slots=7, mig_kind=kind)))
    assert len(names) > 4
    assert names - LISTS["chart"] == set()


@pytest.mark.parametrize(
    "name",
    ["mig-1g.24gb.me.all", "mig-1g.24gb-me", "mig-4g.96gb.gfx", "mig-1g.36gb", "mig-7g.189gb", "mig-1g.34gb.me"],
)
def test_profiles_of_boards_without_tables_are_among_them(name: str) -> None:
    assert is_managed(f"nvidia.com/{name}")
    assert is_managed(f"nvidia.com/{name}.shared")


def test_what_an_administrator_names_is_managed_once_it_is_added() -> None:
    assert not is_managed("nvidia.com/gpu-0")
    assert is_managed("nvidia.com/gpu-0", ("nvidia.com/gpu-0",))
    assert len(set(managed_resources())) == len(managed_resources())
