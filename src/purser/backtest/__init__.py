"""A cluster's past, replayed through the simulator with other policies.

Every source makes the same `History`: `dump` reads the output of kubectl and `events` makes pods of it, of which
`obstacles` counts what no replay knows, `metrics` asks a Prometheus for kube-state-metrics' series, `logs` reads
decision logs. `handovers` has pods end when others took their room. `reconstruction` makes a workload of a history and
says how far its replay is from what the source says, `comparing` replays it with policies and on fewer nodes.

Not here: how pods are placed and wait (`purser.simulator`).
"""
