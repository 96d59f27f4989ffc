"""What Kubernetes itself defines: amounts, booleans, times, names, selectors, affinity, taints."""
