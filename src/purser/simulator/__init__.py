"""The simulator: runs policies on lists of nodes and pods. Time is virtual.

Here: lists of nodes and pods (`openb`, `yamlfile`, `cluster`, `demo`), the order of arrivals (`orders`), the two
engines (`arrivals`: pods only arrive; `departures`: they leave as well, and unplaced ones wait), measurements
(`metrics`), upper bounds for any policy (`bounds`), parallel runs (`parallel`), the log of their decisions
(`decision_log`) and reports (`report`).

Not here: rules of placement. Engines only use the fleet as arrays, the table of shapes and the policies, which are
those of the live scheduler.
"""
