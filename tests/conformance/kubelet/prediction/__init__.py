"""Random nodes, on which what the scheduler predicts is held against what kubelet then does.

`hardware` draws machines, kubelets and cards, `pods` what comes to them; `node` is one node over time: kubelet's true
state, and beside it the scheduler's fleet, which learns of it only from the text that an agent publishes. `agent`
answers kubelet as Purser's agent would, `search` looks for any grant at all with which a refused pod would have been
taken, `trial` runs a node and counts, `matrix` is the count.

Everything comes from one seed. Not here: the twin itself, which the vectors test; staleness of what the scheduler knows
of ended pods, for which nobody can be blamed.
"""
