"""Which policy a kubelet runs with, and why it would not start with it."""

from functools import partial

from purser.core.kubelet.config import KubeletConfig, TopologyOptions, TopologyPolicy, TopologyScope
from purser.core.kubelet.errors import KubeletStartError
from purser.core.kubelet.machine import Machine
from purser.core.kubelet.topologymanager.best_effort import BestEffortPolicy
from purser.core.kubelet.topologymanager.merge import merge_equal, merge_narrowest
from purser.core.kubelet.topologymanager.none import NonePolicy
from purser.core.kubelet.topologymanager.order import Fitness, closeness, narrowness
from purser.core.kubelet.topologymanager.policy import HintMerger, Merge
from purser.core.kubelet.topologymanager.restricted import RestrictedPolicy
from purser.core.kubelet.topologymanager.single_numa_node import SingleNumaNodePolicy
from purser.core.kubelet.versions import Behaviour, behaviour

_MAX_NUMA_NODES = 8
"""kubelet's limit where the option does not raise it, and the least that the option takes."""


def policy_for(config: KubeletConfig, machine: Machine) -> HintMerger:
    """The policy of a kubelet on a machine. Raises `KubeletStartError` with kubelet's message."""
    if config.topology_policy == TopologyPolicy.NONE:
        return NonePolicy()
    switches = behaviour(config.parsed_version)
    options = _options(config.topology_options, switches)
    _check_machine(machine, options)
    policy = _policy(config.topology_policy, _merge(options, switches, config.topology_policy, machine), machine)
    if config.topology_scope not in list(TopologyScope):
        raise KubeletStartError(f'unknown scope: "{config.topology_scope}"')
    return policy


def _options(options: TopologyOptions, switches: Behaviour) -> TopologyOptions:
    """The options as far as the version has any; the field itself is unknown to older kubelets, which ignore it."""
    if not switches.has_policy_options:
        return TopologyOptions()
    limit = options.max_allowable_numa_nodes
    if limit != _MAX_NUMA_NODES and not switches.has_max_allowable_numa_nodes:
        raise KubeletStartError('unknown Topology Manager Policy option: "max-allowable-numa-nodes"')
    if limit < _MAX_NUMA_NODES:
        raise KubeletStartError(
            f'the minimum value of "max-allowable-numa-nodes" should not be less than {_MAX_NUMA_NODES}'
        )
    return options


def _check_machine(machine: Machine, options: TopologyOptions) -> None:
    if options.prefer_closest_numa_nodes and not all(node.distances for node in machine.numa_nodes):
        raise KubeletStartError("cannot discover NUMA topology: error getting NUMA distances from cadvisor")
    if len(machine.numa_nodes) > options.max_allowable_numa_nodes:
        raise KubeletStartError(f"unsupported on machines with more than {options.max_allowable_numa_nodes} NUMA Nodes")


def _merge(options: TopologyOptions, switches: Behaviour, name: TopologyPolicy, machine: Machine) -> Merge:
    if not switches.merges_equal_masks:
        return partial(merge_narrowest, machine.nodes_mask)
    fitness: Fitness = narrowness
    if options.prefer_closest_numa_nodes and name != TopologyPolicy.SINGLE_NUMA_NODE:
        fitness = closeness({node.node: node.distances for node in machine.numa_nodes})
    return partial(merge_equal, machine.nodes_mask, fitness=fitness)


def _policy(name: TopologyPolicy, merge: Merge, machine: Machine) -> HintMerger:
    match name:
        case TopologyPolicy.BEST_EFFORT:
            return BestEffortPolicy(merge)
        case TopologyPolicy.RESTRICTED:
            return RestrictedPolicy(merge)
        case TopologyPolicy.SINGLE_NUMA_NODE:
            return SingleNumaNodePolicy(merge, machine.nodes_mask)
        case _:
            raise KubeletStartError(f'unknown policy: "{name}"')
