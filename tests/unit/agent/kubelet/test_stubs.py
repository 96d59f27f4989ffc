"""The generated modules are what the script makes of the .proto files, and speak kubelet's wire names."""

import subprocess
import sys
from pathlib import Path

import pytest

from purser.agent.kubeletapi.deviceplugin.v1beta1 import api_pb2 as deviceplugin
from purser.agent.kubeletapi.pluginregistration.v1 import api_pb2 as pluginregistration
from purser.agent.kubeletapi.podresources.v1 import api_pb2 as podresources

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[4]
GENERATED = ("api_pb2.py", "api_pb2.pyi", "api_pb2_grpc.py", "api_pb2_grpc.pyi")
FOLDERS = (
    "purser/agent/kubeletapi/deviceplugin/v1beta1",
    "purser/agent/kubeletapi/podresources/v1",
    "purser/agent/kubeletapi/pluginregistration/v1",
)


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory):
    output = tmp_path_factory.mktemp("stubs")
    subprocess.run([sys.executable, ROOT / "scripts/generate_stubs.py", output], check=True, capture_output=True)
    return output


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("name", GENERATED)
def test_committed_modules_are_what_the_script_generates(regenerated, folder, name):
    assert (ROOT / "src" / folder / name).read_text() == (regenerated / folder / name).read_text()


def test_services_have_kubelets_wire_names():
    files = (deviceplugin.DESCRIPTOR, podresources.DESCRIPTOR, pluginregistration.DESCRIPTOR)
    services = [service for file in files for service in file.services_by_name.values()]
    methods = {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}
    assert methods == {
        "/v1beta1.Registration/Register",
        "/v1beta1.DevicePlugin/GetDevicePluginOptions",
        "/v1beta1.DevicePlugin/ListAndWatch",
        "/v1beta1.DevicePlugin/GetPreferredAllocation",
        "/v1beta1.DevicePlugin/Allocate",
        "/v1beta1.DevicePlugin/PreStartContainer",
        "/v1.PodResourcesLister/List",
        "/v1.PodResourcesLister/GetAllocatableResources",
        "/v1.PodResourcesLister/Get",
        "/pluginregistration.Registration/GetInfo",
        "/pluginregistration.Registration/NotifyRegistrationStatus",
    }


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        pytest.param(
            deviceplugin.Device(ID="a", health="b", topology={"nodes": [{"ID": 1}]}),
            "0a01611201621a040a020801",
            id="a device with its NUMA node",
        ),
        pytest.param(
            deviceplugin.ContainerAllocateResponse(cdi_devices=[{"name": "a"}]),
            "2a030a0161",
            id="a CDI device is field 5",
        ),
        pytest.param(
            deviceplugin.ContainerPreferredAllocationRequest(
                available_deviceIDs=["a"], must_include_deviceIDs=["b"], allocation_size=2
            ),
            "0a01611201621802",
            id="a request for a preferred allocation",
        ),
        pytest.param(
            podresources.ContainerResources(
                name="a", devices=[{"resource_name": "b", "device_ids": ["c"]}], cpu_ids=[1], memory=[{"size": 1}]
            ),
            "0a016112060a01621201631a010122021001",
            id="a container's resources",
        ),
        pytest.param(
            pluginregistration.PluginInfo(type="a", name="b", endpoint="c", supported_versions=["d"]),
            "0a01611201621a0163220164",
            id="who a plugin is",
        ),
        pytest.param(
            pluginregistration.RegistrationStatus(plugin_registered=True, error="a"),
            "0801120161",
            id="how a registration came out",
        ),
    ],
)
def test_field_numbers_are_the_wires(message, wire):
    assert message.SerializeToString().hex() == wire
