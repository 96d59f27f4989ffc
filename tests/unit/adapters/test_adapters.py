import msgspec
import pytest

from purser.adapters.nodes import InventoryError, allocatable, inventory_of
from purser.adapters.pods import grant_state, pod_spec
from purser.core.fleet.free_resources import MANY, FreeResources
from purser.core.kubernetes.quantities import QuantityError
from purser.core.model import ContainerKind, Device, GrantState, NodeInventory
from purser.kube.codec import codec_of
from purser.kube.pods import is_terminal
from purser.kube.resources import NODES, PODS

POD = {
    "metadata": {
        "name": "job",
        "namespace": "team",
        "uid": "u-1",
        "creationTimestamp": None,
        "labels": {"app": "x"},
        "annotations": {"purser.dev/grant": "{}"},
    },
    "spec": {
        "schedulerName": "purser-scheduler",
        "nodeName": "n1",
        "priority": 7,
        "initContainers": [
            {"name": "setup", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            {"name": "proxy", "restartPolicy": "Always", "resources": {}},
        ],
        "containers": [
            {
                "name": "train",
                "securityContext": {"privileged": True, "runAsUser": None},
                "resources": {"requests": {"nvidia.com/gpumem": "3k"}, "claims": [{"name": "c"}]},
            },
            {"name": "plain"},
        ],
    },
    "status": {"phase": "Running"},
}


def read_pod(body):
    return codec_of(PODS).object(msgspec.json.encode(body))


def read_node(annotation, name="n1"):
    annotations = {} if annotation is None else {"purser.dev/inventory": annotation}
    return codec_of(NODES).object(msgspec.json.encode({"metadata": {"name": name, "annotations": annotations}}))


def test_a_pod_becomes_a_spec_with_containers_in_kubelets_order():
    spec = pod_spec(read_pod(POD))
    assert (spec.uid, spec.namespace, spec.name, spec.priority) == ("u-1", "team", "job", 7)
    assert (spec.node_name, spec.scheduler_name, spec.labels) == ("n1", "purser-scheduler", {"app": "x"})
    assert [(c.name, c.kind) for c in spec.containers] == [
        ("setup", ContainerKind.INIT),
        ("proxy", ContainerKind.SIDECAR),
        ("train", ContainerKind.APP),
        ("plain", ContainerKind.APP),
    ]
    assert spec.containers[0].quantity("nvidia.com/gpu") == "1"
    assert spec.containers[2].quantity("nvidia.com/gpumem") == "3k"
    assert [c.privileged for c in spec.containers] == [False, False, True, False]


@pytest.mark.parametrize(
    ("phase", "ended"), [("Pending", False), ("Running", False), ("Succeeded", True), ("Failed", True)]
)
def test_a_pod_that_ended_holds_nothing(phase, ended):
    pod = read_pod({**POD, "status": {"phase": phase}})
    assert is_terminal(pod) is ended


@pytest.mark.parametrize(("phase", "state"), [("Pending", GrantState.BOUND), ("Running", GrantState.RUNNING)])
def test_a_grant_runs_when_its_pod_does(phase, state):
    assert grant_state(read_pod({**POD, "status": {"phase": phase}})) is state


def test_a_node_without_an_agent_has_no_inventory():
    assert inventory_of(read_node(None)) is None


def test_an_inventory_is_read_back():
    inventory = NodeInventory("n1", (Device("GPU-1", 0, "A100", 40960, slots=10),), driver_version="570")
    assert inventory_of(read_node(msgspec.json.encode(inventory).decode())) == inventory


@pytest.mark.parametrize(
    ("of_node", "of_device", "word"),
    [
        (None, None, "none"),
        ("hami-core", None, "hami-core"),
        ("none", "mps", "mps"),
        ("hami-core", "hami-core", "hami-core"),
    ],
)
def test_devices_say_what_enforces_and_of_older_agents_the_node(of_node, of_device, word):
    device = {"uuid": "a", "index": 0, "model": "A", "memory_mib": 1, "enforcement": of_device}
    body = {"node": "n1", "enforcement": of_node, "devices": [{k: v for k, v in device.items() if v is not None}]}
    text = msgspec.json.encode({key: value for key, value in body.items() if value is not None}).decode()
    assert [device.enforcement for device in inventory_of(read_node(text)).devices] == [word]


def with_pools(*pools):
    return msgspec.json.encode({"node": "n1", "pools": pools}).decode()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cannot be read"),
        ("{}", "missing required field `node`"),
        ("[" * 5000, "deeper"),
        ('{"node":"n2"}', "is for node 'n2', not for 'n1'"),
        ('{"node":"n1","devices":[{"uuid":"a","index":0,"model":"A","memory_mib":"16Gi"}]}', "$.devices[0].memory_mib"),
        ('{"node":"n1","devices":[{"uuid":"a","index":0,"model":"A","memory_mib":-1}]}', ">= 0"),
        (
            '{"node":"n1","devices":[{"uuid":"a","index":0,"model":"A","memory_mib":99999999999999999999}]}',
            "memory_mib",
        ),
        (
            '{"node":"n1","devices":[{"uuid":"a","index":0,"model":"A","memory_mib":1,"slots":1001}]}',
            "the maximum is 1000",
        ),
        ('{"node":"n1","devices":[{"uuid":"a","index":0,"model":"A","memory_mib":1,"numa_nodes":[-1]}]}', "NUMA node"),
        ('{"node":"n1","devices":[{"uuid":"","index":0,"model":"A","memory_mib":1}]}', "without a UUID"),
        (
            '{"node":"n1","devices":[{"uuid":"a","index":0,"model":"A","memory_mib":1},'
            '{"uuid":"a","index":1,"model":"A","memory_mib":1}]}',
            "lists a device twice",
        ),
        ('{"node":"n1","pools":[{"resource":"a/b"},{"resource":"a/b"}]}', "lists a pool twice"),
        ('{"node":"n1","pools":[{"resource":"nvidia.com/gpu"}]}', "a GPU resource"),
        (
            '{"node":"n1","pools":[{"resource":"a/b","places":[[["r"],1,0],[["r"],2,1]]}]}',
            "a device of pool 'a/b' twice",
        ),
        ('{"node":"n1","pools":[{"resource":"a/b","places":[[["r"],1,9999]]}]}', "NUMA node"),
        ('{"node":"n1","pools":[{"resource":"a/b","places":[[["r"],-1,0]]}]}', ">= 0"),
        (with_pools({"resource": "a/b", "places": [[["r"] * 9, 1]]}), "length <= 8"),
        (with_pools({"resource": "a/b", "places": [[[], 1]] * 33}), "length <= 32"),
        (with_pools(*({"resource": f"a/{n}"} for n in range(17))), "length <= 16"),
        (" " * 300_000, "more than the maximum of 262144"),
    ],
    ids=lambda text: text[:40],
)
def test_an_inventory_without_sense_is_refused(text, says):
    with pytest.raises(InventoryError) as caught:
        inventory_of(read_node(text))
    assert says in str(caught.value)


def test_what_a_runtime_class_adds_is_read():
    spec = {**POD["spec"], "overhead": {"cpu": "250m", "memory": 1024}}
    assert pod_spec(read_pod({**POD, "spec": spec})).overhead == {"cpu": "250m", "memory": "1024"}


def node_with(**amounts):
    body = {"metadata": {"name": "n1"}, "status": {"allocatable": amounts}}
    return codec_of(NODES).object(msgspec.json.encode(body))


def test_what_a_node_has_for_pods_is_read_and_what_it_does_not_name_is_not_limited():
    assert allocatable(node_with(cpu="3920m", memory="64Gi", pods=110)) == FreeResources(3920, 65536, 110)
    assert allocatable(node_with(pods="10")) == FreeResources(MANY, MANY, 10)


def test_an_amount_that_is_no_quantity_is_an_error():
    with pytest.raises(QuantityError, match="'plenty' is not a quantity"):
        allocatable(node_with(cpu="4", memory="plenty"))
