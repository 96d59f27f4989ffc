"""Purser's code logs what is normal here."""

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def quiet():
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.configure(**before)
