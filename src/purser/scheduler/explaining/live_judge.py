"""The verdict of the running scheduler on a pod as it could have been written."""

from collections.abc import Sequence
from contextlib import suppress

from purser.core.decoding import UnreadableError, brief
from purser.core.dialects import DialectError
from purser.core.kubernetes.quantities import QuantityError
from purser.core.model import PodRequest
from purser.core.placement import Evaluator
from purser.kube.objects import Pod
from purser.scheduler.cache import ClusterCache
from purser.scheduler.explaining.judging import Judgement
from purser.scheduler.explaining.live_filters import LiveFilters
from purser.scheduler.placement import Feasibility


class LiveJudge:
    """Decides on nodes as they are now, after those of kube-scheduler's filters that `LiveFilters` knows; changes
    nothing."""

    def __init__(
        self, cache: ClusterCache, evaluator: Evaluator, feasibility: Feasibility, names: Sequence[str]
    ) -> None:
        """``names``: these nodes."""
        self._cache, self._evaluator, self._feasibility, self._names = cache, evaluator, feasibility, names
        self._filters = LiveFilters(cache, names)
        self.last_request: PodRequest | None = None
        """Of the pod that was judged last; None: it asks for nothing, or its request cannot be read."""

    def ask_filters(self, pod: Pod) -> None:
        """Ask kube-scheduler's filters alone: for thousands of nodes they take longer than Purser's decision, and the
        verdicts on a pod share the answer."""
        with suppress(QuantityError, UnreadableError):
            self._filters.rejections(pod)

    def judge(self, pod: Pod) -> Judgement:
        """The verdict on each of the nodes."""
        self.last_request = None
        reading = self._cache.readings.read_changed(pod)
        if reading.objection:
            return Judgement(objection=reading.objection)
        try:
            request = reading.request()
        except DialectError as error:
            return Judgement(objection=str(error))
        try:
            rejections = self._filters.rejections(pod)
        except (QuantityError, UnreadableError) as error:
            return Judgement(objection=brief(error))
        left = [name for name in self._names if name not in rejections]
        if request is None:
            return Judgement(tuple(left), rejections=rejections)
        self.last_request = request
        found = self._feasibility.evaluate(request, left, scored=False)
        return Judgement(tuple(found.fits), rejections=rejections, refusals=found.refusals, request=request)

    def judge_further(self, pod: Pod, found: Judgement) -> Judgement:
        """What else keeps a pod from the nodes of which a verdict has kube-scheduler's first reason."""
        later = tuple(self._filters.later_rejections(pod, found.rejections.keys()))
        if found.request is None:
            return Judgement(later_rejections=later)
        refusals = self._feasibility.evaluate(found.request, list(found.rejections), scored=False).refusals
        return Judgement(later_rejections=later, refusals=refusals, request=found.request)

    @property
    def largest_gpu_mib(self) -> int:
        """The memory of the largest GPU that there is; 0: there is none."""
        return self._evaluator.largest_gpu_mib
