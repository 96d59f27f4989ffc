"""Specifications for the Container Device Interface: what a container runtime adds to a container for a named device.

Names, kinds and contents are those of NVIDIA's device plugin and container toolkit, so that users of these find the
same.
"""
