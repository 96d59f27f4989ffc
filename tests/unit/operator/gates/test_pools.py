"""Pools of nodes, and which driver versions are ruled out on them."""

import re

import msgspec
import pytest
from hypothesis import given
from tests.texts import any_text
from tests.tiers import examples

from purser.core.names import NODE_FACTS_ANNOTATION
from purser.core.node.annotations import encode
from purser.core.node.facts import NodeFacts, PciGpu
from purser.operator.gates.assignment import labelled_pool, pool_obstacle, pool_of, requirement_obstacle
from purser.operator.manifests.driver import image_of
from purser.operator.model import NodeView, Pool
from purser.operator.policy.driver import DriverProfile, DriverRequirement, DriverSpec
from purser.operator.policy.sections import Discovery
from purser.operator.policy.spec import ClusterPolicySpec

NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?$")
DRIVER = DriverSpec(version="570.86.10", profiles=(DriverProfile(name="gold", node_selector={"tier": "gold"}),))


def node(os: str = "Ubuntu 22.04 LTS", kernel: str = "6.8.0-45-generic", **labels: str) -> NodeView:
    return NodeView(name="n", os_image=os, kernel=kernel, labels=labels)


def pool(view: NodeView, driver: DriverSpec = DRIVER) -> Pool:
    found = pool_of(view, driver)
    assert isinstance(found, Pool)
    return found


def test_equal_nodes_share_a_pool_and_any_difference_parts_them() -> None:
    assert pool(node()) == pool(node(other="label"))
    names = {
        pool(each).name
        for each in (
            node(),
            node(os="Ubuntu 24.04 LTS"),
            node(kernel="6.9"),
            node(tier="gold"),
            node("Debian GNU/Linux 12"),
        )
    }
    assert len(names) == 5


TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Of the distribution's reference grammar."""


@pytest.mark.parametrize(
    ("os", "kernel", "tag"),
    [
        (
            "Red Hat Enterprise Linux 9.6 (Plow)",
            "5.14.0-570.19.1.el9_6.aarch64+64k",
            "570-5.14.0-570.19.1.el9_6.aarch64_64k-rhel9",
        ),
        ("Rocky Linux 9.5 (Blue Onyx)", "5.14.0-503.el9.x86_64+rt", "570-5.14.0-503.el9.x86_64_rt-rocky9"),
        ("SUSE Linux Enterprise Server 15 SP6", "6.4.0-150600+debug", "570-6.4.0-150600_debug-sles15.6"),
        ("Debian GNU/Linux 12", "6.1.0~bpo+1-amd64", "570-6.1.0_bpo_1-amd64-debian12"),
        ("Ubuntu 24.04 LTS", "6.8.0-1018-nvidia-64k", "570-6.8.0-1018-nvidia-64k-ubuntu24.04"),
    ],
)
def test_the_tag_of_a_precompiled_driver_has_what_tags_can_hold(os: str, kernel: str, tag: str) -> None:
    driver = DriverSpec(version="570", use_precompiled=True)
    assert image_of(driver, pool(node(os, kernel), driver)).rpartition(":")[2] == tag


@given(any_text(max_size=40), any_text(max_size=20), any_text(max_size=20))
def test_whatever_a_node_reports_makes_a_valid_tag(kernel: str, os_id: str, version: str) -> None:
    driver = DriverSpec(version="570", use_precompiled=True)
    of = Pool(name="p", os_id=os_id, os_version=version, kernel=kernel, profile="", version="570", runtime="containerd")
    assert TAG.fullmatch(image_of(driver, of).rpartition(":")[2])


def test_minor_versions_of_an_enterprise_linux_share_a_pool() -> None:
    assert pool(node("Rocky Linux 9.3 (Blue Onyx)")) == pool(node("Rocky Linux 9.5 (Blue Onyx)"))


def test_red_hats_nodes_with_cri_o_have_a_pool_of_their_own_and_others_share_theirs() -> None:
    def of(os: str, runtime: str) -> Pool:
        return pool(msgspec.structs.replace(node(os), runtime=runtime))

    red_hat, ubuntu = "Red Hat Enterprise Linux 9.4 (Plow)", "Ubuntu 22.04 LTS"
    theirs, ours = of(red_hat, "cri-o://1.31.0"), of(red_hat, "containerd://1.7.22")
    assert theirs.name != ours.name and (theirs.runtime, ours.runtime) == ("crio", "containerd")
    assert ours == pool(node(red_hat))
    assert of(ubuntu, "cri-o://1.31.0") == of(ubuntu, "containerd://1.7.22") == pool(node(ubuntu))


def test_the_version_of_a_driver_is_not_part_of_its_pool() -> None:
    assert pool(node()).name == pool(node(), DriverSpec(version="600")).name


@given(any_text(min_size=1, max_size=80), any_text(max_size=80))
@examples(100)
def test_a_pools_name_fits_labels_and_objects(version: str, kernel: str) -> None:
    labels = {
        "feature.node.kubernetes.io/system-os_release.ID": "ubuntu",
        "feature.node.kubernetes.io/system-os_release.VERSION_ID": version,
    }
    found = pool(NodeView(name="n", labels=labels, kernel=kernel))
    assert NAME.match(found.name)
    assert found.daemon_set == f"purser-driver-{found.name}"


@pytest.mark.parametrize(
    ("version", "minimum", "excluded", "problem"),
    [
        pytest.param("570.86.10", "570", (), "", id="new enough"),
        pytest.param("570.86.10", "570.86.10", (), "", id="just new enough"),
        pytest.param("570.9", "570.86", (), "is older than 570.86", id="numbers, not text"),
        pytest.param(
            "600.1", "", ("600",), "matches 600, which is excluded on this node", id="a hole by its beginning"
        ),
        pytest.param("600.1", "", ("600.1.1", "60"), "", id="another hole"),
        pytest.param("600.1-custom", "600", (), "", id="with a suffix"),
        pytest.param("sha256:abc", "600", (), "cannot be checked against spec.driver.requirements", id="digest"),
    ],
)
def test_floors_and_holes(version: str, minimum: str, excluded: tuple[str, ...], problem: str) -> None:
    requirement = DriverRequirement(node_selector={"sku": "x"}, minimum=minimum, excluded=excluded)
    found = requirement_obstacle(node(sku="x"), version, (requirement,))
    assert problem in found and bool(problem) == bool(found)
    assert requirement_obstacle(node(sku="y"), version, (requirement,)) == ""


def test_an_unknown_os_is_an_obstacle() -> None:
    assert "the operating system is unknown" in str(pool_of(node("Plan 9"), DRIVER))


def test_the_pool_that_a_label_names_is_found_as_long_as_the_policy_has_it() -> None:
    gold = pool(node(tier="gold"))
    carried = node(**{"purser.dev/driver-pool": gold.name})
    assert labelled_pool(carried, DRIVER) == gold
    assert pool(carried).profile == ""
    assert labelled_pool(carried, DriverSpec()) is None
    assert labelled_pool(node(), DRIVER) is None


@pytest.mark.parametrize(
    ("driver", "version"),
    [
        (DriverSpec(), "595.91.07"),
        (DriverSpec(version="1.2"), "1.2"),
        (DriverSpec(image="my.host:5000/driver:3.4"), "3.4"),
        (DriverSpec(image="my.host:5000/driver"), ""),
        (DriverSpec(profiles=(DriverProfile(name="p", node_selector={"a": "b"}, version="9"),)), "9"),
    ],
)
def test_which_version_a_pool_gets(driver: DriverSpec, version: str) -> None:
    assert pool(node(a="b"), driver).version == version


PRODUCT = "nvidia.com/gpu.product"
H100 = "NVIDIA-H100-80GB-HBM3"
HOPPER = DriverProfile(name="hopper", node_selector={PRODUCT: H100}, version="580.1")


def seen(*devices: str, **labels: str) -> NodeView:
    """A node at which Purser's discovery has looked."""
    facts = encode(NodeFacts(gpus=tuple(PciGpu(device) for device in devices)))
    annotations = {NODE_FACTS_ANNOTATION: facts}
    return NodeView(name="n", os_image="Ubuntu 22.04 LTS", kernel="6.8", labels=labels, annotations=annotations)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(seen("2330"), id="by its PCI id, before it has a driver"),
        pytest.param(node(**{PRODUCT: H100}), id="by its label"),
        pytest.param(node(**{PRODUCT: f"{H100}-SHARED"}), id="whether it is shared"),
        pytest.param(node(**{PRODUCT: f"{H100}-MIG-1g.10gb"}), id="or cut"),
        pytest.param(seen("2330", **{PRODUCT: "something-else"}), id="whatever the label says"),
        pytest.param(seen("ffff", **{PRODUCT: H100}), id="a card that Purser does not know is what its label says"),
    ],
)
def test_profiles_and_requirements_see_the_model_of_the_gpu(view: NodeView) -> None:
    driver = DriverSpec(version="570.86.10", profiles=(HOPPER,))
    floor = DriverRequirement(node_selector={PRODUCT: H100}, minimum="590")
    assert pool(view, driver).profile == "hopper"
    assert requirement_obstacle(view, "580.1", (floor,)) != ""
    assert pool(seen("1eb8"), driver).profile == ""
    assert requirement_obstacle(seen("1eb8"), "580.1", (floor,)) == ""


def test_a_selector_may_also_name_the_label_as_it_stands() -> None:
    cut = DriverProfile(name="cut", node_selector={PRODUCT: f"{H100}-MIG-1g.10gb"})
    driver = DriverSpec(version="570", profiles=(cut,))
    assert pool(seen("2330", **{PRODUCT: f"{H100}-MIG-1g.10gb"}), driver).profile == "cut"
    assert pool(seen("2330"), driver).profile == ""


FLOOR = DriverRequirement(node_selector={PRODUCT: H100, "zone": "a"}, minimum="570")


@pytest.mark.parametrize(
    ("view", "driver", "waits"),
    [
        pytest.param(node(), DriverSpec(profiles=(HOPPER,)), True, id="a profile asks for the model"),
        pytest.param(node(zone="a"), DriverSpec(requirements=(FLOOR,)), True, id="a requirement does"),
        pytest.param(node(), DRIVER, False, id="nobody asks"),
        pytest.param(node(zone="b"), DriverSpec(requirements=(FLOOR,)), False, id="the requirement is for others"),
        pytest.param(
            node(tier="gold"),
            DriverSpec(profiles=(*DRIVER.profiles, HOPPER)),
            False,
            id="a profile before it has the node already",
        ),
        pytest.param(seen("2330"), DriverSpec(profiles=(HOPPER,)), False, id="known by its PCI id"),
        pytest.param(node(**{PRODUCT: "x"}), DriverSpec(profiles=(HOPPER,)), False, id="known by its label"),
        pytest.param(seen("ffff"), DriverSpec(profiles=(HOPPER,)), False, id="discovery looked, and does not know it"),
        pytest.param(seen(), DriverSpec(profiles=(HOPPER,)), False, id="discovery looked, and saw no card"),
    ],
)
def test_a_node_waits_for_its_model_where_its_driver_depends_on_it(
    view: NodeView, driver: DriverSpec, waits: bool
) -> None:
    told = pool_obstacle(view, ClusterPolicySpec(driver=driver))
    assert bool(told) is waits
    assert pool_obstacle(view, ClusterPolicySpec(driver=driver, discovery=Discovery(enabled=False))) == ""
    if waits:
        assert "GPU model, which is not known yet" in told
