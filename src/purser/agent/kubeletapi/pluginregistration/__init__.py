"""The plugin registration API, by version."""
