"""MPS daemons of the node's GPUs: NVIDIA's ``nvidia-cuda-mps-control``, which holds its clients to limits of memory and
compute. Sources: NVIDIA's "Multi-Process Service"; k8s-device-plugin and dra-driver-nvidia-gpu run the same programs.

`MpsDaemons` keeps one for each GPU that is shared by MPS (``daemons``), each a child of the agent that is watched,
asked, and restarted when it ends (``daemon``, ``processes``). It uses their own control commands (``control``), with
the programs of the driver's root (``programs``, ``launcher``). ``capability`` decides which GPUs can have one,
``folders`` has the paths, and ``access`` what makes a container a client.

Not here: how a GPU's shares are enforced (`purser.agent.inventory.enforcement`), events and metrics.
"""
