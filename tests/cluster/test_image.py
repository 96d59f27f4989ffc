"""The image as a node has it: imported into containerd, started by kubelet as the user it names."""

import pytest
from deploy.image.build import build

from .kubernetes import RealCluster, busybox_pod

IMAGE = "docker.io/library/purser:0.1.0"


@pytest.fixture(scope="module")
def image(real_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("image")
    build(folder, newest=True)
    real_cluster.containerd.import_image(next(folder.glob("*.oci.tar")))
    return IMAGE


def test_version(cluster: RealCluster, image: str) -> None:
    manifest = busybox_pod("version")
    container = manifest["spec"]["containers"][0]
    del container["command"]
    container |= {"image": image, "args": ["version"], "securityContext": {"runAsNonRoot": True}}
    cluster.create(manifest)
    cluster.wait_pod("version", phase="Succeeded")
    assert cluster.kubectl("logs", "version").startswith("purser ")
    cluster.delete("pod", "version")
