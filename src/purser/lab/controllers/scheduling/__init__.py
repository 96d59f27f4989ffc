"""A stand-in for kube-scheduler: one loop, one pod at a time.

`nodes` is its cache, `filters` and `scores` are its plugins, `extender` speaks the extender protocol, `queue` decides
who is tried when, `preemption` whom to evict, `nominations` for whom room is being made, `scheduler` is the loop.
"""
