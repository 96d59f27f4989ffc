"""One policy per file: `Policy` functions from an `Ask` about a `Topology` to a `GpuSet`."""
