"""GPUs' health: `monitor` has the driver scanned (`scanning`), probes every GPU and listens to its errors; `remedies`
and `evicting` act on what it finds, as far as that is allowed.

Not here: what a sign means (`purser.core.health`).
"""
