"""Messages about GPUs' health, and what may be done without them."""

from purser.core.health.machine import GpuHealth, after_probe, after_xid
from purser.core.health.messages import HealthCondition, HealthNews, News, condition_of, news_of
from purser.core.health.policy import XidPolicy
from purser.core.health.remedy import AllowedRemedies, Remedies, remedies_for
from purser.core.health.signs import RecoveryAction, RemappedRows, Signs

POLICY = XidPolicy()
WELL = GpuHealth()
PENDING = after_probe(WELL, Signs(remapped_rows=RemappedRows(0, 0, True, False)), POLICY, now=0.0, quiet_s=20.0)
NEWER = after_probe(WELL, Signs(recovery_action=RecoveryAction.NONE), POLICY, now=0.0, quiet_s=20.0)
RESET, REBOOT, SUSPECT = (after_xid(WELL, xid, POLICY) for xid in (119, 79, 1))
EVERYTHING = AllowedRemedies(taint=True, cordon=True, reset=True)


def test_each_change_is_reported_once_with_what_to_do() -> None:
    told = "is unhealthy: Xid 119 (GSP RPC timeout). Reset the GPU once no pod holds it, or restart the node"
    hangup = "The driver does not report resets. After a reset, run pkill -HUP -f 'purser agent run' on the node"
    assert news_of(WELL, RESET) == HealthNews(News.UNHEALTHY, f"{told}. {hangup}")
    assert news_of(NEWER, after_xid(NEWER, 119, POLICY)) == HealthNews(News.UNHEALTHY, told)
    assert news_of(WELL, SUSPECT) == HealthNews(
        News.UNHEALTHY,
        "is unhealthy: Xid 1. The GPU is opened to new pods again once it has responded for a while; "
        "NVIDIA's catalogue recommends CONTACT_SUPPORT",
    )
    assert news_of(WELL, PENDING) == HealthNews(
        News.DEGRADED,
        "is open to new pods, but is degraded: a memory row will be remapped at the next reset. "
        "Reset the GPU once no pod holds it",
    )
    assert news_of(RESET, WELL) == HealthNews(News.RECOVERED, "is healthy again")
    assert news_of(PENDING, WELL) == HealthNews(News.RECOVERED, "is no longer degraded")
    again = news_of(RESET, PENDING)
    assert again is not None
    assert again.words.startswith("is open to new pods again, but is degraded: a memory row ")
    assert news_of(RESET, RESET) is None


def test_one_condition_says_how_all_gpus_are_those_that_take_no_pods_first() -> None:
    assert condition_of([("GPU 0", WELL)]) is None
    degraded = "GPU 0 is degraded: a memory row will be remapped at the next reset"
    assert condition_of([("GPU 0", PENDING), ("GPU 1", WELL)]) == HealthCondition(False, degraded)
    assert condition_of([("GPU 0", PENDING), ("GPU 1", RESET)]) == HealthCondition(
        True, f"GPU 1 needs a reset: Xid 119 (GSP RPC timeout); {degraded}"
    )


def test_nothing_is_done_unless_it_was_allowed() -> None:
    gpus = {"a": RESET, "b": REBOOT}
    assert remedies_for(gpus, set(), AllowedRemedies()) == Remedies()
    assert remedies_for(gpus, set(), EVERYTHING) == Remedies(taint=True, cordon=True, reset=frozenset("a"))


def test_no_gpu_is_reset_that_a_pod_holds_nor_without_need() -> None:
    gpus = {"a": RESET, "b": PENDING, "c": WELL, "d": SUSPECT, "e": REBOOT}
    assert remedies_for(gpus, set(), EVERYTHING).reset == {"a"}
    assert remedies_for(gpus, {"a"}, EVERYTHING).reset == set()
    assert remedies_for({"c": WELL, "b": PENDING}, set(), EVERYTHING) == Remedies()
