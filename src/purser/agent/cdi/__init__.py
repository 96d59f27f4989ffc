"""Specifications for the Container Device Interface: what a container runtime adds to a container for a device that is
named to it.

Names, kinds and contents are those of NVIDIA's device plugin and container toolkit, so that whoever comes from there
finds the same.
"""
