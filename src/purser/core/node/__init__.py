"""A node: what it lists and tells in annotations, and who may write what of it."""
