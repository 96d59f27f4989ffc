"""What NVIDIA's GPU operator was told, as a ClusterPolicy of Purser's, and a list of what has no counterpart.

Nothing is dropped silently: every field that is set is in the new policy, or in the list with a reason. Where the two
differ in what an absent field means, the new policy says what the old one meant. NVIDIADrivers become profiles.

- ``policy``: everything but drivers; ``drivers``: NVIDIADrivers; ``effects``: what the new policy does otherwise.
- ``sections``: takes fields over one by one, and keeps the list.

Not here: where objects are read from (a file: the command; a cluster: ``observing``), and what becomes of labels on
nodes (``gates``).
"""

from purser.operator.policy.importing.policy import Imported, import_policy

__all__ = ["Imported", "import_policy"]
