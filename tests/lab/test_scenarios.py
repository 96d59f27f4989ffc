"""The scenarios on the embedded lab: kubelet and kube-scheduler are stand-ins, Purser is what runs in production."""

from tests.scenarios.suite import *  # noqa: F403
