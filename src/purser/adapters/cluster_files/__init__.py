"""A cluster in a file that `purser why --from` and `purser simulate --from` read: what a decision needs, and no more.

- ``trimming``: what of the objects is kept, by lists of what is allowed.
- ``anonymizing``: pseudonyms for all names; ``pseudonyms`` gives them out, ``annotations`` puts them into annotations,
  ``selectors`` into affinities and the like.
- ``encoding``: the file, a Kubernetes List in JSON. `purser.adapters.objects.objects_of_dump` reads it.
"""

from purser.adapters.cluster_files.anonymizing import anonymize_objects
from purser.adapters.cluster_files.encoding import encode_objects
from purser.adapters.cluster_files.trimming import trim_objects

__all__ = ["anonymize_objects", "encode_objects", "trim_objects"]
