"""How this node's GPUs are shared: the configuration file of NVIDIA's device plugin, found, read, and read again.

The rules are pure (`purser.core.sharing`). Here the file's text becomes values (`reading`), and the one that this node
goes by is kept, as files and the node's label change (`configuration`).
"""

from purser.agent.sharing.configuration import SharingConfig, SharingConfigWatch, config_of

__all__ = ["SharingConfig", "SharingConfigWatch", "config_of"]
