"""One answer kept: the rules of a request all ask the same of the same pod."""

from collections.abc import Callable
from typing import Generic, TypeVar

from purser.core.dialects.errors import DialectError
from purser.core.pod.manifest import PodManifest

T = TypeVar("T")


class LastAnswer(Generic[T]):
    """A pure function of a pod that remembers what it said of the pod it was asked about last, be it an error."""

    def __init__(self, function: Callable[[PodManifest], T]) -> None:
        self._function = function
        self._last: tuple[PodManifest, T | DialectError] | None = None

    def __call__(self, pod: PodManifest) -> T:
        """The answer. Raises `DialectError` where the function does."""
        last = self._last
        if last is None or last[0] is not pod:
            last = self._last = (pod, self._ask(pod))
        answer = last[1]
        if isinstance(answer, DialectError):
            raise DialectError(answer.problems)
        return answer

    def _ask(self, pod: PodManifest) -> T | DialectError:
        try:
            return self._function(pod)
        except DialectError as error:
            return DialectError(error.problems)  # without the traceback, which grows whenever it is raised
