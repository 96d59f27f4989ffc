"""kubelet's configuration file, as kubeadm, cloud images and administrators write it."""

import pytest

from purser.agent.kubelet.facts.configfile import MAX_KUBELET_CONFIG_BYTES, KubeletConfigError, parse_config
from purser.core.kubelet.config import (
    CpuOptions,
    CpuPolicy,
    KubeletConfig,
    MemoryPolicy,
    TopologyOptions,
    TopologyPolicy,
    TopologyScope,
)

FULL = b"""
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}}
topologyManagerPolicy: single-numa-node
topologyManagerScope: pod
topologyManagerPolicyOptions: {prefer-closest-numa-nodes: "true", max-allowable-numa-nodes: "16"}
cpuManagerPolicy: static
cpuManagerPolicyOptions: {full-pcpus-only: "true", strict-cpu-reservation: "false"}
reservedSystemCPUs: 0-1,32-33
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {cpu: 1, memory: 1Gi}
memoryManagerPolicy: Static
reservedMemory:
  - numaNode: 0
    limits: {memory: 2148Mi}
  - numaNode: 1
    limits: {memory: 0, hugepages-2Mi: 64Mi}
evictionHard: {memory.available: 100Mi}
"""


def test_every_field_that_changes_admission_is_read():
    assert parse_config(FULL, "v1.33.1") == KubeletConfig(
        version="v1.33.1",
        topology_policy=TopologyPolicy.SINGLE_NUMA_NODE,
        topology_scope=TopologyScope.POD,
        topology_options=TopologyOptions(prefer_closest_numa_nodes=True, max_allowable_numa_nodes=16),
        cpu_policy=CpuPolicy.STATIC,
        cpu_options=CpuOptions(full_pcpus_only=True),
        reserved_cpus="0-1,32-33",
        reserved_cpu_millis=1500,
        memory_policy=MemoryPolicy.STATIC,
        reserved_memory={0: {"memory": 2148 << 20}, 1: {"memory": 0, "hugepages-2Mi": 64 << 20}},
    )


@pytest.mark.parametrize(
    "text",
    [
        b"kind: KubeletConfiguration",
        b'{"kind": "KubeletConfiguration", "cpuManagerPolicy": "", "topologyManagerPolicy": null}',
        b"kind: KubeletConfiguration\nreservedMemory: null\nsystemReserved: {}\ncpuManagerPolicyOptions:\n",
    ],
)
def test_a_missing_field_has_kubelets_default(text):
    assert parse_config(text, "v1.30.0") == KubeletConfig(version="v1.30.0")


def test_one_reserved_cpu_is_a_number_in_yaml():
    assert parse_config(b"kind: KubeletConfiguration\nreservedSystemCPUs: 3", "v1.30.0").reserved_cpus == "3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "Expected `object`"),
        (b"just words", "Expected `object`"),
        (b"kind: ConfigMap", "must be KubeletConfiguration"),
        (b"kind: [", "expected"),
        (b"\xff\xfe\x00", "."),
        (b"kind: KubeletConfiguration\nx: 2001-99-99", "month"),
        (b"- " * 200_000, "."),
        (b"#" * (MAX_KUBELET_CONFIG_BYTES + 1), "more than"),
        (b"kind: KubeletConfiguration\ncpuManagerPolicy: dynamic", "cpuManagerPolicy: unknown value 'dynamic'"),
        (b"kind: KubeletConfiguration\ncpuManagerPolicy: [static]", "cpuManagerPolicy"),
        (b"kind: KubeletConfiguration\ntopologyManagerPolicyOptions: {a: b}", "PolicyOptions.a: unknown option"),
        (b"kind: KubeletConfiguration\ncpuManagerPolicyOptions: {a: b}", "PolicyOptions.a: unknown option"),
        (b"kind: KubeletConfiguration\ncpuManagerPolicyOptions: {full-pcpus-only: maybe}", "must be .true. or .false."),
        (
            b"kind: KubeletConfiguration\ntopologyManagerPolicyOptions: {max-allowable-numa-nodes: x}",
            "integer of at least 8",
        ),
        (b"kind: KubeletConfiguration\nkubeReserved: {cpu: lots}", "kubeReserved.cpu: 'lots' is not a quantity"),
        (b"kind: KubeletConfiguration\nreservedMemory: [{numaNode: 1, limits: {memory: x}}]", "NUMA node 1: 'x'"),
    ],
)
def test_what_no_kubelet_runs_with_is_an_error_that_names_the_field(text, message):
    with pytest.raises(KubeletConfigError, match=message):
        parse_config(text, "v1.30.0")
