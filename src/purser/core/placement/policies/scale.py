"""The largest node that scores are scaled by: constants of FGD's evaluation, so that scores round as they do there."""

MOST_CPU_MILLI = 128_000
MOST_GPU_MILLI = 8_000
