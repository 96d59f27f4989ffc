"""What authors of pods are warned of that no GPU of the cluster can give them, and of nothing that one can."""

import pytest
from tests.unit.core.dialects.pods import container, pod
from tests.unit.core.placement.test_instances import gpu

from purser.core.dialects import parse
from purser.core.dialects.unserved import unserved_words
from purser.core.fleet import Fleet
from purser.core.mig import MigPlacement
from purser.core.model import Device, DeviceMode, NodeInventory
from purser.core.placement import Evaluator
from purser.core.placement.offers import offers_of
from purser.scheduler.webhook.capacity_warnings import capacity_warnings

SHARED = Device("s", 0, "T4", 15360, slots=10)
TWO_PARTS = Device("p", 0, "T4", 15360, slots=2, replicas=2, mode=DeviceMode.TIME_SLICING, one_each=True)
STATIC = [Device(f"m{at}", at, "A100", 4864, mode=DeviceMode.MIG, resource="nvidia.com/mig-1g.5gb") for at in range(2)]
CUT = [gpu("a", 0), gpu("b", 1, held=[MigPlacement("1g.5gb", 2)])]

MIXED, NO_NODE = {"mode": "mig"}, "but no node offers this mode (available: "
CASES = [
    ([SHARED], {"gpu": 1}, MIXED, f"in mode mig, {NO_NODE}hami-core), so the pod stays Pending. To get GPUs in any"),
    ([SHARED], {"gpu": 1}, {"mode": "mig,mps"}, f"GPUs in mode mig or mps, {NO_NODE}hami-core)"),
    ([SHARED], {"gpu": 1}, {"mode": "mig,hami-core"}, ""),
    ([SHARED, *STATIC], {"gpu": 1}, MIXED, "(available: hami-core), so the pod stays Pending. Request MIG devices by"),
    (STATIC, {"mig": 1}, {"mode": "hami-core"}, f"asks for nvidia.com/mig-1g.5gb in mode hami-core, {NO_NODE}mig)"),
    (STATIC, {"mig": 2}, MIXED, ""),
    (STATIC, {"mig": 3}, {}, "requests 3 nvidia.com/mig-1g.5gb, but the largest node has 2"),
    (CUT, {"gpu": 2}, MIXED, "requests 2 GPUs of this size, but the largest node has 1"),
    (CUT, {"gpu": 4, "mem": 9000}, MIXED, ""),
    (CUT, {"gpu": 8, "mem": 9000}, MIXED, "requests 8 GPUs of this size, but the largest node has 7"),
    (CUT, {"gpu": 14, "mem": 10}, MIXED, "requests 14 GPUs, but the largest node has 13"),
    ([*CUT, SHARED], {"gpu": 2}, {}, "2 GPUs, but no node can provide more than 1: a container gets one"),
    (CUT, {"gpu": 2}, {}, "2 GPUs, but no node can provide any outside MIG mode: a container gets one"),
    ([*CUT, SHARED], {"gpu": 1}, {}, ""),
    (STATIC, {"gpu": 1}, {}, "requests nvidia.com/gpu, but no node offers it, so the pod stays Pending until one does"),
    (CUT, {"mig": 13}, {}, ""),
    (CUT, {"mig": 14}, {}, "requests 14 nvidia.com/mig-1g.5gb, but the largest node has 13"),
    (CUT, {"mem": 40192}, {}, ""),
    (CUT, {"mem": 40193}, {}, "requests 40193 MiB of GPU memory, but the largest GPU instance has 40192 MiB"),
    ([*CUT, SHARED], {"mem": 20000}, {"mode": "hami-core"}, "20000 MiB of GPU memory, but the largest GPU has 15360"),
    (CUT, {"mem": 10}, {"mig_profiles": "9g,4g"}, "9g has no effect: no GPU offers it (available: 1g.10gb, 1g.5gb"),
    ([SHARED], {"mem": 10}, {"mig_profiles": "4g"}, (
        "4g has no effect: no GPU is partitioned on demand"
    )),
    ([TWO_PARTS], {"gpu": 2}, {}, "requests 2 GPUs, but the largest node has 1"),
]  # fmt: skip


@pytest.mark.parametrize(("devices", "limits", "annotations", "said"), CASES)
def test_what_no_gpu_can_give_is_reported_once(devices, limits, annotations, said):
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", tuple(devices)))
    fleet.set_inventory(NodeInventory("without-gpus"))
    request = parse(pod(container(**limits), **annotations))
    there = offers_of(fleet)
    warnings = capacity_warnings(request, there)
    assert [said in each and len(each) <= 256 for each in warnings] == [True] * bool(said), warnings
    fits = Evaluator(fleet).evaluate(request, ["n"]).fits
    assert bool(fits) == (not said or "no effect" in said)


def test_a_profile_that_no_node_lists_is_answered_with_those_that_are_there():
    fleet = Fleet()
    fleet.set_inventory(NodeInventory("n", (gpu("a", 0, "A30"),)))
    listed = offers_of(fleet).mig_resources
    spec = pod(container(mig=1))
    (hint,) = unserved_words(spec, lambda name: False, lambda key, value: False, lambda: listed)
    assert hint.startswith(
        "no node offers nvidia.com/mig-1g.5gb, so the pod stays pending: ask for a profile that nodes list:"
    )
    assert hint.endswith("mig-1g.6gb, nvidia.com/mig-1g.6gb.me, nvidia.com/mig-2g.12gb, nvidia.com/mig-2g.12gb.me, nv"
                         "idia.com/mig-4g.24gb")  # fmt: skip
    assert len(hint) <= 256
