"""What an API server must do, checked over plain HTTP: against the lab's server, or against a real one.

By default all tests share an embedded server, each in a namespace of its own. With PURSER_CONTRACT_KUBECONFIG=<path>
the same tests run against that cluster; where the two differ the real one is right. Nothing here imports purser.kube:
the suite must not share its misunderstandings.
"""
