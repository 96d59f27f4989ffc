"""What the device plugin sends kubelet."""

import asyncio
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest

from purser.agent.host.latest import Latest
from purser.agent.inventory.building import KubeletDevice
from purser.agent.kubelet import plugin as plugin_module
from purser.agent.kubelet.plugin import ResourcePlugin
from purser.agent.kubelet.pod_resources import KubeletError
from purser.agent.kubelet.refusals import RefusalReason
from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2
from purser.agent.metrics import AgentMetrics

GPU = "nvidia.com/gpu"


async def test_while_kubelets_list_cannot_be_had_the_call_fails_and_is_counted() -> None:
    arbiter, context, metrics = AsyncMock(), AsyncMock(), AgentMetrics()
    arbiter.check_start.side_effect = KubeletError("no answer")
    plugin = ResourcePlugin(GPU, Latest(()), arbiter, metrics, MagicMock(), freed=Latest(0))
    await plugin.PreStartContainer(api_pb2.PreStartContainerRequest(devices_ids=["GPU-0::0"]), context)
    context.abort.assert_awaited_once_with(grpc.StatusCode.UNAVAILABLE, "no answer")
    counted = metrics.refusals.labels("PreStartContainer", RefusalReason.KUBELET.value)
    assert counted._value.get() == 1


async def test_kubelet_is_sent_its_list_again_once_for_all_pods_whose_devices_it_let_go_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It writes its checkpoint then."""
    monkeypatch.setattr(plugin_module, "RELEASE_PAUSE_S", 0.05)
    devices, freed = Latest((KubeletDevice("GPU-0::0", True),)), Latest(0)
    plugin = ResourcePlugin(GPU, devices, MagicMock(), AgentMetrics(), MagicMock(), freed=freed)
    lists = plugin.ListAndWatch(api_pb2.Empty(), None)
    first = await anext(lists)
    again = asyncio.ensure_future(anext(lists))
    for count in (1, 2, 3):
        freed.set(count)
        await asyncio.sleep(0)
    assert await again == first
    third = asyncio.ensure_future(anext(lists))
    assert not (await asyncio.wait({third}, timeout=0.2))[0], "three pods ended, and one list is enough"
    devices.set((KubeletDevice("GPU-0::0", False),))
    assert [each.health for each in (await third).devices] == ["Unhealthy"]
    ended = asyncio.ensure_future(anext(lists, None))
    plugin.stop()
    assert await ended is None
