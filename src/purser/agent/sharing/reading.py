"""The configuration file of NVIDIA's device plugin, or HAMi's of nodes, of its text."""

from purser.core.decoding import UnreadableError
from purser.core.sharing import ReadFile, SharingError, plugin_file
from purser.core.sharing.file import FILE
from purser.core.sharing.hami_file import hami_file, is_hami_file
from purser.yaml_reading import read_yaml

MAX_PLUGIN_FILE_BYTES = 1 << 20
"""What a ConfigMap can hold."""


def read_plugin_file(text: str | bytes, node: str = "") -> ReadFile:
    """The file, YAML or JSON, with what of it is not followed; of HAMi's what it says of the node. Raises
    `SharingError` where nothing of it can be read."""
    try:
        value = read_yaml(text, FILE, max_bytes=MAX_PLUGIN_FILE_BYTES, big_integers_as_text=True)
        return hami_file(value, node) if is_hami_file(value) else plugin_file(value)
    except UnreadableError as error:
        raise SharingError(str(error)) from error
