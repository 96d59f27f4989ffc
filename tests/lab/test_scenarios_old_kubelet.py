"""The scenarios that depend on kubelet, with one of 1.20: it answers Register first, and lists dead pods."""

import pytest
import pytest_asyncio

from tests.lab.lab_cluster import ready_lab, scenario_cluster
from tests.scenarios.suite import (
    test_a_card_that_dies_takes_only_its_own_slots_and_gives_them_back_when_it_recovers,
    test_an_app_container_takes_over_the_card_of_its_init_container,
    test_eight_whole_gpu_pods_get_eight_cards_and_one_pod_gets_all_eight,
    test_gpu_pod_that_slipped_past_the_webhook_gets_no_device_and_an_event_says_what_to_do,
    test_running_pods_survive_restarts_and_no_share_is_lost_or_given_twice,
    test_three_shares_pack_or_spread_and_all_books_agree,
)

__all__ = [
    "test_a_card_that_dies_takes_only_its_own_slots_and_gives_them_back_when_it_recovers",
    "test_an_app_container_takes_over_the_card_of_its_init_container",
    "test_eight_whole_gpu_pods_get_eight_cards_and_one_pod_gets_all_eight",
    "test_gpu_pod_that_slipped_past_the_webhook_gets_no_device_and_an_event_says_what_to_do",
    "test_running_pods_survive_restarts_and_no_share_is_lost_or_given_twice",
    "test_three_shares_pack_or_spread_and_all_books_agree",
]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab():
    async with ready_lab("v1.20.2") as lab:
        yield lab


@pytest_asyncio.fixture(loop_scope="module")
async def cluster(lab, quiet_logs):
    async with scenario_cluster(lab) as cluster:
        yield cluster
