"""gpushare in MiB and Volcano in blocks, from webhook to container, where the administrator says so."""

import pytest

from purser.lab.cluster import Lab
from purser.lab.settings import LabSettings, node_choices
from tests import waiting
from tests.contract.client import Api
from tests.unit.cli.typed import beside

from .test_switchers import Switch

pytestmark = pytest.mark.gate
UNITS = (("aliyun.com/gpu-mem", 1), ("volcano.sh/vgpu-memory", 10))


async def test_pods_nodes_and_the_table_count_in_the_clusters_unit():
    settings = LabSettings(node_choices(["t4-4", "a100-40gb-8"]), probe_interval_s=0.1, memory_units=UNITS)
    async with Lab(settings) as lab, waiting.limit():
        await lab.ready()
        api = Api(lab.kubeconfig, embedded=True)
        await api.connect()
        switch = Switch(lab, api)
        for limits in ({"aliyun.com/gpu-mem": 3000}, {"volcano.sh/vgpu-memory": 300}):
            main = {"name": "main", "image": "busybox", "resources": {"limits": limits}}
            name = next(iter(limits)).replace("/", "-")
            doc = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [main]}}
            (await switch.create(doc)).ok()
        for pod in await switch.running(2):
            env, record = switch.env(pod), pod["metadata"]["annotations"]
            assert env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
            if "aliyun.com-gpu-mem" in pod["metadata"]["name"]:
                assert env["ALIYUN_COM_GPU_MEM_CONTAINER"] == record["ALIYUN_COM_GPU_MEM_POD"] == "3000"
            else:
                assert record["volcano.sh/vgpu-ids-new"].split(",")[2] == "300"
        listed = (await api.get("/api/v1/nodes/t4-4-0")).ok().body["status"]["allocatable"]
        assert (listed["aliyun.com/gpu-mem"], listed["volcano.sh/vgpu-memory"]) == (str(4 * 15360), str(4 * 1536))
        code, out, _ = await beside("get", "gpus", "--view", "gpushare", f"--kubeconfig={lab.kubeconfig}")
        assert (code, out.splitlines()[-1]) == (0, f"6000/{4 * 15360 + 8 * 40960} (1%)")
        await api.close()
