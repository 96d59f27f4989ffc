"""Every row of a CSV list is taken, or refused with file, line and column."""

import gzip
from pathlib import Path

import pytest
from tests.reported_files import reported

from purser.core.placement.shape import PodShape
from purser.simulator.openb import read_lists, read_nodes, read_pods
from purser.simulator.problems import InputError

NODES = "sn,cpu_milli,memory_mib,gpu,model\n"
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,creation_time,deletion_time,scheduled_time\n"


def problems(read, path: Path, text: str | bytes) -> list[str]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        read(path)
    return [str(problem).removeprefix(str(path)) for problem in caught.value.problems]


def test_nodes_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text(NODES + "a,96000,393216,8,G2\nb,8000,1024,0,\n")
    first, second = read_nodes(path)
    assert (first.name, len(first.gpus), first.gpus[0].model, first.cpu_free_milli) == ("a", 8, "G2", 96000)
    assert (second.gpus, second.memory_free_mib) == ((), 1024)


def test_pods_are_read_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(PODS + 'a,4000,1024,1,460,V100M16|T4,LS,5,100,20\n"b,c",1000,1,0,0,,BE,7,9,\n')
    first, second = read_pods(path)
    assert first.shape == PodShape(4000, 1024, 1, 460, models=("=V100M16", "=T4"))
    assert (first.arrives_s, first.lasts_s) == (5, 80)
    assert (second.name, second.shape, second.lasts_s) == ("b,c", PodShape(1000, 1), 2)


def test_lists_as_pandas_writes_them(tmp_path: Path) -> None:
    """A column with an empty field anywhere is one of floats."""
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text(",sn,cpu_milli,memory_mib,gpu,model\n0,a,96000.0,393216.0,8.0,G2\n1,b,8e+03,1024.0,0.0,\n\n \n")
    first, second = read_nodes(nodes)
    assert (len(first.gpus), first.cpu_free_milli, second.cpu_free_milli) == (8, 96000, 8000)
    pods.write_text(
        PODS + "a,4000.0,1024.0,1.0,500.0,,LS,100.0,5000.12345678901234,120.\r\n\r\nb,1,1,0.0,0.0,,,,,\r\n\r\n"
    )
    one, two = read_pods(pods)
    assert one.shape == PodShape(4000, 1024, 1, 500)
    assert (one.arrives_s, two.shape, two.lasts_s) == (100.0, PodShape(1, 1), None)
    assert one.lasts_s == pytest.approx(4880.123456789)


@pytest.mark.parametrize(
    "text",
    [
        "\n\nsn,cpu_milli,memory_mib,gpu,model\na,1000,1024,2,T4\nb,1,1,0,NaN\n,,,,\n",
        "sn;cpu_milli;memory_mib;gpu;model\na;1000;1024;2;T4\n;;;;\nb;1;1;0;<NA>\n",
        'sn\tcpu_milli\tmemory_mib\tgpu\tmodel\n"a"\t1000.0\t1024\t2.0\t"T4"\r\n\t\t\t\t\r\nb\t1\t1\t0\tnan\r\n',
    ],
    ids=["commas", "semicolons", "tabs"],
)
def test_lists_of_spreadsheets(tmp_path: Path, text: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = [(node.name, node.cpu_free_milli, [gpu.model for gpu in node.gpus]) for node in read_nodes(path)]
    assert found == [("a", 1000, ["T4", "T4"]), ("b", 1, [])]


def test_what_is_not_there_is_empty_in_all_its_spellings(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(PODS + "nan,1,1,1,500,NaN,LS,NaT,NaN,nan\nb,1,1,0.0,NaN,<NA>,LS,3.0,NaN,\n")
    first, second = read_pods(path)
    assert (first.name, first.shape, first.arrives_s) == ("nan", PodShape(1, 1, 1, 500), None)
    assert (second.shape, second.arrives_s, second.lasts_s) == (PodShape(1, 1), 3.0, None)


def test_lists_as_users_have_them() -> None:
    found = read_lists(reported("nodes.csv"), reported("floats.csv"))
    assert [(pod.name, pod.shape.gpu_count, pod.lasts_s) for pod in found.pods] == [("pod-1", 1, 4880.0)]


def test_columns_may_stand_in_any_order_and_times_may_be_missing(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbfgpu_milli,name,num_gpu,cpu_milli,memory_mib\r\n1000,a,2,1,1\r\n"))
    [pod] = read_pods(path)
    assert (pod.shape.gpu_count, pod.arrives_s, pod.lasts_s) == (2, None, None)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("a,x,1,1,500,,LS,,,", ":2:3: cpu_milli is 'x', but must be an integer"),
        ("a,1,1,NaN,500,,LS,,,", ":2:7: num_gpu is 'NaN', but must be an integer"),
        ("a,1,1,1,NaN,,LS,,,", ":2:9: gpu_milli is 'NaN', but must be an integer"),
        ("a,1,-1,1,500,,LS,,,", ":2:5: memory_mib is '-1', but must be an integer"),
        ("a,1,1,1.5,500,,LS,,,", ":2:7: num_gpu is '1.5', but must be an integer"),
        ("a,1,1,1,1001,,LS,,,", ":2:9: gpu_milli is '1001', but must be an integer from 0 to 1000"),
        ("a,1,1,1,0,,LS,,,", ":2:9: gpu_milli is 0, but num_gpu is 1"),
        ("a,1,1,0,500,,LS,,,", ":2:9: gpu_milli is 500, but num_gpu is 0"),
        ("a,1,1,1,500,T4||G2,LS,,,", ":2:13: gpu_spec contains an empty model"),
        (",1,1,1,500,,LS,,,", ":2:1: name is empty"),
        ("a,1,1,1,500,,LS,ten,,", ":2:17: creation_time is 'ten', but must be empty or a number of seconds"),
        ("a,1,1,1,500,,LS,9,8,", ":2:19: deletion_time is before creation_time"),
        ("a,1,1,1,500,,LS,1,8,9", ":2:21: scheduled_time is not between"),
        ("a,1,1,1,500,,LS,,", ":2:18: the line has 9 fields, but the header has 10"),
        ("a,1,1,1,500,,LS,,,,7", ":2:20: the line has 11 fields, but the header has 10"),
        ('a,1,1,1,500,"T4,LS,,,', ":2:13: a quote is out of place"),
        ('"a",1x,1,1,500,,LS,,,', ":2:5: cpu_milli is '1x'"),
        ("a,1,1,1.0,500.5,,LS,,,", ":2:11: gpu_milli is '500.5', but must be an integer"),
        ("a,1,1,1e-1,500,,LS,,,", ":2:7: num_gpu is '1e-1', but must be an integer"),
        ("a,1e99,1,1,500,,LS,,,", ":2:3: cpu_milli is '1e99', but must be an integer"),
        ("a,nan,1,1,500,,LS,,,", ":2:3: cpu_milli is 'nan', but must be an integer"),
        ("a,1,1,1,500,,LS,1e98,,", ":2:17: creation_time is '1e98', but must be empty or a number of seconds"),
        ("\n,1,1,500,,LS,,,", ":3:16: the line has 9 fields, but the header has 10"),
        ("a,99999999999999999999,1,1,500,,LS,,,", ":2:3: cpu_milli is '99999999999999999999'"),
    ],
)
def test_an_error_in_a_pod_has_its_place(tmp_path: Path, row: str, says: str) -> None:
    [found] = problems(read_pods, tmp_path / "pods.csv", PODS + row + "\n")
    assert found.startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ":1:1: the file has no header line"),
        (NODES, ":1:1: the file has no nodes"),
        ("sn,cpu_milli,memory_mib,gpu\n", ":1:1: column model is missing"),
        ("sn,sn,cpu_milli,memory_mib,gpu,model\n", ":1:1: column sn is given twice"),
        (NODES + "a,1,1,1,T4\nb,1,1,1,T4\na,1,1,1,T4\n", ":4:1: sn 'a' appears twice"),
        (NODES + "a,1,1,1,\n", ":2:9: model is empty"),
        (NODES + "a,1,1,129,T4\n", ":2:7: gpu is '129', but must be an integer from 0 to 128"),
        (NODES.encode() + b"a,1,1,1,\xff\n", ":2:9: the file is not UTF-8 text"),
        (b"\x1f\x8bno gzip at all", ":1:1: the file is damaged"),
    ],
)
def test_an_error_in_a_list_of_nodes_has_its_place(tmp_path: Path, text: str | bytes, says: str) -> None:
    [found] = problems(read_nodes, tmp_path / "nodes.csv", text)
    assert found.startswith(says)


def test_everything_that_is_wrong_is_reported_at_once_and_of_both_files(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(NODES + "a,1,1,x,T4\n")
    (tmp_path / "pods.csv").write_text(PODS + "a,x,1,1,500,,LS,,,\nb,1,y,1,500,,LS,,,\n")
    with pytest.raises(InputError) as caught:
        read_lists(tmp_path / "nodes.csv", tmp_path / "pods.csv")
    assert [(Path(p.file).name, p.line) for p in caught.value.problems] == [
        ("nodes.csv", 2),
        ("pods.csv", 2),
        ("pods.csv", 3),
    ]


def test_of_very_many_problems_the_first_are_shown_and_the_rest_counted(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(PODS + "".join(f"p{n},x,1,1,500,,LS,,,\n" for n in range(100)))
    with pytest.raises(InputError) as caught:
        read_pods(path)
    lines = list(caught.value.lines())
    assert (len(lines), lines[-1]) == (21, "and 80 more")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.csv: cannot read the file: No such file"):
        read_pods(tmp_path / "nothing.csv")
