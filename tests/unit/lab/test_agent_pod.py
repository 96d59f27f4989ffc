"""The lab's agents have the options of the operator's DaemonSet, and the lab's own places."""

from pathlib import Path

import pytest
from tests.unit.operator.manifests.wanteds import KINDS, daemon_set

from purser.agent.settings import AgentSettings, EnforcementChoice, FeatureOutlet
from purser.core.names import DEFAULT_NAMESPACE
from purser.core.sharing import MigStrategy
from purser.lab.agentpod import agent_options, is_agent_pod, settings_of_pod

AT = AgentSettings(
    node_name="n1",
    device_plugin_dir=Path("/lab/plugins"),
    state_dir=Path("/lab/state"),
    host_root=Path("/lab/root"),
    metrics_port=20001,
    probe_interval_s=0.5,
)


def pod(**section):
    spec = {"devicePlugin": section, "gfd": {"enabled": False}, "mig": {"strategy": "mixed"}}
    made = daemon_set(f"purser-device-plugin-{KINDS[0].label}", spec)
    labels = made["spec"]["template"]["metadata"]["labels"]
    metadata = {"name": "p", "namespace": DEFAULT_NAMESPACE, "uid": "u", "labels": labels}
    return {"metadata": metadata, "spec": made["spec"]["template"]["spec"]}


def test_what_the_policy_says_reaches_the_agent_at_the_labs_places():
    section = {"slots": 3, "enforcement": "time-slicing", "evictOverUsers": True, "featureLabels": "node-feature"}
    found = settings_of_pod(pod(**section, config={"name": "files", "default": "one"}), "n1", AT)
    assert (found.node_name, found.namespace, found.slots) == ("n1", DEFAULT_NAMESPACE, 3)
    assert (found.enforcement, found.evict_over_users, found.taint_nodes) == (
        EnforcementChoice.TIME_SLICING,
        True,
        False,
    )
    assert (found.features.outlet, found.features.pod_name) == (FeatureOutlet.NODE_FEATURE, "p")
    assert (found.sharing.folder, found.sharing.default) == (AT.state_dir / "configs", "one")
    assert found.sharing.flags.mig_strategy is MigStrategy.MIXED
    assert found.sharing.flags.device_lists is None  # the lab has no container runtime
    places = ("device_plugin_dir", "state_dir", "host_root", "metrics_port", "probe_interval_s")
    assert [getattr(found, name) for name in places] == [getattr(AT, name) for name in places]


def test_an_option_that_the_agent_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="--nonsense"):
        agent_options(["--nonsense=1"], {})


@pytest.mark.parametrize(("flavor", "runs"), [("purser", True), ("nvidia", False)])
def test_the_lab_runs_the_agent_alone_and_no_plugin_of_nvidias(flavor, runs):
    """Whose pod has other arguments, and would end at once, again and again."""
    assert is_agent_pod(pod(flavor=flavor, args=["--mig-strategy=single"])) is runs
