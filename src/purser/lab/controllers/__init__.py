"""Stand-ins for kube-scheduler, the controllers that people's pods come from, and disruption budgets.

They speak the same messages as the real ones and know nothing of Purser: the scheduler asks whatever extender it is
configured with, over HTTPS. Not here: garbage collection and namespaces (the API server's), rolling updates with
surge, affinity between pods, topology spread, volumes, quotas.
"""
