"""Reports of runs for people and scripts.

`document` for scripts (JSON, YAML, CSV), `table` for terminals, `html` as a page of its own, with `plots` and
`verdicts`. Not here: any number that is not in the results (`purser.simulator.results`) already.
"""
