"""The contract suite that holds the lab's API server to the real one, run against the real one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.kubernetes import RealCluster

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(900)  # the whole contract, against a server that is busy with others
def test_the_contract_of_the_labs_api_server_is_that_of_the_real_one(real_cluster: RealCluster) -> None:
    # A young server still has its whole history: one that was started again begins with what is there now, and so has
    # versions that are too old.
    real_cluster.restart("kube-apiserver")
    command = [sys.executable, "-m", "pytest", "tests/contract", "-q", "-p", "no:cacheprovider"]
    env = {**os.environ, "PURSER_CONTRACT_KUBECONFIG": str(real_cluster.kubeconfig)}
    result = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    print(result.stdout)
    assert result.returncode == 0, result.stdout[-20000:] + result.stderr[-4000:]
