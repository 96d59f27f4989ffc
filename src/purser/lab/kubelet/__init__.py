"""An emulated kubelet: one node of the lab, without containers.

It speaks kubelet's gRPC APIs over real unix sockets in a folder of its own (device plugin registration by both paths,
ListAndWatch, allocation, PodResources), admits pods one at a time as the twin `purser.core.kubelet` decides, keeps
kubelet's state files, and reports node and pods to the API server. A container is "started" by writing down what it
would have seen: environment, devices, CPUs and memory nodes.

`configuration` has kubelet's settings, `books` its state, `statefiles` its checkpoints. `registration` and
`pluginwatcher` find plugins, `endpoints` calls them, `podresources` serves the PodResources API; `admission` runs the
twin; `podworkers` runs pods; `node` is the Node object; `runtime` stands in for containerd; `kubelet` composes
everything.

Not here: kubelet's rules (`purser.core.kubelet`), volumes, probes, images, eviction, kubelet's resource predicates;
cgroups and processes do not exist (those on GPUs are in `purser.lab.processes`).
"""
