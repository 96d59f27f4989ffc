"""What one pod asks for, read once and passed on."""

from functools import cached_property

from purser.core.dialects import DialectError, asks_for_devices, parse
from purser.core.model import PodRequest
from purser.core.pod.manifest import PodManifest


class PodReading:
    """A pod as it was read."""

    def __init__(self, spec: PodManifest) -> None:
        self.spec = spec

    @cached_property
    def asks_for_devices(self) -> bool:
        """See `purser.core.dialects.asks_for_devices`."""
        return asks_for_devices(self.spec)

    def request(self) -> PodRequest | None:
        """See `purser.core.dialects.parse`. Raises `DialectError`."""
        if isinstance(self._request, DialectError):
            raise DialectError(self._request.problems)
        return self._request

    @cached_property
    def _request(self) -> PodRequest | DialectError | None:
        try:
            return parse(self.spec)
        except DialectError as error:
            return DialectError(error.problems)  # without the traceback, which grows whenever it is raised
