"""`purser cordon gpu` against an API server, beside somebody else who writes to the node."""

import msgspec
from tests.unit.cli.typed import beside
from tests.unit.kube.servers import api_server

from purser.cli.output import FAILED, MISUSED
from purser.core.model import Device, NodeInventory
from purser.core.names import CORDONED_GPUS_ANNOTATION, HAMI_CORDON_ANNOTATION, INVENTORY_ANNOTATION
from purser.kube.resources import NODES


async def test_gpus_are_cordoned_and_uncordoned_by_one_write_each(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    parents = ("", "", "GPU-9")
    devices = tuple(Device(f"GPU-{at}", at, "A100", 1000, parent=each) for at, each in enumerate(parents))
    inventory = msgspec.json.encode(NodeInventory("n1", devices)).decode()
    writes = []

    async def note(request):
        """The first write comes too late: somebody else's is there before."""
        if request.method == "PATCH" and request.headers["User-Agent"] == "purser":
            writes.append(request.path)
            if len(writes) == 1:
                await client.patch_merge(NODES, "n1", {"metadata": {"labels": {"somebody": "else"}}})

    async def run(*words):
        return await beside(*words, f"--kubeconfig={kubeconfig}")

    async def annotations():
        found = (await client.get(NODES, "n1")).metadata.annotations
        return found.get(CORDONED_GPUS_ANNOTATION), found.get(HAMI_CORDON_ANNOTATION)

    async with api_server(kubeconfig) as (api, client):
        noted = {INVENTORY_ANNOTATION: inventory, HAMI_CORDON_ANNOTATION: "GPU-2"}
        await client.create(NODES, {"metadata": {"name": "n1", "annotations": noted}})
        await client.create(NODES, {"metadata": {"name": "bare"}})
        api.intercept(note)
        done = await run("cordon", "gpu", "n1", "GPU-0", "GPU-1")
        assert done == (0, "gpu/GPU-0 on node/n1 cordoned\ngpu/GPU-1 on node/n1 cordoned\n", "")
        assert (await annotations(), len(writes)) == (("GPU-0,GPU-1", "GPU-2"), 2)
        assert (await run("cordon", "gpu", "n1", "GPU-2"))[1] == "gpu/GPU-2 on node/n1 already cordoned\n"
        code, table, _ = await run("get", "gpus")
        assert (code, table.count("Cordoned")) == (0, 3)
        assert (await run("uncordon", "gpu", "n1", "GPU-0", "GPU-2"))[0] == 0
        assert (await annotations(), len(writes)) == (("GPU-1", None), 3)
        code, _, says = await run("cordon", "gpu", "n1", "GPU-1", "GPU-9")
        known = "GPU 0 (GPU-0), GPU 1 (GPU-1), MIG device of GPU 2 (GPU-2)"
        instead = "Specify a GPU with MIG enabled by the UUIDs of its MIG devices"
        assert (code, says) == (FAILED, f"purser: node n1 has no GPU GPU-9: it has {known}. {instead}\n")
        assert "no agent or device plugin lists any GPU there" in (await run("cordon", "gpu", "bare", "GPU-1"))[2]
        assert "node nowhere does not exist" in (await run("cordon", "gpu", "nowhere", "GPU-1"))[2]
        assert (await run("uncordon", "gpu", "n1", "7"))[0] == FAILED, "what is not there is not uncordoned"
        assert "has no GPU GPU-: it has" in (await run("uncordon", "gpu", "n1", "GPU-"))[2]
        for odd in (("", "GPU-1"), ("n1", ""), ("n1", "\x1b[2J"), ("\udcff", "GPU-1")):
            assert (await run("uncordon", "gpu", *odd))[:2] == (MISUSED, "")
        assert len(writes) == 3


async def test_gpus_are_named_by_index_and_by_the_beginning_of_a_uuid(tmp_path):
    kubeconfig = tmp_path / "kubeconfig"
    uuids = ("GPU-3abcd", "GPU-4abcd1", "GPU-4abcd2", "GPU-9ef01")
    inventory = msgspec.json.encode(NodeInventory("n1", tuple(Device(u, at, "A100", 1) for at, u in enumerate(uuids))))

    async def run(*words):
        code, out, says = await beside(*words, f"--kubeconfig={kubeconfig}")
        return out.splitlines() if code == 0 else says

    async with api_server(kubeconfig) as (_, client):
        annotations = {INVENTORY_ANNOTATION: inventory.decode(), CORDONED_GPUS_ANNOTATION: "GPU-lost"}
        await client.create(NODES, {"metadata": {"name": "n1", "annotations": annotations}})
        cordoned = [f"gpu/{uuid} on node/n1 cordoned" for uuid in ("GPU-3abcd", "GPU-4abcd2")]
        assert await run("cordon", "gpu", "n1", "0", "4abcd2", "GPU-3abc") == cordoned
        assert await run("uncordon", "gpu", "n1", "2") == ["gpu/GPU-4abcd2 on node/n1 uncordoned"]
        assert await run("uncordon", "gpu", "n1", "GPU-lost") == ["gpu/GPU-lost on node/n1 uncordoned"]
        ambiguous = "purser: 4abc on node n1 is ambiguous: it matches GPU-4abcd1, GPU-4abcd2; use more of the UUID\n"
        assert await run("cordon", "gpu", "n1", "4abc") == ambiguous
        assert "has no GPU 9: must be an index from 0 to 3, or a UUID" in await run("cordon", "gpu", "n1", "9"), (
            "a number is an index"
        )
