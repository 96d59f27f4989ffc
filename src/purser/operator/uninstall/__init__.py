"""The way out: everything that the operator made is taken away, with an operator that runs or without one.

- ``uninstalling``: rounds until nothing is left, and what is still to go.
- ``clean_up``: what agents wrote on nodes, and what a release of the chart leaves.
- ``showing``: all that would go, before anything does.

Not here: what a round removes, and in which order (``deciding``).
"""

from purser.operator.uninstall.showing import preview_uninstall
from purser.operator.uninstall.uninstalling import UninstallError, uninstall

__all__ = ["UninstallError", "preview_uninstall", "uninstall"]
