"""Purser's image, made without a container engine: Debian's packages, wheels from PyPI, Purser. `make image` builds it.

`debs` and `wheels` read what two lock files name, `build` lays it out, `oci` writes it. Nothing is run as root, and
nothing installed on the machine that builds.
"""
