"""What a build says while it runs, and how it ends badly."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

OTHERWISE = "Elsewhere, put the programs into a folder and name it in KUBEBUILDER_ASSETS."

_EVERY_SECONDS = 30


class BuildError(RuntimeError):
    """The build cannot go on; the message says what is wrong and what to do."""


def say(text: str) -> None:
    """A line of progress."""
    print(f"[kubernetes] {text}", flush=True)


@contextlib.contextmanager
def heartbeat(what: Callable[[], str]) -> Iterator[None]:
    """A line every half minute: compilers are silent for minutes, and a CI runner takes silence for death."""
    done = threading.Event()
    begun = time.monotonic()

    def tell() -> None:
        while not done.wait(_EVERY_SECONDS):
            say(f"still {what()}, {time.monotonic() - begun:.0f} s")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
