"""What a lab's nodes talk to: the lab's own API server, or a real control plane as processes of this machine.

Here: the surface that both share and the lab's own behind it (`plane`); the real one (`real`) with where its programs
are found (`programs`), their command lines and configuration for old and new generations (`commands`), certificates,
tokens and kubeconfigs (`credentials`), child processes (`process`), and the part of kubelet that the API server asks
for logs (`kubeletapi`). Real processes need no root, listen on loopback, and are gone with the lab.

Not here: kubelets and containers, for nodes of the lab are emulated; anything of Purser.
"""
