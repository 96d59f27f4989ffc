"""The protocol between scheduler, API server, kubelet and agent, explored: see docs/correctness.md.

`cluster` has the values of states, `world` what may happen in each, by the `moves_of_*`; `scheduler` and `agent` run
Purser's own code for their steps; `holds` says what must hold. `space` keeps states by the million, `symmetry` tells
them apart whatever their names, `search` explores; `variants` breaks a rule. `python -m tests.model` is the full run.
"""
