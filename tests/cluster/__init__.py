"""Purser against a real Kubernetes: control plane, kubelet and containerd, on one machine, as root."""
