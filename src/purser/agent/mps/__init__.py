"""MPS daemons of the node's GPUs: NVIDIA's ``nvidia-cuda-mps-control``, which holds its clients to limits of memory and
compute. Sources: NVIDIA's "Multi-Process Service"; k8s-device-plugin and dra-driver-nvidia-gpu run the same programs.

`MpsDaemons` keeps one for each GPU that is shared by MPS (``daemons``), each a child of the agent that is watched,
asked, and started anew when it ends (``daemon``, ``processes``). It speaks to them by their own commands (``control``),
with the programs of the driver's root (``programs``, ``launcher``). Which GPUs can have one is said in ``capability``,
where files lie in ``folders``, and what a container gets to be a client in ``access``.

Not here: which word a GPU's shares are held by (`purser.agent.enforcement`), events and metrics.
"""
