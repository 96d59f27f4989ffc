"""The emulated kubelet beside the real one: the same plugin, the same pods, one step after another.

Here: the scenarios as data (``scenarios``), the steps that they are made of (``steps``), the device plugin that both
kubelets are given (``plugin``), the kubelets behind one small interface (``kubelets``), one of them with its plugins
and pods (``side``), and the comparison (``agreement``). Not here: Purser's agent, its scheduler or its webhook; pods
are bound by their nodeName.
"""
