"""A grant: its signature, what holds a container to it, the namespace's quota, and where books of grants differ."""
