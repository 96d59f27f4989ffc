"""Placement policies by name: the words for them (`words`), and which ones an administrator chose (`settings`).

Not here: what a policy does (`purser.core.placement.policies`).
"""
