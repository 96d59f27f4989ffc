"""What a build says while it runs, and how it ends badly."""

import hashlib


class ImageError(RuntimeError):
    """The image cannot be built; the message begins with the cause and says what to do."""


def say(text: str) -> None:
    """A line of progress."""
    print(f"[image] {text}", flush=True)


def sha256(content: bytes) -> str:
    """Its digest, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()
