"""What is reported of pods that were admitted without a grant."""

import pytest

from purser.agent.allocation.advice import BYPASSED_EXTENDER, GRANT_INVALID, NOT_SCHEDULED, UNKNOWN_POD, advice
from purser.kube.objects import Container, ObjectMeta, Pod, PodSpec, ResourceRequirements


def pod(scheduler: str = "default-scheduler", *asked: str, **metadata: dict[str, str]) -> Pod:
    containers = tuple(Container(resources=ResourceRequirements(limits={name: "1"})) for name in asked)
    return Pod(metadata=ObjectMeta(name="p", **metadata), spec=PodSpec(scheduler_name=scheduler, containers=containers))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (pod(annotations={"kubernetes.io/config.source": "file"}), "static"),
        (pod(annotations={"kubernetes.io/config.mirror": "x"}), "static"),
        (pod(labels={"purser.dev/webhook": "ignore"}), "label purser.dev/webhook: ignore"),
        (pod(labels={"hami.io/webhook": "ignore"}), "label hami.io/webhook: ignore"),
        (pod("volcano"), 'schedulerName is "volcano"'),
        (pod("volcano", annotations={"purser.dev/awaits-grant": "false"}), "see its event NotGranted"),
    ],
)
def test_the_cause_is_named(found: Pod, words: str) -> None:
    assert words in advice(found)


@pytest.mark.parametrize("found", [pod(), pod(""), pod(annotations={"kubernetes.io/config.source": "api"})])
def test_otherwise_the_webhook_was_away(found: Pod) -> None:
    assert advice(found) == NOT_SCHEDULED


def test_of_a_pod_that_is_not_known_no_scheduler_is_said_to_have_passed_it_over() -> None:
    assert advice(None) == UNKNOWN_POD
    assert "was not scheduled by purser-scheduler:" not in UNKNOWN_POD


@pytest.mark.parametrize("asked", [(), ("nvidia.com/gpu",), ("nvidia.com/gpu-0", "nvidia.com/gpu")])
def test_a_pod_of_pursers_scheduler_came_past_it(asked: tuple[str, ...]) -> None:
    assert advice(pod("purser-scheduler", *asked)) == BYPASSED_EXTENDER


@pytest.mark.parametrize(
    "name", ["gpu-0", "gpu.small", "mig-9g.1gb", "gpu-a.shared"], ids=["a card", "a size", "a profile", "shared"]
)
def test_of_names_alone_that_kube_scheduler_may_not_know_it_is_said_to_name_them_there(name: str) -> None:
    told = advice(pod("purser-scheduler", f"nvidia.com/{name}", "cpu"))
    assert f"without asking Purser about nvidia.com/{name}: add nvidia.com/{name} to the managedResources of" in told
    assert "sets nodeName" not in told


def test_a_grant_that_does_not_count_is_made_again() -> None:
    assert advice(pod("purser-scheduler"), has_invalid_grant=True) == GRANT_INVALID
