"""What several rooms' tests share."""

from collections.abc import Iterator
from functools import lru_cache

import pytest


@pytest.fixture(scope="module")
def schemas_read_once() -> Iterator[None]:
    """kubernetes_validate would read all definitions of a version again for each object."""
    from kubernetes_validate import utils

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(utils, "schema_contents", lru_cache(utils.schema_contents))
        yield
