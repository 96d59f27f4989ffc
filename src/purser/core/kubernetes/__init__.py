"""What Kubernetes itself defines and anybody needs to read its objects: amounts, times, selectors, taints."""
