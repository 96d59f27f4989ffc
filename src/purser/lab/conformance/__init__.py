"""A test kit for device plugins: an emulated kubelet that checks, instead of one that runs pods.

It starts any plugin (or takes one that serves already), lets it register, makes all calls of kubelet, in kubelet's
order and in worse ones, and gives one verdict per check on how kubelet would react. It speaks gRPC with the plugin
directly.

`run` runs the checks of the `CATALOGUE` on what `Settings` name and gives a `Report`; `junit` writes one for CI.

Not here: kubelet's own decisions (`purser.core.kubelet`), the kubelets of the lab's nodes (`purser.lab.kubelet`), and
what one vendor's plugin ought to answer: only what the API and kubelet ask of every plugin is checked.
"""

from purser.lab.conformance.catalogue import CATALOGUE, select
from purser.lab.conformance.check import CannotRun, Check, CheckOutcome, CheckVerdict
from purser.lab.conformance.run import Report, run
from purser.lab.conformance.settings import PodName, Settings

__all__ = [
    "CATALOGUE",
    "CannotRun",
    "Check",
    "CheckOutcome",
    "CheckVerdict",
    "PodName",
    "Report",
    "Settings",
    "run",
    "select",
]
