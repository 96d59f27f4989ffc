"""The PodResources API, by version."""
