"""Whoever nominates pods without end costs each decision a bounded search, and pushes out no important one."""

import json

from purser.core.fleet import Fleet
from purser.core.model import PodRequest
from purser.kube import SystemClock
from purser.kube.codec import codec_of
from purser.kube.resources import PODS
from purser.scheduler.cache import nominations
from purser.scheduler.cache.nominations import Nominations
from purser.scheduler.cache.readings import Readings


def named(uid, priority=0):
    body = {
        "metadata": {"name": uid, "namespace": "flood", "uid": uid},
        "spec": {
            "schedulerName": "purser-scheduler",
            "priority": priority,
            "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
        "status": {"nominatedNodeName": "n"},
    }
    return codec_of(PODS).object(json.dumps(body).encode())


def test_so_many_nominees_are_kept_and_the_most_important_ones(monkeypatch):
    monkeypatch.setattr(nominations, "MAX_NOMINEES", 8)
    kept = Nominations(Fleet(), SystemClock(), Readings())
    kept.nominate(PodRequest("honest", "team", "honest", ()), "n", ())
    kept.put_pod(named("high", 9))
    for number in range(50):
        kept.put_pod(named(f"flood-{number}"))
    left = {uid for uid in ("honest", "high", *(f"flood-{n}" for n in range(50))) if kept.node_of(uid)}
    assert {"honest", "high"} < left
    assert len(left) == 8
