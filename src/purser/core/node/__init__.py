"""A node: its resources, its annotations, and who may write which of them."""
