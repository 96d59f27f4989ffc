"""v1: served since Kubernetes 1.20."""
