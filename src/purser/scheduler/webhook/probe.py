"""Whether the API server calls Purser's webhook."""

import structlog

from purser.core.names import WEBHOOK_PROBE_ANNOTATION
from purser.kube.client import Client
from purser.kube.clock import Clock
from purser.kube.errors import BadRequestError, ForbiddenError, InvalidError, KubeError
from purser.kube.objects import Pod
from purser.kube.resources import PODS, key_of
from purser.scheduler.webhook.validation import PROBE_ANSWER

log = structlog.get_logger("purser.scheduler")

PROBE_PERIOD_S = 15.0
"""For how long the result of a probe holds for a namespace."""


class WebhookProbe:
    """Asks by a dry run: it binds a pod with an annotation for which Purser's webhook denies any Binding.

    A Binding, because the scheduler has permission to create those, and none to create or update pods. A dry run
    changes nothing, whoever answers it.
    """

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._results: dict[str, tuple[float, bool]] = {}
        """By namespace, which webhooks can select: when it was probed, in seconds of the monotonic clock, and whether
        the webhook was called."""

    async def is_called(self, pod: Pod) -> bool:
        """Whether the API server calls the webhook for this pod's namespace.

        Also True where another webhook or policy denies the Binding, or supports no dry run: this may last, and no pod
        should wait for its end.
        """
        namespace, now = pod.metadata.namespace, self._clock.monotonic()
        self._results = {key: each for key, each in self._results.items() if now < each[0] + PROBE_PERIOD_S}
        if namespace not in self._results:
            self._results[namespace] = self._clock.monotonic(), await self._probe(pod)
        return self._results[namespace][1]

    async def _probe(self, pod: Pod) -> bool:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "annotations": {WEBHOOK_PROBE_ANNOTATION: "true"}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": pod.spec.node_name or "none"},
        }
        try:
            await self._client.create_subresource(PODS, name, "binding", binding, namespace, dry_run=True)
        except (BadRequestError, ForbiddenError, InvalidError) as error:
            if PROBE_ANSWER not in error.message:
                log.warning("Cannot tell whether the webhook is called", pod=key_of(pod), error=str(error))
            return True
        except KubeError as error:  # a bound pod's conflict among them, which comes after admission
            log.debug("The webhook did not answer the probe", pod=key_of(pod), error=str(error))
        return False
