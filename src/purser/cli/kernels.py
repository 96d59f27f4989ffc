"""Which kernels placement uses: said by the environment, as it is a matter of the machine and not of a cluster."""

import os

from purser.cli.output import MISUSED, fail


def choose_kernels(default: str = "") -> None:
    """Use the kernels that the environment names, else the default (empty: the best there are)."""
    from purser.core.placement import kernels

    try:
        kernels.use(os.environ.get(kernels.VARIABLE) or default)
    except ValueError as error:
        fail(f"{kernels.VARIABLE}: {error}", MISUSED)
