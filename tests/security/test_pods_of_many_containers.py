"""A pod of very many containers costs webhook and placement little."""

import json

import pytest

from purser.core import dialects
from purser.core.dialects import MAX_CONTAINERS
from purser.scheduler.cache.readings import AskedPod
from purser.scheduler.extender_wire import decode_args
from purser.scheduler.webhook.mutation import Mutation
from purser.scheduler.webhook.review import decode_review
from purser.scheduler.webhook.validation import Validation
from tests.tiers import IS_LONG
from tests.unit.scheduler.reviews import container, pod, review

VERY_MANY = 25_000 if IS_LONG else 2_500
SHARE, NONE = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 1}, {"cpu": 1}


@pytest.fixture
def looked_at(monkeypatch):
    """Names of the containers that a dialect was asked to read, and of those that one was asked to claim."""
    read, claimed = [], []
    parse_container, claims = dialects._parse_container, dialects.hami.claims

    def reads(spec, each, *rest):
        read.append(each.name)
        return parse_container(spec, each, *rest)

    def asks(spec, each):
        claimed.append(each.name)
        return claims(spec, each)

    monkeypatch.setattr(dialects, "_parse_container", reads)
    monkeypatch.setattr(dialects.hami, "claims", asks)
    return read, claimed


def body(count, limits):
    return pod(*(container(f"c{n}", limits=limits) for n in range(count)), schedulerName="purser-scheduler")


def ask(webhook, obj):
    return webhook.review(decode_review(json.dumps(review(obj)).encode()))


def placed(obj):
    return AskedPod(decode_args(json.dumps({"Pod": obj, "NodeNames": ["a"]}).encode()).pod)


@pytest.mark.parametrize("webhook", [Mutation(), Validation()], ids=["mutate", "validate"])
def test_one_that_asks_for_gpus_is_refused_before_it_is_read(looked_at, webhook):
    decision = ask(webhook, body(VERY_MANY, SHARE))
    assert (decision.allowed, "may have at most 512" in decision.message) == (False, True)
    assert looked_at[0] == []
    assert len(looked_at[1]) < 20


def test_one_that_kept_the_webhook_away_is_not_placed_either(looked_at):
    assert f"{VERY_MANY} containers" in placed(body(VERY_MANY, SHARE)).objection
    assert looked_at[0] == []


@pytest.mark.parametrize("spoils", [{}, {"gpu-fraction-container-name": "nobody"}], ids=["first", "nobody"])
@pytest.mark.parametrize("webhook", [Mutation(), Validation()], ids=["mutate", "validate"])
def test_one_that_asks_by_annotation_is_refused_before_it_is_read(looked_at, webhook, spoils):
    init = [container(f"i{n}") for n in range(VERY_MANY)]
    obj = pod(*(container(f"c{n}") for n in range(VERY_MANY)), init=init, schedulerName="purser-scheduler")
    obj["metadata"]["annotations"] = {"gpu-fraction": "0.5", **spoils}
    decision = ask(webhook, obj)
    assert (decision.allowed, "may have at most 512" in decision.message) == (False, True)
    assert looked_at == ([], [])


@pytest.mark.parametrize("webhook", [Mutation(), Validation()], ids=["mutate", "validate"])
def test_one_without_gpus_is_let_in_and_no_dialect_looks_at_its_containers(looked_at, webhook):
    assert ask(webhook, body(VERY_MANY, NONE)).allowed
    assert looked_at == ([], [])


@pytest.mark.parametrize("webhook", [Mutation(), Validation()], ids=["mutate", "validate"])
def test_as_many_as_are_allowed_are_read_once(looked_at, webhook):
    assert ask(webhook, body(MAX_CONTAINERS, SHARE)).allowed
    assert looked_at[0] == [f"c{n}" for n in range(MAX_CONTAINERS)]


def test_placement_reads_them_once(looked_at):
    reading = placed(body(MAX_CONTAINERS, SHARE))
    assert reading.objection == ""
    assert reading.request() is not None
    assert len(looked_at[0]) == MAX_CONTAINERS


def test_a_malformed_pod_is_refused_each_time_and_read_once(looked_at):
    reading = placed(body(3, {"nvidia.com/gpumem": "16Gi"}))
    for _ in range(3):
        with pytest.raises(dialects.DialectError, match="use 16384"):
            reading.request()
    assert len(looked_at[0]) == 3
