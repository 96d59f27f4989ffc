"""GPU health: NVIDIA's catalogue of Xids, a state machine per GPU, and the messages about it. Pure.

`catalogue` has the facts, `signs` the values of a probe, `state` what both mean, `policy` which Xids count, `machine`
the health of one GPU, `memory` what of it outlives an agent, `messages` events and the node's condition, `remedy` what
may be done without people.
"""
