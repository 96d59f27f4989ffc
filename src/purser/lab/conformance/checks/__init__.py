"""The checks, one module per call or habit of kubelet; each ends in its tuple ``CHECKS``, in the order they run.

A check asks through the `Subject` it is given, returns what is worth telling, raises `CheckFailed` or `CheckSkipped`.
Not here: their order as a whole (`purser.lab.conformance.catalogue`) and what becomes of a plugin that ends in one.
"""
