"""What the agent uses of its host: small files, folders that change, sysfs, Unix sockets, threads for calls that may
hang, the lock that keeps two agents apart, and facts of the node that `purser discover` publishes."""
