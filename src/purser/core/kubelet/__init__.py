"""A model of kubelet's admission: whether a node's kubelet admits a pod, and with which devices, CPUs and memory.

Pure functions over explicit state. `admission.admit` is a generator: it yields what kubelet would ask of a device
plugin and takes the answer, so that the lab answers over gRPC, the scheduler by its own choice, and a test from a
table; it ends with an `AdmissionOutcome` that holds the new state, whether the pod was taken or not (kubelet rolls
nothing back). For a prediction the outcome's state is dropped.

`versions` is the one table of what differs between kubelets 1.20 to 1.37. `machine` is the node's hardware, `config`
its kubelet's configuration, `pod` what of a pod counts, `state` what is taken. Each manager has a folder:
`topologymanager`, `devicemanager`, `cpumanager`, `memorymanager`; `managers` asks them in kubelet's order.

CPU sets and sets of NUMA nodes are ints, bit n for CPU or node n (`cpuset`, `masks`): all of a node's CPUs are counted
with one instruction or two.

Not here: sockets and files (`purser.lab.kubelet`), Purser's own choice of devices (`purser.core.placement`), eviction,
sysctls and the other admission handlers of kubelet, Windows.
"""
