"""The gate: what must pass before a change lands, as lanes that all run.

`.ci/run` runs it in place, on a bare machine too; `make gate` on a clean clone of HEAD (option `--clone`);
`make test` runs the lanes `unit` and `lab` in the fast tier. `lanes.py` lists the lanes, `runner.py` runs one, with a
second try for tests that start processes, `reports.py` reads what pytest wrote, and `table.py` prints the end.
"""
