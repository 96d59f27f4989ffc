"""The metrics of the pages' server."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class WebMetrics:
    """One registry per server, so that several run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.streams = Gauge("purser_web_streams", "Open pages that are updated live.", registry=self.registry)
        self._responses = Counter("purser_web_responses", "Responses by HTTP status.", ["code"], registry=self.registry)

    def responded(self, status: int) -> None:
        """Count a response when it begins."""
        self._responses.labels(str(status)).inc()
