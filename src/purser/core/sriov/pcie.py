"""What a node publishes of the PCIe switches above its GPUs and the devices of its SR-IOV pools."""

from collections.abc import Mapping

import msgspec

from purser.core.model import NodeInventory, NodePool, PcieSwitches


class NodePcie(msgspec.Struct, frozen=True):
    """Of one node."""

    gpus: Mapping[str, PcieSwitches] = {}
    """By uuid, of MIG devices as well."""
    pools: tuple[NodePool, ...] = ()


def with_pcie(inventory: NodeInventory, pcie: NodePcie) -> NodeInventory:
    """The inventory that is published; of a node without pools nothing is said of switches."""
    if not pcie.pools:
        return inventory
    replace = msgspec.structs.replace
    devices = tuple(replace(each, pcie=pcie.gpus.get(each.uuid, ())) for each in inventory.devices)
    return replace(inventory, devices=devices, pools=pcie.pools)


def pcie_of(inventory: NodeInventory) -> NodePcie:
    """What an inventory says."""
    return NodePcie({each.uuid: each.pcie for each in inventory.devices}, inventory.pools)
