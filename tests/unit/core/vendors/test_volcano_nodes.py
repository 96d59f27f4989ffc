"""A node's GPUs as Volcano's scheduler decodes them (``decodeNodeDevices``): fields with commas, GPUs with colons."""

from purser.core.model import Device, DeviceMode, NodeInventory
from purser.core.vendors.volcano_nodes import vgpu_registration


def decoded(text):
    fields = [each.split(",") for each in text.split(":") if "," in each]
    assert all(len(each) == 6 for each in fields)
    return [(uuid, int(slots), int(mib), "NVIDIA" in model) for uuid, slots, mib, model, _, _ in fields]


def test_volcano_reads_the_gpus_that_take_pods_and_no_others():
    gpus = (
        Device("GPU-a", 0, "Tesla T4, odd: model", 15360, slots=10),
        Device("GPU-b", 1, "NVIDIA A100", 40960, slots=4, mode=DeviceMode.WHOLE),
        Device("GPU-sick", 2, "NVIDIA A100", 40960, slots=4, healthy=False),
        Device("GPU-cordoned", 3, "NVIDIA A100", 40960, slots=4),
        Device("GPU-closed", 4, "NVIDIA A100", 40960, slots=4),
        Device("GPU-mig", 5, "NVIDIA A100", 5000, mode=DeviceMode.MIG, resource="nvidia.com/mig-1g.5gb"),
    )
    text = vgpu_registration(NodeInventory("n", gpus, cordoned=frozenset({"GPU-cordoned"})), {"GPU-closed"})
    assert decoded(text) == [("GPU-a", 10, 15360, True), ("GPU-b", 4, 40960, True)]
