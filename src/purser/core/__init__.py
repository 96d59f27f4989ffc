"""The pure kernel: all decisions, as functions over plain values.

Here: the model, the resource vocabularies (``dialects``), the book (``ledger``), the fleet, placement, links between
GPUs (``interconnect``), kubelet's admission (``kubelet``) and what is known of each node's (``fleet``), what pods
take of a node beside GPUs (``pod``), and the words that name policies (``policy``).
Not here: I/O of any kind, clocks, random numbers, asyncio, logging. Callers pass in their results.
"""
