"""SR-IOV: pools of network devices and accelerators, as the SR-IOV network device plugin makes them of its config.json.

`configuration` decodes the file, `devices` has the nouns of what a node has, `selecting` says which devices a selector
means, `pools` gives each device to one pool, `answers` is what a container gets with its devices, and `preference`
which of the free ones it had better get. `pairs` finds GPUs and network devices under one PCIe switch for a container,
`reserves` for several of a pod. `names` is apart, for agents without pools.

Not here: where the facts about devices come from (`purser.agent.sriov`).
"""
