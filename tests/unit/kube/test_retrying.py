import pytest
from tests.unit.kube.servers import HastyClock

from purser.kube import KubeError
from purser.kube.retrying import MAX_BACKOFF_S, retry_until_accepted


async def test_what_must_succeed_is_tried_until_it_does_after_longer_and_longer_pauses():
    clock, answers = HastyClock(), iter([*[KubeError("no")] * 9, "yes"])

    async def attempt():
        if isinstance(answer := next(answers), KubeError):
            raise answer
        return answer

    assert await retry_until_accepted(attempt, "It cannot be had", clock) == "yes"
    assert len(clock.slept) == 9
    assert clock.slept[0] < clock.slept[3]
    assert all(0 < pause <= MAX_BACKOFF_S for pause in clock.slept)


async def test_what_is_no_answer_of_the_api_server_is_raised():
    async def attempt():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await retry_until_accepted(attempt, "It cannot be had", HastyClock())
