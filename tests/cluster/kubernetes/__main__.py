"""A cluster to look at by hand: `python -m tests.cluster.kubernetes`, until Ctrl-C."""

import os
import signal
import sys

from .cluster import RealCluster


def main() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with RealCluster() as cluster:
        print(f"nsenter --target {os.getpid()} --net  # a shell in its network; then:", flush=True)
        print(f"export KUBECONFIG={cluster.kubeconfig}\nlogs: {cluster.logs}\nCtrl-C ends it", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopping", flush=True)


if __name__ == "__main__":
    main()
