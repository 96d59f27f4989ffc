"""The twin admits as the managers of a real kubelet do, on machines that this one is not: several NUMA nodes, sockets,
huge pages, and every policy of theirs."""

import json
import os
import subprocess
import tempfile
from pathlib import Path
from random import Random

import pytest

from purser.core.kubelet.errors import KubeletStartError
from tests.tiers import TIER, Tier

from .kubelet_oracle.cases import Case, Json, document, draw, draw_spread
from .kubelet_oracle.comparing import kubelet_outcomes, twin_outcomes
from .kubernetes import modules, releases

NODES = {Tier.FAST: 50, Tier.GATE: 600, Tier.SOAK: 20_000}[TIER]
PLAYS = 10
"""Of each node: kubelet's picks that are chance differ in one of so many."""
MOST_BY_CHANCE = 0.1
"""Of all steps, those whose outcome is chance."""
GATES = {"CPUManagerPolicyAlphaOptions": True}

SOURCES = Path(__file__).parent / "kubelet_oracle"


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    version = releases.pinned("kubernetes")
    if os.environ.get("KUBEBUILDER_ASSETS") or releases.wanted() != version:
        pytest.skip(f"kubelet's functions are built of Kubernetes {version} alone, from Go modules")
    return modules.build_beside(SOURCES, "oracle", tmp_path_factory.mktemp("oracle"))


def ask(oracle: Path, cases: list[Case]) -> list[Json]:
    shared_memory = Path("/dev/shm")  # kubelet syncs a file at each allocation
    asked = document(cases, PLAYS, GATES)
    with tempfile.TemporaryDirectory(dir=shared_memory if shared_memory.is_dir() else None) as folder:
        environment = {**os.environ, "TMPDIR": folder}
        answer = subprocess.run([oracle], input=asked, env=environment, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr[-2000:]
    return [json.loads(line) for line in answer.stdout.splitlines()]


def test_the_twin_admits_as_the_managers_do(oracle: Path) -> None:
    version = f"v{releases.pinned('kubernetes')}"
    random = Random(20261201)
    cases = [draw(random, version) for _ in range(NODES)]
    cases += [draw_spread(random, version) for _ in range(NODES // 2)]
    steps = chance = 0
    for place, (case, answer) in enumerate(zip(cases, ask(oracle, cases), strict=True)):
        if answer["error"]:
            with pytest.raises(KubeletStartError):
                twin_outcomes(case)
            continue
        plays = [kubelet_outcomes(case, each) for each in answer["plays"]]
        for number, (twin, *found) in enumerate(zip(twin_outcomes(case), *plays, strict=True)):
            steps += 1
            if any(each != found[0] for each in found):
                chance += 1
                break  # what follows depends on it
            assert twin == found[0], f"node {place}, step {number}: {case}"
    print(f"{steps} steps at {len(cases)} nodes, {chance} of them chance")
    assert steps > len(cases) and chance < MOST_BY_CHANCE * steps
