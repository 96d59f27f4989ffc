"""Whose call of kubelet it is, and what that container gets: `arbiter` answers kubelet by the grants of the node's
pods (`pods`), asks whose call it is (`resolver`; pure: `admission`), and keeps what it gave in the node's part of the
book (`book`).

`answers` makes the response of one container out of what the node lists (`listing`, `node_files`); `janitor` releases
what pods held that have ended, which `holding` and `lingering` find out; `invariants` checks the book against kubelet.
"""
