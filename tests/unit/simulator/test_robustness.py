"""Whatever stands in a file: it is read, or refused with a place in it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.simulator.builders import node, share, workload

from purser.simulator.openb import read_nodes, read_pods
from purser.simulator.orders import read_order
from purser.simulator.problems import InputError
from purser.simulator.yamlfile import read_workload

LISTED = workload([node("a")], [share(5)])
HEADS = {
    read_nodes: "sn,cpu_milli,memory_mib,gpu,model\n",
    read_pods: "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n",
    read_workload: "nodes: [{name: a}]\npods: ",
}
PIECES = st.one_of(
    st.sampled_from(list(',"|[]{}#!?\n\r\x00\x85\u2028é٣ ')),
    st.sampled_from(["a", "1", "-1", "0.5", "1e9", "9" * 30, "p0", "p ", "n ", "0-a", "name", "gpus"]),
    st.sampled_from([": ", "- ", "&x", "*x", "<<"]),
)
TEXTS = st.lists(PIECES, max_size=40).map("".join)


@pytest.mark.parametrize("read", [read_nodes, read_pods, read_workload], ids=lambda read: read.__name__)
@given(text=TEXTS)
def test_lists(read: Callable[[Path], object], text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(read, HEADS[read] + text, tmp_path_factory)


@given(text=TEXTS)
def test_orders(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(lambda path: read_order(path, LISTED), text, tmp_path_factory)


@given(data=st.binary(max_size=60))
def test_bytes(data: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    check(read_pods, data, tmp_path_factory)


def check(read: Callable[[Path], object], text: str | bytes, folders: pytest.TempPathFactory) -> None:
    path = folders.getbasetemp() / "fuzzed"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    try:
        read(path)
    except InputError as error:
        assert error.problems
        assert all(problem.line > 0 and problem.column > 0 for problem in error.problems)
