"""The controllers behind workloads of every kind, and the collector of pods of lost nodes.

Each is one `reconcile` over what informers know; `owned` creates and deletes pods without counting any twice while the
informer lags behind.
"""
