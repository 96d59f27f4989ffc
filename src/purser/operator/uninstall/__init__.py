"""The way out: everything that the operator made is taken away, with an operator that runs or without one.

- ``uninstalling``: rounds until nothing is left.
- ``agents``: what agents wrote on nodes.
- ``leavings``: what a release of the chart leaves, with the operator or without it.
- ``remaining``: what is still to go, as people read it.
- ``showing``: all that would go, before anything does.

Not here: what a round removes, and in which order (``kernel``).
"""

from purser.operator.uninstall.showing import preview_uninstall
from purser.operator.uninstall.uninstalling import UninstallError, uninstall

__all__ = ["UninstallError", "preview_uninstall", "uninstall"]
