"""What is told of runs, in the forms that people and scripts want.

`document` for scripts (JSON, YAML, CSV), `table` for terminals, `html` for people who were not there, with `plots` and
`verdicts`. Not here: any number that is not in the results (`purser.simulator.results`) already.
"""
