"""A kubelet's settings in layers, and the file that comes of them."""

import msgspec
import pytest
import yaml
from tests.unit.lab.kubelet.rig import MACHINE

from purser.agent.kubelet.facts.configfile import parse_config
from purser.core.kubelet.config import CpuPolicy, MemoryPolicy, TopologyPolicy
from purser.lab.driver import profiles
from purser.lab.kubelet.configuration import KubeletSection, configure, render

MIB = 2**20


def section(**fields):
    return msgspec.convert(fields, KubeletSection)


def test_what_a_layer_says_counts_over_the_layer_below():
    below = section(version="v1.29.0", topologyManagerPolicy="restricted", topologyManagerScope="pod")
    both = section(topologyManagerPolicy="none", cpuManagerPolicy="static").over(below)
    assert both == section(
        version="v1.29.0", topologyManagerPolicy="none", topologyManagerScope="pod", cpuManagerPolicy="static"
    )


def test_without_a_word_a_kubelet_is_new_and_aligns_nothing():
    configured = configure(KubeletSection(), MACHINE)
    assert configured.config.version == "v1.36.2"
    assert (configured.config.topology_policy, configured.config.cpu_policy) == (TopologyPolicy.NONE, CpuPolicy.NONE)
    assert (configured.config.reserved_cpus, configured.config.reserved_memory) == ("", {})
    assert configured.reserved_memory_bytes == 100 * MIB


def test_static_policies_have_something_reserved():
    config = configure(section(cpuManagerPolicy="static", memoryManagerPolicy="Static"), MACHINE).config
    assert config.reserved_cpus == "0,8"
    assert config.reserved_memory == {0: {"memory": 100 * MIB}}


def test_an_amount_of_reserved_cpus_is_enough_for_the_static_policy():
    config = configure(section(cpuManagerPolicy="static", kubeReserved={"cpu": "1500m"}), MACHINE).config
    assert (config.reserved_cpus, config.reserved_cpu_millis) == ("", 1500)


def test_reserved_memory_must_be_what_the_node_keeps_for_itself():
    said = section(
        memoryManagerPolicy="Static",
        systemReserved={"memory": "1Gi"},
        reservedMemory=[
            {"numaNode": 0, "limits": {"memory": "612Mi"}},
            {"numaNode": 1, "limits": {"memory": "512Mi"}},
        ],
    )
    configured = configure(said, MACHINE)
    assert configured.config.memory_policy is MemoryPolicy.STATIC
    assert configured.reserved_memory_bytes == 1124 * MIB


FULL = section(
    version="v1.33.4",
    topologyManagerPolicy="best-effort",
    topologyManagerScope="pod",
    topologyManagerPolicyOptions={"prefer-closest-numa-nodes": "true", "max-allowable-numa-nodes": "16"},
    cpuManagerPolicy="static",
    cpuManagerPolicyOptions={"full-pcpus-only": "true"},
    reservedSystemCPUs="0,8",
    systemReserved={"cpu": "500m", "memory": "1Gi"},
    memoryManagerPolicy="Static",
    reservedMemory=[{"numaNode": 0, "limits": {"memory": "1124Mi"}}],
)


@pytest.mark.parametrize(
    ("said", "machine"),
    [
        (KubeletSection(), MACHINE),
        (FULL, MACHINE),
        *((profiles.load(name).kubelet, profiles.load(name).machine) for name in profiles.names()),
    ],
    ids=["nothing", "everything", *profiles.names()],
)
def test_the_file_says_what_was_decided(said, machine):
    configured = configure(said, machine)
    text = render(configured)
    assert parse_config(text.encode(), configured.config.version) == configured.config
    again = {key: value for key, value in yaml.safe_load(text).items() if key in KubeletSection.__struct_fields__}
    assert configure(section(version=configured.config.version, **again), machine) == configured
