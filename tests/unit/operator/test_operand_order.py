"""Which operand needs which."""

import pytest

from purser.operator.order import NEEDS, Operand, dependents, prerequisites

ALL = tuple(Operand)


def test_every_operand_is_in_the_order_and_comes_after_what_it_needs() -> None:
    assert tuple(NEEDS) == ALL
    for operand, needed in NEEDS.items():
        assert all(ALL.index(each) < ALL.index(operand) for each in needed)


@pytest.mark.parametrize(
    ("operand", "disabled", "wanted"),
    [
        pytest.param(Operand.DRIVER, (), (), id="the driver needs nothing"),
        pytest.param(Operand.TOOLKIT, (), (Operand.DRIVER,), id="the toolkit needs the driver"),
        pytest.param(Operand.TOOLKIT, (Operand.DRIVER,), (), id="with the driver on the host it needs nothing"),
        pytest.param(Operand.DEVICE_PLUGIN, (), (Operand.DRIVER, Operand.TOOLKIT), id="at whatever remove"),
        pytest.param(Operand.DEVICE_PLUGIN, (Operand.TOOLKIT,), (Operand.DRIVER,), id="without a toolkit: the driver"),
        pytest.param(
            Operand.DCGM_EXPORTER,
            (),
            (Operand.DRIVER, Operand.TOOLKIT, Operand.DEVICE_PLUGIN, Operand.VALIDATOR, Operand.DCGM),
            id="monitoring comes after validation",
        ),
        pytest.param(
            Operand.DCGM_EXPORTER,
            (Operand.VALIDATOR, Operand.DCGM),
            (Operand.DRIVER, Operand.TOOLKIT, Operand.DEVICE_PLUGIN),
            id="without validation a ready plugin counts",
        ),
        pytest.param(
            Operand.MIG_MANAGER,
            (),
            (Operand.DRIVER, Operand.TOOLKIT),
            id="MIG is possible on nodes that are not valid",
        ),
    ],
)
def test_what_must_be_ready_on_a_node(
    operand: Operand, disabled: tuple[Operand, ...], wanted: tuple[Operand, ...]
) -> None:
    assert prerequisites(operand, tuple(each for each in ALL if each not in disabled)) == frozenset(wanted)


def test_all_others_depend_on_the_driver() -> None:
    assert dependents(Operand.DRIVER) == ALL[1:]
    assert dependents(Operand.VALIDATOR) == (Operand.DCGM, Operand.DCGM_EXPORTER, Operand.NODE_STATUS_EXPORTER)
