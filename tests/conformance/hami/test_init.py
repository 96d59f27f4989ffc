"""HAMi's init container accounting: what a pod takes of a card over its whole life.

Source: its device/initContainer_test.go.
"""

import pytest

from purser.core.ledger import Usage, pod_usage
from purser.core.model import ContainerGrant, ContainerKind, DeviceShare, Grant

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR


def usage(*parts: tuple[ContainerKind, int, int]) -> Usage:
    containers = tuple(
        ContainerGrant(f"c{i}", kind, (DeviceShare("gpu0", memory, cores),))
        for i, (kind, memory, cores) in enumerate(parts)
    )
    return pod_usage(Grant("u", "default", "p", "n", containers))["gpu0"]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([(APP, 100, 10), (APP, 200, 20)], (2, 300, 30), id="apps add up"),
        pytest.param([(INIT, 100, 10), (INIT, 200, 30)], (1, 200, 30), id="init containers run one after another"),
        pytest.param([(INIT, 500, 50), (APP, 100, 10)], (1, 500, 50), id="the init container is larger"),
        pytest.param([(INIT, 100, 0), (APP, 200, 0), (APP, 300, 0)], (2, 500, 0), id="the apps are larger"),
        pytest.param([(APP, 1, 0)] * 3, (3, 3, 0), id="three apps take three slots"),
    ],
)
def test_init_and_app_containers_collapse(
    parts: list[tuple[ContainerKind, int, int]], expected: tuple[int, int, int]
) -> None:
    assert usage(*parts) == Usage(*expected, pods=1)


def test_sidecars_run_beside_all_that_starts_after_them() -> None:
    """Better than HAMi, which counts restartable init containers as sequential and so can over-commit (trap 13)."""
    assert usage((SIDECAR, 100, 10), (INIT, 500, 50), (APP, 200, 20)) == Usage(2, 600, 60, pods=1)
    assert usage((INIT, 500, 50), (SIDECAR, 100, 10), (APP, 200, 20)) == Usage(2, 500, 50, pods=1)
