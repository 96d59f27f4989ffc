"""An emulated kubelet: one node of the lab, without containers.

It speaks kubelet's gRPC APIs over real unix sockets in a folder of its own (device plugin registration, ListAndWatch,
allocation, PodResources), admits pods one at a time in kubelet's order, keeps kubelet's checkpoint file, and reports
node and pods to the API server. A container is "started" by writing down the environment that it would have seen.

`devicemanager` and `checkpoint` are pure; `plugins` and `podresources` are the gRPC rims; `admission` ties the two
together; `runtime` stands in for containerd; `kubelet` composes everything.

Not here: topology, CPU and memory manager (policy ``none`` only), volumes, probes, images, eviction, kubelet's
resource predicates; cgroups and processes do not exist.
"""
