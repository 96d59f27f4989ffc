"""The device plugin API, by version."""
