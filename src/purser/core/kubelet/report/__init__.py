"""An agent's report of its kubelet, from which admission is predicted: configuration, hardware, and who holds what.

`report_of` makes a report of the twin's own values, `node_of` and `state_of` rebuild them; `encode` and `decode` are
the text in the node's annotation (JSON, versioned, a few KiB also for thousands of devices); `compaction` shortens what
would be too long.

What a report leaves out, because it changes no prediction or cannot be known from outside kubelet: the responses of
plugins, merged hints of running pods, resources whose plugin has not returned, devices still allocated after a failed
admission, and since when a plugin has been gone.
"""

from purser.core.kubelet.report.coherence import check_coherence
from purser.core.kubelet.report.compaction import compact_state
from purser.core.kubelet.report.format import (
    MAX_REPORT_BYTES,
    KubeletReport,
    ReportError,
    aligns,
    decode,
    encode,
    size_of,
)
from purser.core.kubelet.report.reading import node_of, state_of
from purser.core.kubelet.report.writing import report_of

__all__ = [
    "MAX_REPORT_BYTES",
    "KubeletReport",
    "ReportError",
    "aligns",
    "check_coherence",
    "compact_state",
    "decode",
    "encode",
    "node_of",
    "report_of",
    "size_of",
    "state_of",
]
