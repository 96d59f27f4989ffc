"""What is reported of pods that were admitted without a grant."""

import pytest

from purser.agent.advice import GRANT_INVALID, NOT_SCHEDULED, PAST_THE_EXTENDER, advice
from purser.kube.objects import ObjectMeta, Pod, PodSpec


def pod(scheduler: str = "default-scheduler", **metadata: dict[str, str]) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", **metadata), spec=PodSpec(scheduler_name=scheduler))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pod(annotations={"kubernetes.io/config.source": "file"}), "static"),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), "static"),
        (pod(labels={"purser.dev/webhook": "ignore"}), "label purser.dev/webhook: ignore"),
        (pod(labels={"hami.io/webhook": "ignore"}), "label hami.io/webhook: ignore"),
        (pod("volcano"), 'schedulerName is "volcano"'),
        (pod("volcano", annotations={"purser.dev/awaits-grant": "false"}), "its event NotGranted says why"),
    ],
)
def test_the_cause_is_named(found: Pod, words: str) -> None:
    assert words in advice(found)


@pytest.mark.parametrize("found", [None, pod(), pod(""), pod(annotations={"kubernetes.io/config.source": "api"})])
def test_otherwise_the_webhook_was_away(found: Pod | None) -> None:
    assert advice(found) == NOT_SCHEDULED


def test_a_pod_of_pursers_scheduler_came_past_it() -> None:
    assert advice(pod("purser-scheduler")) == PAST_THE_EXTENDER


def test_a_grant_that_does_not_count_is_made_again() -> None:
    assert advice(pod("purser-scheduler"), carries_grant=True) == GRANT_INVALID
