"""The managers of a real kubelet, called on any machine with pods that come and go: what the twin must agree with.

A real kubelet says what it does on this machine, with its one NUMA node. Its functions say it for every other.
"""
