"""kubelet as the agent meets it: the device plugin that it calls (`plugin`) and how that is registered (`registration`,
`plugin_watcher`), its calls and their answers as values (`calls`, `refusals`), its PodResources API (`pod_resources`),
and what it is and holds by its own files (`facts`).

Not here: what the answers are (`purser.agent.allocation`).
"""
