"""The operator's page: what goes on, who waits for what, and what stands in the way."""

import pytest
from tests.unit.top.states import cluster, grant, node

from purser.core.state import rollout, rollout_node
from purser.kube import ConfigError, KubeError
from purser.web.pages import NODES_PER_PAGE
from purser.web.rollouts import MAX_OPERANDS, next_disrupted, operand_names, rollout_rows

from .pages import Source, served
from .test_pages import text_of

STATUS = {
    "state": "notReady",
    "conditions": [
        {"type": "Progressing", "status": "True", "reason": "Upgrading", "message": "driver upgrades in progress: 1"},
        {"type": "Degraded", "status": "True", "reason": "DriverUpgradeHalted", "message": "<b>halted</b>"},
    ],
    "nodes": {"total": 4, "ready": 1, "progressing": 2, "failing": 1},
    "operands": [
        {"name": "driver", "state": "failing", "desired": 4, "ready": 3, "message": "node n10: crashed"},
        {"name": "dcgm", "state": "disabled"},
        {"name": "mig-manager", "state": "progressing", "desired": 4, "ready": 2},
    ],
    "failingNodes": [{"name": "n10", "operand": "driver", "reason": "Crash", "message": "exit status 1"}],
    "pools": [{"name": "ubuntu-580", "os": "ubuntu 22.04", "kernel": "5.15", "driver": "580.95.05", "nodes": 4}],
    "upgrade": {
        "pending": 2,
        "inProgress": 1,
        "failed": 1,
        "progress": "1/4",
        "halted": True,
        "haltReason": "1 node failed",
        "target": "p.1,p.2; rm -rf",
        "message": "node n2: 1 pod is protected",
        "upcoming": [
            {"name": "n10", "driver": "580.95.05"},
            {"name": "n1", "driver": "580.95.05", "restartOnly": True},
        ],
    },
}
DEPLOY = "nvidia.com/gpu.deploy."


def _node(name, annotations=None, **labels):
    gates = {DEPLOY + "driver": "true", DEPLOY + "mig-manager": "true"}
    return rollout_node(name, gates | labels, annotations or {}, cordoned=bool(annotations))


def example():
    return rollout(
        {"old": {"state": "ignored", "conditions": [{"type": "Ready", "message": "gpus is older"}]}, "gpus": STATUS},
        [
            _node("n1"),
            _node("n10"),
            _node(
                "n2",
                {"purser.dev/cordoned-by": "driver-upgrade"},
                **{
                    "nvidia.com/gpu-driver-upgrade-state": "drain-required",
                    DEPLOY + "mig-manager": "paused-for-driver-upgrade",
                },
            ),
            _node("n3", **{"nvidia.com/mig.config": "all-1g.10gb", "nvidia.com/mig.config.state": "pending"}),
        ],
    )


async def test_the_page_shows_upgrade_operands_pools_and_nodes():
    source = Source()
    source.rolled_out = example()
    async with served(source) as (client, _):
        text = await text_of(client, "/operator")
    shows = [
        "Halted</span>: 1 node failed",
        "1/4",
        "2 pending, 1 in progress, 0 done, 1 failed, 0 skipped",
        "node n2: 1 pod is protected",
        "kubectl annotate --overwrite pcp gpus &#39;purser.dev/resume-upgrade=p.1,p.2; rm -rf&#39;",
        "3 of 4",
        "node n10: crashed",
        "ubuntu-580",
        "Ignored: gpus is older",
        "Failed</span>: driver: exit status 1",
        "Cordoned for the driver upgrade",
        "draining the node <code>drain-required</code>",
        "Next to be disrupted",
        "The upgrade is halted: pending nodes stay as they are until you resume it.",
        "paused: driver upgrade",
        "all-1g.10gb: pending",
        "&lt;b&gt;halted",
        'data-refresh-ms="5000"',
    ]
    assert [each for each in shows if each not in text] == []
    assert "<b>halted" not in text


def test_nodes_that_need_a_look_come_first_and_pods_are_counted():
    state = cluster((node("n1"),), (grant("a", "n2"), grant("b", "n2")), ())
    rows = rollout_rows(example(), state)
    assert [(row.node.name, row.has_failed, row.is_changing, len(row.pods)) for row in rows] == [
        ("n10", True, False, 0),
        ("n2", False, True, 2),
        ("n3", False, True, 0),
        ("n1", False, False, 0),
    ]
    assert operand_names(example()) == ["driver", "mig-manager"]


def test_nodes_whose_pods_leave_next_are_in_the_order_of_the_upgrade():
    rows = rollout_rows(example(), cluster((), (grant("a", "n2"), grant("b", "n2"), grant("c", "n10")), ()))
    found, total = next_disrupted(example(), rows)
    assert [(each.name, each.step, each.restarts_only, [grant.pod for grant in each.pods]) for each in found] == [
        ("n2", "draining the node", False, ["a", "b"]),
        ("n10", "pending", False, ["c"]),
        ("n1", "pending", True, []),
    ]
    assert total == 3


def test_of_many_nodes_that_wait_for_the_upgrade_the_first_are_shown_and_all_are_counted():
    upcoming = [{"name": f"n{number}"} for number in range(60)]
    many = rollout({"p": {"state": "ready", "upgrade": {"pending": 700, "upcoming": upcoming}}}, [])
    found, total = next_disrupted(many, [])
    assert ([each.name for each in found], total) == ([f"n{number}" for number in range(50)], 700)


def test_whom_the_upgrade_disturbs_is_asked_of_each_step():
    steps = ["upgrade-done", "upgrade-required", "pod-restart-required", "pod-deletion-required", "", "odd"]
    nodes = [_node(f"n{place}", **{"nvidia.com/gpu-driver-upgrade-state": step}) for place, step in enumerate(steps)]
    rows = rollout_rows(rollout({}, nodes), cluster((), (), ()))
    assert [each.name for each in next_disrupted(rollout({}, nodes), rows)[0]] == ["n3"]
    assert {row.node.name: row.step for row in rows} == {
        "n0": "done",
        "n1": "pending",
        "n2": "replacing the driver",
        "n3": "evicting GPU pods",
        "n4": "none",
        "n5": "odd",
    }


def test_without_a_policy_operands_are_those_that_nodes_have_labels_of():
    found = rollout({}, [_node("n", **{DEPLOY + "dcgm": "odd", DEPLOY + "operands": "true"})])
    assert operand_names(found) == ["dcgm", "driver", "mig-manager"]
    assert rollout_rows(found, cluster((), (), ()))[0].gates[0].words == "odd"


async def test_many_nodes_are_on_several_pages():
    source = Source()
    source.rolled_out = rollout({}, [_node(f"n{number}") for number in range(NODES_PER_PAGE + 1)])
    async with served(source) as (client, _):
        assert 'rel="next" href="/operator?page=2"' in await text_of(client, "/operator")
        last = await text_of(client, "/operator?page=99999")
        assert f">n{NODES_PER_PAGE}</a>" in last and 'rel="next"' not in last


@pytest.mark.parametrize(
    ("labels", "waiting", "words", "is_changing"),
    [
        ({}, 0, ["not needed", "not needed"], False),  # GPUs without MIG have no MIG manager
        ({"driver": "true"}, 1, ["admitted", "waits"], True),
        ({"driver": "true", "mig-manager": "false"}, 1, ["admitted", "excluded"], False),
        ({"operands": "false"}, 1, ["excluded", "excluded"], False),
        ({"driver": "pre-installed", "mig-manager": "true"}, 1, ["the node's own", "admitted"], False),
        ({"driver": "true", "mig-manager": "paused-for-mig-change"}, 0, ["admitted", "paused: MIG change"], True),
    ],
)
def test_only_nodes_change_that_wait_for_something(labels, waiting, words, is_changing):
    operands = [{"name": "driver", "state": "ready"}, {"name": "mig-manager", "state": "ready", "waiting": waiting}]
    gates = {DEPLOY + operand: value for operand, value in labels.items()}
    node = rollout_node("n", gates | {"nvidia.com/gpu.present": "true"}, {}, cordoned=False)
    (row,) = rollout_rows(rollout({"p": {"state": "ready", "operands": operands}}, [node]), cluster((), (), ()))
    assert ([gate.words for gate in row.gates], row.is_changing) == (words, is_changing)


async def test_labels_of_a_node_cannot_make_the_table_too_wide():
    source = Source()
    source.rolled_out = rollout({}, [_node("n", **{f"{DEPLOY}x{number}": "<b>" for number in range(1000)})])
    async with served(source) as (client, _):
        text = await text_of(client, "/operator")
    assert text.count("<th") < MAX_OPERANDS + 10 and "<b>" not in text


@pytest.mark.parametrize(
    "error", [KubeError("https://s/v1/rollout answered 503: ?"), ConfigError("--token-file f: no such file")]
)
async def test_a_rollout_that_cannot_be_read_is_said_on_the_page(error):
    source = Source()
    source.rolled_out = error
    async with served(source) as (client, _):
        text = await text_of(client, "/operator")
    assert str(error) in text and "no ClusterPolicy" not in text


async def test_a_driver_that_waits_for_its_upgrade_is_blocked_by_what_blocks_that():
    driver = {"name": "driver", "state": "progressing", "desired": 4, "ready": 4}
    source = Source()
    source.rolled_out = rollout({"gpus": STATUS | {"operands": [driver]}}, [])
    async with served(source) as (client, _):
        row = next(
            line for line in (await text_of(client, "/operator")).splitlines() if '<th scope="row">driver' in line
        )
    assert "node n2: 1 pod is protected" in row
