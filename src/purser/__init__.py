"""Purser: the GPU control plane for Kubernetes.

It decides which pod gets which GPU, or which share of one, makes it so on every node, and keeps exact books of it.
The rooms are sub-packages, imports between them point downwards only: ``cli`` over ``lab`` over ``scheduler`` and
``agent`` (which never import one another) over ``kube`` over ``core``.
"""

__version__ = "0.1.0"
