"""A scheduler's corrupted state is found while it runs, and counted once."""

from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from purser.scheduler.invariants import InvariantWatch


def counts(metrics):
    families = text_string_to_metric_families(metrics.exposition().decode())
    (family,) = [each for each in families if each.name == "purser_scheduler_invariant_violations"]
    return {each.labels["invariant"]: each.value for each in family.samples if each.name.endswith("_total")}


class NoTime:
    async def sleep(self, seconds):
        return None


async def test_a_row_that_is_wrong_is_counted_and_logged_once(world):
    await world.add_node("n1")
    watch = InvariantWatch(world.extender, world.metrics, NoTime())
    await watch.sweep()
    assert set(counts(world.metrics).values()) == {0}
    arrays = world.extender._evaluator._live.arrays
    arrays.memory_free_mib[0, arrays.rows["n1"]] -= 5
    with capture_logs() as logs:
        for _ in range(3):
            await watch.sweep()
    assert {name for name, count in counts(world.metrics).items() if count} == {"array-rows"}
    (line,) = logs
    assert (line["subject"], line["log_level"]) == ("n1", "error")
    assert ("7995" in line["kept"], "8000" in line["recounted"]) == (True, True)
    arrays.memory_free_mib[0, arrays.rows["n1"]] += 5
