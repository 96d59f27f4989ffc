"""What is read off a node's standing."""

from purser.operator.model import NodeProgress, NodeView, OperandPod, Pool, Presence, RuntimeKind, Template
from purser.operator.order import Operand

POOL = Pool(
    name="p",
    os_id="ubuntu",
    os_version="22.04",
    kernel="6.8",
    profile="",
    version="595.1",
)


def pod(
    name: str, template: str, *, created: float, terminating: bool = False, daemon_set: str = "purser-driver-p"
) -> OperandPod:
    return OperandPod(
        namespace="ns",
        name=name,
        uid=name,
        node="n",
        operand="driver",
        daemon_set=daemon_set,
        template=template,
        created=created,
        terminating=terminating,
    )


def progress(*pods: OperandPod, pool: Pool | None = POOL) -> NodeProgress:
    return NodeProgress(
        node=NodeView(name="n"),
        presence=Presence("present"),
        runtime=RuntimeKind("containerd"),
        pool=pool,
        driver_template=Template("new"),
        pods=pods,
    )


def test_the_newest_pod_that_stays_counts() -> None:
    found = progress(pod("a", "old", created=1), pod("b", "new", created=2), pod("c", "x", created=3, terminating=True))
    chosen = found.pod_of(Operand.DRIVER)
    assert chosen is not None
    assert chosen.name == "b"
    assert found.driver_is_current
    assert found.pod_of(Operand.TOOLKIT) is None


def test_a_driver_is_current_in_its_own_pool_and_template_only() -> None:
    assert not progress().driver_is_current
    assert not progress(pod("a", "old", created=1)).driver_is_current
    assert not progress(pod("a", "new", created=1, daemon_set="purser-driver-q")).driver_is_current
    assert progress(pool=None).driver_is_current
