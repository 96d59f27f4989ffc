"""The views by name; by itself, for the command line is read without all that they need."""

from enum import StrEnum


class TopView(StrEnum):
    """Which table is shown; also the word of ``--view``."""

    NODES = "nodes"
    GPUS = "gpus"
    PODS = "pods"
    WAITING = "waiting"


TITLES = {TopView.NODES: "Nodes", TopView.GPUS: "GPUs", TopView.PODS: "Pods", TopView.WAITING: "Waiting"}
