"""A live terminal view of nodes, GPUs, pods that hold them and pods that wait, for `purser top`.

- ``views``: the tables: which columns, how rows are sorted and found; ``view_names``: their names; ``holding``: what
  pods hold, as the ledger counts it.
- ``screen``: what the user has chosen, and what each key changes; ``keys``: bytes of a terminal as keys.
- ``drawing``: a screen as lines of styled text, only of what is visible; ``lines``: text that fits and commands
  nothing.
- ``terminal``: the terminal itself: raw keys, the alternate screen, and everything as it was at the end.
- ``source``: where the state comes from. ``following``: the cluster by watches, with a kubeconfig; ``asking``: by the
  scheduler's read API. ``steps``: a pod's way, of its status.
- ``running``: the loop that holds them together.

`views`, `holding`, `screen`, `keys` and `drawing` are pure.
"""
