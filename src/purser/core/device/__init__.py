"""A GPU or a part of one: the ids that kubelet hands out, what is answered of them, modes, and GPUs by PCI id."""
