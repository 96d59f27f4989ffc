"""Other vendors' devices as data: what `families.toml` says of each family, and what nodes say they have.

The vendor's own device plugin serves kubelet; it was written for HAMi, and goes on reading HAMi's annotations of pods
and writing HAMi's annotations of nodes. Here: the types of the file (``family``), its one reader (``catalogue``), the
texts of registrations (``register_texts``), and the devices of a node (``registration``). Not here: how pods are read
and grants recorded (`core.dialects.vendor`).
"""
