"""What the agent tells the cluster: annotations, amounts and conditions on its Node (`publisher`, `amounts`), where
kubelet and the grants differ (`disputes`), and events (`events`)."""
