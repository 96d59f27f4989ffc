"""What FGD's evaluation publishes, in percent of 6 212 GPUs: allocation once 100 and 130 percent have arrived."""

from typing import NamedTuple

from purser.core.placement.fragments import Causes

POLICIES = ("dot-product", "clustering", "packing", "best-fit", "fragmentation")
"""Those that decide alike each time, in the order of the tables."""

SEEDS = range(42, 52)

DEFAULT = {
    42: ((90.34, 90.54), (91.33, 91.53), (91.37, 91.57), (92.94, 93.13), (95.14, 95.29)),
    43: ((90.56, 90.84), (91.69, 91.97), (91.78, 92.06), (92.97, 93.25), (95.06, 95.32)),
    44: ((90.83, 91.03), (91.68, 91.88), (91.91, 92.10), (92.89, 93.09), (95.29, 95.44)),
    45: ((90.69, 90.89), (92.75, 92.96), (92.58, 92.79), (92.93, 93.14), (95.38, 95.48)),
    46: ((90.55, 90.74), (90.62, 90.81), (91.12, 91.30), (93.00, 93.19), (95.35, 95.49)),
    47: ((90.52, 90.75), (91.20, 91.42), (91.07, 91.29), (92.84, 93.04), (95.14, 95.27)),
    48: ((91.00, 91.28), (92.32, 92.60), (92.51, 92.78), (92.68, 92.95), (95.18, 95.37)),
    49: ((90.68, 90.93), (92.09, 92.34), (91.83, 92.06), (93.04, 93.21), (95.30, 95.47)),
    50: ((90.53, 90.76), (91.34, 91.56), (91.46, 91.69), (92.64, 92.87), (95.15, 95.35)),
    51: ((90.52, 90.73), (91.48, 91.71), (92.16, 92.38), (92.69, 92.89), (95.28, 95.43)),
}
"""By seed."""


class Mean(NamedTuple):
    """Over the seeds 42 to 51."""

    value: float
    deviation: float


DEFAULT_FRAGMENTATION = (
    Mean(9.30, 0.20),
    Mean(8.21, 0.61),
    Mean(8.13, 0.54),
    Mean(7.05, 0.14),
    Mean(4.73, 0.11),
)
"""Of the default workload, once 100 percent have arrived."""

MEANS = {
    "default": ((90.62, 90.85), (91.65, 91.88), (91.78, 92.00), (92.86, 93.08), (95.23, 95.39)),
    "cpu050": ((93.03, 93.27), (93.52, 93.79), (93.46, 93.72), (93.56, 93.79), (95.00, 95.21)),
    "cpu100": ((91.73, 91.95), (92.42, 92.64), (92.50, 92.72), (93.26, 93.44), (95.21, 95.35)),
    "cpu200": ((87.45, 87.70), (89.67, 89.92), (89.98, 90.22), (92.15, 92.40), (94.82, 95.05)),
    "cpu250": ((83.57, 83.81), (87.75, 87.99), (88.05, 88.28), (91.21, 91.45), (93.20, 93.41)),
    "gpushare40": ((89.30, 89.56), (89.76, 90.02), (89.77, 90.03), (91.44, 91.69), (93.96, 94.15)),
    "gpushare60": ((86.82, 87.11), (86.90, 87.20), (87.15, 87.45), (89.06, 89.36), (91.25, 91.40)),
    "gpushare80": ((84.14, 84.49), (84.50, 84.85), (84.65, 85.00), (86.66, 87.01), (89.08, 89.30)),
    "gpushare100": ((81.98, 82.42), (82.22, 82.65), (82.13, 82.57), (84.62, 85.01), (86.64, 86.90)),
    "gpuspec10": ((90.17, 90.39), (91.96, 92.18), (92.24, 92.46), (93.10, 93.30), (94.66, 94.95)),
    "gpuspec20": ((88.29, 89.97), (89.11, 92.25), (89.28, 92.94), (88.46, 93.30), (94.66, 94.84)),
    "gpuspec25": ((85.44, 89.63), (86.41, 92.08), (86.77, 92.98), (85.67, 93.23), (93.91, 94.74)),
    "gpuspec33": ((79.82, 89.14), (81.09, 92.12), (82.22, 93.22), (80.39, 93.09), (87.84, 94.55)),
    "multigpu20": ((91.85, 92.06), (93.34, 93.56), (93.50, 93.71), (93.73, 93.93), (95.53, 95.65)),
    "multigpu30": ((93.11, 93.28), (94.55, 94.72), (94.70, 94.87), (94.57, 94.72), (96.36, 96.46)),
    "multigpu40": ((94.04, 94.19), (95.35, 95.50), (95.59, 95.74), (95.10, 95.23), (96.91, 96.99)),
    "multigpu50": ((94.73, 94.85), (95.69, 95.81), (96.06, 96.18), (95.62, 95.74), (97.09, 97.18)),
}
"""By workload, over the seeds 42 to 51."""

RANDOM_MEANS = {
    "default": (86.30, 87.47),
    "cpu050": (89.02, 91.24),
    "cpu100": (87.44, 89.11),
    "cpu200": (83.03, 83.77),
    "cpu250": (80.00, 80.42),
    "gpushare40": (84.86, 86.00),
    "gpushare60": (82.81, 83.65),
    "gpushare80": (80.62, 81.22),
    "gpushare100": (78.90, 79.44),
    "gpuspec10": (86.26, 87.43),
    "gpuspec20": (85.90, 87.24),
    "gpuspec25": (85.42, 86.94),
    "gpuspec33": (83.87, 86.46),
    "multigpu20": (86.92, 88.69),
    "multigpu30": (86.63, 89.27),
    "multigpu40": (85.38, 90.09),
    "multigpu50": (81.28, 90.27),
}
"""Of the random policy, as `MEANS`. The draws are others on each machine: a mean is all that can be compared."""

RANDOM_FRAGMENTATION = 13.49
"""Of the default workload, once 100 percent have arrived."""

DEVIATION = (0.62, 0.62, 0.62, 0.62, 0.29)
"""By policy, over the seeds. For fragmentation the largest of all workloads; for the others it is published for the
default workload alone, so the largest of these stands in for what they are on others."""


class Run(NamedTuple):
    """One run of the simulator of FGD's evaluation, pod by pod."""

    placed: int
    failed: dict[str, int]
    """By class."""
    first_failure_percent: float
    """How much had arrived when the first pod found no place."""
    causes: Causes
    """In the end, in thousandths of a GPU."""


FRAGMENTATION_ON_DEFAULT_42 = Run(
    8334,
    {"1-GPU": 1412, "share": 1099, "8-GPU": 9, "2-GPU": 6, "4-GPU": 6},
    94.89,
    Causes(
        usable=1230,
        lacks_both=138_430,
        lacks_gpu=85_860,
        lacks_cpu=27_280,
        no_use=6_060,
        no_use_lacks_cpu=33_730,
        no_access=0,
    ),
)


def mean_allocation(workload: str, policy: str) -> tuple[float, ...]:
    """Once 100 and 130 percent have arrived; empty where nothing is published."""
    if policy == "random":
        return RANDOM_MEANS.get(workload, ())
    return MEANS[workload][POLICIES.index(policy)] if workload in MEANS and policy in POLICIES else ()


def mean_fragmentation(workload: str, policy: str) -> tuple[float, ...]:
    """Once 100 percent have arrived; empty where nothing is published."""
    if workload != "default":
        return ()
    if policy == "random":
        return (RANDOM_FRAGMENTATION,)
    return (DEFAULT_FRAGMENTATION[POLICIES.index(policy)].value,) if policy in POLICIES else ()
