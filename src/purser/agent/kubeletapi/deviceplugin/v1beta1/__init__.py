"""v1beta1: the only version of the device plugin API that kubelets speak."""
