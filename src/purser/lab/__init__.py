"""A cluster on a laptop: one process, no root, no Docker, no network.

Here: what stands in for Kubernetes and hardware (`apiserver`, `controllers`, `kubelet`, `driver`), real control planes
where their programs are at hand (`controlplane`), `cluster` which composes these with Purser's own parts as they run in
production, faults, scenarios, the first screen of `purser lab`, and `conformance`, a test kit for device plugins.

Not here: any decision about GPUs, and anything that Purser's own parts could lean on: they talk to the stand-ins by the
same protocols as to the real ones, and nothing below this room knows of it.
"""
