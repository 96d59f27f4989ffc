"""For how long GPUs stay disputed whose pods the agent refuses."""

from purser.agent.reporting.disputes import MAX_DISPUTE_S, DisputeBackoff


def test_a_gpu_stays_disputed_longer_each_time_it_was_open_in_between_and_not_for_each_pod() -> None:
    backoff = DisputeBackoff()
    burst = [backoff.record_refusal(["a"], now, disputed={"a"} if now else ()) for now in (0.0, 0.1, 0.2, 0.3)]
    assert burst == [0.0] * 4, "they were on their way when the first was refused"
    assert backoff.record_refusal(["b"], 0.4, disputed={"a"}) == 0.0
    assert [backoff.record_refusal(["a", "c"], now, disputed=()) for now in (1.0, 3.0, 6.0)] == [1.0, 2.0, 4.0]
    assert backoff.record_refusal(["a"], 6.5, disputed={"a"}) == 4.0
    assert [backoff.record_refusal(["a"], 7.0 + n, disputed=()) for n in range(9)][-1] == MAX_DISPUTE_S
    backoff.forget_old(15.0 + 2 * MAX_DISPUTE_S)
    assert backoff.record_refusal(["a"], 15.0 + 2 * MAX_DISPUTE_S, disputed=()) == 0.0
