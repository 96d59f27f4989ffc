"""v1: plugins that kubelet finds in plugins_registry/."""
