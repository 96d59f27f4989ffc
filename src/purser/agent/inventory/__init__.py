"""What the node has: its GPUs as kubelet's devices (`building`) by the configuration that holds (`configured`), what
holds shares of them to their limits, the device files and the driver behind them, and GPUs that the driver listed
before.

Not here: the driver's calls (`purser.agent.nvml`), whether a GPU is healthy (`purser.agent.health`).
"""
