"""Each file of tests is collected once, by that worker of xdist which runs it.

    pytest -p tests.per_file -n 2 --dist loadfile

xdist lets every worker collect every test before the first one starts. On a fresh checkout that compiles some 500 files
as often as there are workers, which is a good part of what `make test` takes. Here a file is one item to xdist; its
worker imports it when its turn comes, and reports each of its tests, once: sending five messages for each took as long
as the quicker half of them. What names tests (`file::test`, `-k`), or groups of them (`--dist loadgroup`), needs all of
them collected and is left to xdist.
"""

import gc
from collections.abc import Generator
from itertools import pairwise
from typing import Any

import pytest
from _pytest.runner import runtestprotocol


class NotYetCollected(pytest.Item):
    """A file of tests that is not imported yet."""

    def __init__(self, *, module: pytest.Module, **more: Any) -> None:
        super().__init__(**more)
        self.module = module

    def runtest(self) -> None:
        """Never called: what is run are the module's tests."""
        raise NotImplementedError


class LateModule(pytest.File):
    """Stands for a module among what is collected first."""

    def __init__(self, *, module: pytest.Module, **more: Any) -> None:
        super().__init__(**more)
        self.module = module

    def collect(self) -> list[pytest.Item]:
        name = self.path.name  # below the folder as the module is: so folders' fixtures last from file to file
        return [NotYetCollected.from_parent(self.parent, name=name, nodeid=self.nodeid, module=self.module)]


class CollectLate:
    """The plugin of a worker."""

    @pytest.hookimpl(wrapper=True)
    def pytest_pycollect_makemodule(self, parent: pytest.Collector) -> Generator[None, Any, LateModule]:
        module = yield
        return LateModule.from_parent(parent, path=module.path, nodeid=module.nodeid, module=module)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        if isinstance(item, NotYetCollected):
            self._run_all(item, nextitem)
            return True
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:  # of set-ups and tear-downs there are thousands
                item.config.hook.pytest_runtest_logreport(report=report)
        return True

    def _run_all(self, item: NotYetCollected, nextitem: pytest.Item | None) -> None:
        session, hook = item.session, item.config.hook
        gc.disable()  # what an import makes stays
        tests = list(session.genitems(item.module))
        gc.enable()
        hook.pytest_collection_modifyitems(session=session, config=item.config, items=tests)
        index = session.items.index(item)
        for test, following in pairwise([*tests, nextitem]):
            session.items[index] = test  # xdist asks that what is reported is the item it gave out
            hook.pytest_runtest_protocol(item=test, nextitem=following)
            if session.shouldfail or session.shouldstop:
                break
        session.items[index] = item
        if not tests:  # no last test that would tear down what the next file does not share
            session._setupstate.teardown_exact(nextitem)


def pytest_configure(config: pytest.Config) -> None:
    by_name = any("::" in argument for argument in config.args) or config.getoption("keyword")
    if hasattr(config, "workerinput") and not by_name and not config.getvalue("loadgroup"):
        config.pluginmanager.register(CollectLate())
