"""What every gRPC channel to kubelet, or to one of its plugins, needs: both listen on unix sockets."""

UNIX_SOCKET_OPTIONS = (
    # Without it a Python client sends the escaped socket path as :authority, which Go servers refuse.
    ("grpc.default_authority", "localhost"),
    # Channels of one process share connections by address: who comes back would inherit the pause before the next dial.
    ("grpc.use_local_subchannel_pool", 1),
)
