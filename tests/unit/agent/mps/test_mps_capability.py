"""Which GPUs MPS can be asked to divide, and for how many."""

import pytest

from purser.agent.inventory.mps_capability import max_clients, mps_obstacle
from purser.agent.nvml import Gpu, MigMode

CUT, NOT_CUT = MigMode(enabled=True, pending=True), MigMode(enabled=False, pending=False)


@pytest.mark.parametrize(
    ("capability", "cuda", "mig", "says"),
    [
        ("7.0", "11.5", None, ""),
        ("9.0", "13.1", NOT_CUT, ""),
        ("9.0", "13.1", CUT, "MIG mode is enabled"),
        ("6.1", "13.1", None, "MPS limits require compute capability 7.0 or later, but the GPU's is 6.1"),
        ("", "13.1", None, "MPS limits require compute capability 7.0 or later, but the GPU's is unknown"),
        ("7.0", "11.4", None, "MPS memory limits require CUDA 11.5 or later, but the driver supports 11.4"),
        ("7.0", None, None, "MPS memory limits require CUDA 11.5 or later, but the driver supports an unknown version"),
        ("10.0", "9.2", None, "MPS memory limits require CUDA 11.5 or later, but the driver supports 9.2"),
    ],
)
def test_limits_hold_where_gpu_and_driver_can_hold_them(capability, cuda, mig, says):
    assert mps_obstacle(Gpu(index=0, compute_capability=capability, mig=mig), cuda) == says


@pytest.mark.parametrize(
    ("capability", "cuda", "most"),
    [
        ("6.1", "13.1", 16),
        ("7.0", "13.0", 48),
        ("7.5", None, 48),
        ("8.0", "13.1", 60),
        ("12.0", "14.0", 60),
        ("", "", 16),
    ],
)
def test_so_many_clients_have_room(capability, cuda, most):
    assert max_clients(Gpu(index=0, compute_capability=capability), cuda) == most
