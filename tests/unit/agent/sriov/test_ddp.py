"""Pools by the DDP package that runs on a controller: what is asked of whom, and what is made of the answers."""

import json
import os
import socket
import struct
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.agent.sriov.sysfs_tree import HostTree

from purser.agent.sriov import ddptool
from purser.agent.sriov.ddp import REQUERY_PERIOD_S, DdpPackages, read_node, running_versions
from purser.agent.sriov.ddptool import DdpError, in_host, package_by_ddptool
from purser.agent.sriov.netlink import GenericNetlink, attributes
from purser.agent.sriov.sysfs import SriovTree
from purser.core.sriov.configuration import sriov_config
from purser.core.sriov.pools import make_pools
from purser.lab.driver.compile import find_compiler

pytestmark = pytest.mark.processes

PF, OTHER_PF = "0000:18:00.0", "0000:81:00.0"
COMMS, DEFAULT, GTP = "ICE COMMS Package", "ICE OS Default Package", "GTPv1-C/U IPv4/IPv6 payload"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and chroot are root's")

SO_NETNS_COOKIE = 71


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def a_config(*packages):
    pools = [
        {"resourceName": f"pool-{n}", "selectors": {"vendors": ["8086"], "ddpProfiles": [name]}}
        for n, name in enumerate(packages)
    ]
    return sriov_config(json.dumps({"resourceList": pools}).encode(), "intel.com")


def pools_of(host, config, packages):
    tree = SriovTree(host.sys, host.root / "dev", host.root / "proc/1/net")
    return make_pools(config, read_node(tree, config, packages), {})


def test_vfs_are_in_the_pool_of_the_package_of_their_controller(tmp_path, clock):
    host, config = HostTree(tmp_path), a_config(COMMS, DEFAULT, "none has it")
    host.pf(PF, "ens1f0", 3)
    host.pf(OTHER_PF, "ens2f0", 2, vf_driver="vfio-pci")
    host.pf("0000:c1:00.0", "ens3", 2, vendor="15b3", driver="mlx5_core", vf_driver="mlx5_core")
    host.ddp_package(PF, COMMS)
    host.ddp_package(OTHER_PF, DEFAULT)
    host.ddp_package("0000:c1:00.0", COMMS)
    packages = DdpPackages(host.root, clock)
    found = pools_of(host, config, packages)
    assert [[each.device.pf_address for each in pool.members] for pool in found] == [[PF] * 3, [OTHER_PF] * 2, []]
    assert f"ddpProfiles matches none of the 5 devices: found {COMMS}, {DEFAULT}" in found[2].empty
    host.ddp_package(PF, DEFAULT)
    assert len(pools_of(host, config, packages)[0].members) == 3, "it is asked once a minute"
    clock.now += REQUERY_PERIOD_S
    assert [len(pool.members) for pool in pools_of(host, config, packages)] == [0, 5, 0]


def test_nobody_is_asked_where_no_selector_goes_by_packages(tmp_path, monkeypatch):
    host = HostTree(tmp_path)
    host.pf(PF, "ens1f0", 1)
    config = sriov_config(b'{"resourceList": [{"resourceName": "net", "selectors": {"vendors": ["8086"]}}]}', "x.com")
    monkeypatch.setattr(DdpPackages, "of", lambda *_: pytest.fail("asked"))
    assert len(pools_of(host, config, DdpPackages(host.root))[0].members) == 1


def attribute(kind, value):
    return struct.pack("=HH", 4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def version(kind, name, value):
    return attribute(kind | 0x8000, attribute(103, name + b"\0") + attribute(104, value + b"\0"))


ANSWER = b"".join(
    (
        attribute(1, b"pci\0"),
        attribute(2, b"0000:18:00.0\0"),
        attribute(98, b"ice\0"),
        attribute(99, b"00-01-00-ff-ff-00-00-00\0"),
        version(100, b"board.id", b"K91258-000"),
        version(101, b"fw.mgmt", b"6.1.8"),
        version(102, b"fw.app.name", b"of the flash, not loaded"),
        version(101, b"fw.app.name", COMMS.encode()),
        version(101, b"fw.app", b"1.3.31.0"),
    )
)
"""Of DEVLINK_CMD_INFO_GET, by include/uapi/linux/devlink.h."""


def test_the_package_is_among_the_versions_of_the_running_firmware():
    assert running_versions(ANSWER) == {"fw.mgmt": "6.1.8", "fw.app.name": COMMS, "fw.app": "1.3.31.0"}


@given(st.one_of(st.binary(max_size=80), st.integers(0, len(ANSWER)).map(lambda end: ANSWER[:end])))
def test_any_answer_is_read_or_has_no_versions(answer):
    assert isinstance(running_versions(answer), dict)


@contextmanager
def other_namespace():
    """The file of a network namespace of its own."""
    process = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo up; read end"], stdin=-1, stdout=-1)
    try:
        assert process.stdout.readline() == b"up\n"
        yield Path(f"/proc/{process.pid}/ns/net")
    finally:
        process.communicate(b"\n")


def cookie(opened):
    return opened.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)


def test_the_kernel_answers():
    with GenericNetlink(Path("/proc/self/ns/net")) as kernel:
        found = dict(attributes(kernel.ask("nlctrl", 3, {2: "nlctrl"})))
        assert found[2] == b"nlctrl\0"
        with pytest.raises(FileNotFoundError):
            kernel.ask("no such family", 1, {})
        assert dict(attributes(kernel.ask("nlctrl", 3, {2: "nlctrl"}))) == found


@needs_root
def test_the_kernel_is_asked_in_the_hosts_network_namespace_and_the_agent_stays_in_its_own():
    with other_namespace() as namespace, socket.socket() as before:
        with GenericNetlink(namespace) as there, GenericNetlink(Path("/proc/self/ns/net")) as here:
            assert cookie(there._socket) != cookie(before) == cookie(here._socket)
            assert dict(attributes(there.ask("nlctrl", 3, {2: "nlctrl"})))[2] == b"nlctrl\0"
        with socket.socket() as after:
            assert cookie(after) == cookie(before)
    with pytest.raises(OSError, match="No such file"):
        GenericNetlink(Path("/proc/0/ns/net"))


def test_an_agent_that_may_not_ask_finds_no_package():
    """As of this machine itself, which has no such controller: without the rights of the chart's agent."""
    assert DdpPackages(Path("/")).of(["ffff:ff:1f.7"]) == {"ffff:ff:1f.7": ""}


def a_tool(folder, text):
    path = folder / "ddptool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def said(name):
    package = {"track_id": "80000008", "version": "1.0.3.0", "name": name}
    inventory = {"device": "1572", "address": PF, "name": "enp2s0f0", "display": "Intel(R)", "DDPpackage": package}
    return json.dumps({"DDPInventory": inventory})


def test_what_ddptool_says(tmp_path):
    tool = a_tool(tmp_path, f"test \"$*\" = '-l -a -j -s {PF}' && echo '{said(GTP)}'")
    assert package_by_ddptool([tool], PF) == GTP
    with pytest.raises(DdpError, match="exited with code 1"):
        package_by_ddptool([tool], OTHER_PF)
    assert package_by_ddptool([a_tool(tmp_path, "exit 8")], PF) == ""
    assert package_by_ddptool([a_tool(tmp_path, 'echo \'{"DDPInventory": {"address": "x"}}\'')], PF) == ""


def until_gone(pid):
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text().split()[2] in "ZX":
                return
        except OSError:
            return
        time.sleep(0.01)
    pytest.fail(f"process {pid} goes on")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("echo '{'", "what ddptool said"),
        ("echo '{\"DDPInventory\": 3}'", "what ddptool said"),
        ("while :; do echo aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa; done", "printed more than 65536 bytes"),
        ("sleep 600", "did not finish within 0.2 s"),
        ("exec >&-; sleep 600", "did not finish within 0.2 s"),
        ('sleep 600 & echo $! > "${0%/*}/child"; wait', "did not finish within 0.2 s"),
    ],
)
def test_a_ddptool_that_fails_costs_no_more_than_its_deadline(tmp_path, monkeypatch, text, why):
    monkeypatch.setattr(ddptool, "DDPTOOL_DEADLINE_S", 0.2)
    with pytest.raises(DdpError, match=why):
        package_by_ddptool([a_tool(tmp_path, text)], PF)
    if (child := tmp_path / "child").exists():
        until_gone(child.read_text().strip())


def test_a_ddptool_that_is_none_is_named(tmp_path):
    with pytest.raises(DdpError, match="cannot run ddptool"):
        package_by_ddptool([str(tmp_path / "gone")], PF)


@needs_root
def test_the_tool_of_the_host_sees_the_hosts_network_interfaces(tmp_path):
    with other_namespace() as namespace:
        script = a_tool(tmp_path, f"printf '%s' '{said('@')}' | sed \"s|@|$(readlink /proc/self/ns/net)|\"")
        found = package_by_ddptool(in_host(Path("/"), namespace, script), PF)
        assert found == str(namespace.readlink())
    assert found != str(Path("/proc/self/ns/net").readlink())


PROGRAM = """
#include <stdio.h>
#include <unistd.h>
int main(int count, char **words) {
    if (access("/only-of-the-host", F_OK)) return 3;
    if (!access("/broken", F_OK)) return 1;
    printf("{\\"DDPInventory\\": {\\"DDPpackage\\": {\\"name\\": \\"of %s\\"}}}", words[count - 1]);
    return 0;
}
"""


@needs_root
@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_where_the_kernel_tells_nothing_the_hosts_ddptool_is_asked_and_what_it_said_holds(tmp_path, clock):
    """A host with folders of its own: all that it has is one program."""
    host, program = tmp_path / "host", tmp_path / "tool.c"
    program.write_text(PROGRAM)
    (host / "usr/sbin").mkdir(parents=True)
    subprocess.run([find_compiler(), "-static", "-o", host / "usr/sbin/ddptool", program], check=True)
    (host / "only-of-the-host").touch()
    (host / "proc/1/ns").mkdir(parents=True)
    with other_namespace() as namespace:
        (host / "proc/1/ns/net").symlink_to(namespace)
        packages = DdpPackages(host, clock)
        assert packages.of([PF]) == {PF: f"of {PF}"}
        (host / "broken").touch()
        clock.now += REQUERY_PERIOD_S
        assert packages.of([PF, OTHER_PF]) == {PF: f"of {PF}", OTHER_PF: ""}
        (host / "broken").unlink()
        clock.now += REQUERY_PERIOD_S
        assert packages.of([PF, OTHER_PF]) == {PF: f"of {PF}", OTHER_PF: f"of {OTHER_PF}"}
