"""The configuration file of NVIDIA's device plugin, of its text."""

from purser.core.decoding import UnreadableError
from purser.core.sharing import PluginFile, SharingError, plugin_file
from purser.core.sharing.file import FILE
from purser.yaml_reading import read_yaml

MAX_PLUGIN_FILE_BYTES = 1 << 20
"""What a ConfigMap can hold."""


def read_plugin_file(text: str | bytes) -> tuple[PluginFile, tuple[str, ...]]:
    """The file, YAML or JSON, and what was passed over in it, a sentence each. Raises `SharingError`."""
    try:
        return plugin_file(read_yaml(text, FILE, max_bytes=MAX_PLUGIN_FILE_BYTES))
    except UnreadableError as error:
        raise SharingError(str(error)) from error
