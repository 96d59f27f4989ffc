import tempfile
from pathlib import Path

import pytest
from tests.unit.lab.kubelet.rig import Node, Plugin, register, running, serving


@pytest.fixture
def folder():
    # Paths of sockets have at most 107 characters, pytest's own folders are longer.
    with tempfile.TemporaryDirectory(prefix="pk-") as name:
        yield Path(name)


@pytest.fixture
async def node(folder):
    async with running(Node(folder)) as node:
        yield node


@pytest.fixture
async def plugin(node):
    async with serving(node, Plugin()) as plugin:
        await register(node)
        await node.until_capacity(3)
        yield plugin
