"""A long run by hand: honest pods among hostile ones, while everything is killed, cut and set to other times.

``python -m tests.soak --minutes 120`` prints what happened and ends with 1 where a promise was broken: no honest pod is
hurt, no card is given twice or lost, memory does not grow without bound. The gate runs some seconds of it.
"""
