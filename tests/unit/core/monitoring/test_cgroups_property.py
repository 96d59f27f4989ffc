"""Every path that kubelet, a container runtime and the kernel make of a container leads back to it."""

from posixpath import relpath
from typing import NamedTuple

from hypothesis import assume, given
from hypothesis import strategies as st
from tests.tiers import examples

from purser.core.monitoring.cgroups import DELETED, CgroupOwner, owner_of


class Host(NamedTuple):
    """What is the same for all containers of a node."""

    systemd: bool
    """kubelet's cgroup driver; otherwise cgroupfs."""
    above: tuple[str, ...]
    """kubelet's option ``--cgroup-root``."""
    outside: str
    """The cgroup of a node that is a container itself."""
    runtime: str


class Container(NamedTuple):
    """Of a pod."""

    uid: str
    id: str
    qos: str


hexadecimal = st.text("0123456789abcdef", min_size=64, max_size=64)
uids = st.uuids().map(str) | hexadecimal.map(lambda text: text[:32])
containers = st.builds(Container, uids, hexadecimal, st.sampled_from(["", "burstable", "besteffort"]))
hosts = st.builds(
    Host,
    st.booleans(),
    st.sampled_from([(), ("kubelet",), ("node", "kubelet")]),
    st.sampled_from(["", f"/docker/{'e' * 64}", "/lxc.payload.node-1", "/system.slice/k3s.service"]),
    st.sampled_from(["containerd", "cri-o", "docker"]),
)


def path_of(host: Host, container: Container) -> str:
    """As kubelet's CgroupName has it by either driver, and the runtime below it (kubernetes/pkg/kubelet/cm)."""
    names = [*host.above, "kubepods", *filter(None, [container.qos])]
    prefix = {"containerd": "cri-containerd-", "cri-o": "crio-", "docker": "docker-"}[host.runtime]
    if not host.systemd:
        below = f"crio-{container.id}" if host.runtime == "cri-o" else container.id
        return "/".join((host.outside, *names, f"pod{container.uid}", below))
    nested = ["-".join(names[: depth + 1]) for depth in range(len(names))]
    nested.append(f"{nested[-1]}-pod{container.uid.replace('-', '_')}")
    return "/".join((host.outside, *(f"{name}.slice" for name in nested), f"{prefix}{container.id}.scope"))


def text_of(path: str, controllers: tuple[str, ...]) -> str:
    """With cgroup v1, or v2 where there are no controllers."""
    if not controllers:
        return f"0::{path}\n"
    return "".join(f"{number}:{name}:{path}\n" for number, name in enumerate(controllers, 1))


@examples(150)
@given(
    hosts,
    containers,
    st.sampled_from(["", "/container", "/init.scope", "/kubepods/pod0"]),
    st.sampled_from(["", DELETED]),
    st.sampled_from([(), ("memory", "cpu,cpuacct", "name=systemd")]),
)
def test_a_path_leads_back_to_its_container(
    host: Host, container: Container, below: str, end: str, controllers: tuple[str, ...]
) -> None:
    text = text_of(f"{path_of(host, container)}{below}{end}", controllers)
    assert owner_of(text) == CgroupOwner(container.uid, container.id)


@examples(150)
@given(hosts, containers, containers)
def test_an_agent_in_a_cgroup_namespace_sees_the_containers_of_other_pods(
    host: Host, agent: Container, container: Container
) -> None:
    assume(agent.uid != container.uid)
    seen = f"/{relpath(path_of(host, container), path_of(host, agent))}"
    assert owner_of(f"0::{seen}\n") == CgroupOwner(container.uid, container.id)
