"""kubelet's gRPC APIs: protocol files and the Python modules generated from them.

The `.proto` files are written by hand from wire facts; `scripts/generate_stubs.py` writes everything else in the
folders below, and a test fails when the two differ. Not here: any behaviour. The plugin that serves these messages is
`purser.agent.kubelet.plugin`, the client of kubelet's books is `purser.agent.kubelet.pod_resources`.
"""
