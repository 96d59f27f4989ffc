"""What fails once, unexpectedly, for tests of what goes on."""

import asyncio


class Odd:
    """Fails, unexpectedly, once; after that it goes well, and waits."""

    def __init__(self):
        self.has_failed = self.went_well = False

    async def __call__(self, *_):
        if not self.has_failed:
            self.has_failed = True
            raise ZeroDivisionError
        self.went_well = True
        await forever()


async def forever(*_):
    await asyncio.Event().wait()
