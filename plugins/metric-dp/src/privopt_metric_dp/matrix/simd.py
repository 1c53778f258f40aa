"""Vectors of fixed width inside compiled loops: eight doubles, or sixteen floats in single precision.

The loops over the outputs of a batch are that short, and compilers leave loops that short alone: arrays
might overlap. These vectors say what is meant; a machine with narrower registers takes two or more for
each. ``a - b * c`` becomes one fused instruction where there is one.

For compiled functions only:

    from privopt_metric_dp.matrix.simd import load, spread, store

    @njit
    def add(x, y):  # flat arrays, a multiple of eight doubles each
        for k in range(len(x) // 8):
            store(x, k, load(x, k) + spread(2.0) * load(y, k))
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TypeAlias

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core.base import BaseContext
from numba.core.datamodel.models import PrimitiveModel
from numba.core.typing import Signature
from numba.extending import intrinsic, overload, register_model

__all__ = ["DOUBLE_LANES", "SINGLE_LANES", "greatest", "highest", "least", "load", "lowest", "spread", "store", "total"]

DOUBLE_LANES = 8
"""Lanes of a vector of doubles."""
SINGLE_LANES = 16
"""Lanes of a vector of floats in single precision."""

_WORD = ir.IntType(32)
_Values: TypeAlias = Sequence[ir.Value]
_Typed: TypeAlias = tuple[Signature, Callable[..., ir.Value]]
_FUSED = ("contract",)


class _Lanes(types.Type):  # type: ignore[misc]
    """Numba's type of a vector."""

    def __init__(self, element: types.Float) -> None:
        self.element = element
        self.count = DOUBLE_LANES if element == types.float64 else SINGLE_LANES
        super().__init__(name=f"Lanes({element} x {self.count})")


@register_model(_Lanes)
class _LanesModel(PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: object, kind: _Lanes) -> None:
        element = ir.DoubleType() if kind.element == types.float64 else ir.FloatType()
        super().__init__(manager, kind, ir.VectorType(element, kind.count))


def _address(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values, vector: ir.VectorType
) -> ir.Value:
    """Return the address of lane 0 of a place of a flat array."""
    array = context.make_array(signature.args[0])(context, builder, values[0])
    place = context.cast(builder, values[1], signature.args[1], types.intp)
    first = builder.gep(array.data, [builder.mul(place, ir.Constant(place.type, vector.count))])
    return builder.bitcast(first, vector.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load(typing: object, array: types.Array, place: types.Integer) -> _Typed:
    """Load vector number ``place`` of a flat array."""
    kind = _Lanes(array.dtype)

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
        vector = context.get_value_type(kind)
        return builder.load(_address(context, builder, signature, values, vector), align=kind.element.bitwidth // 8)

    return kind(array, place), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: object, array: types.Array, place: types.Integer, value: _Lanes) -> _Typed:
    """Write a vector over number ``place`` of a flat array."""

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
        address = _address(context, builder, signature, values, values[2].type)
        builder.store(values[2], address, align=value.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, place, value), generate


@intrinsic  # type: ignore[untyped-decorator]
def spread(typing: object, value: types.Float) -> _Typed:
    """Return the same number in each lane."""
    kind = _Lanes(value)

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
        nothing = ir.Constant(context.get_value_type(kind), ir.Undefined)
        one = builder.insert_element(nothing, values[0], ir.Constant(_WORD, 0))
        return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_WORD, kind.count), [0] * kind.count))

    return kind(value), generate


def _between(name: str, compare: str | None = None) -> Callable[..., object]:
    """Return an operation on two vectors, lane by lane."""

    @intrinsic  # type: ignore[untyped-decorator]
    def operation(typing: object, a: _Lanes, b: _Lanes) -> _Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
            if compare is None:
                return getattr(builder, name)(*values, flags=_FUSED)
            return builder.select(builder.fcmp_ordered(compare, *values), *values)

        return a(a, b), generate

    result: Callable[..., object] = operation
    return result


least = _between("least", "<")
greatest = _between("greatest", ">")


def _reduced(name: str, compare: str | None = None) -> Callable[..., float]:
    """Return an operation on the lanes of a vector, to one number."""

    @intrinsic  # type: ignore[untyped-decorator]
    def operation(typing: object, a: _Lanes) -> _Typed:
        def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
            lanes = [builder.extract_element(values[0], ir.Constant(_WORD, k)) for k in range(a.count)]
            while len(lanes) > 1:
                pairs = zip(lanes[::2], lanes[1::2], strict=True)
                if compare is None:
                    lanes = [builder.fadd(x, y) for x, y in pairs]
                else:
                    lanes = [builder.select(builder.fcmp_ordered(compare, x, y), x, y) for x, y in pairs]
            return lanes[0]

        return a.element(a), generate

    result: Callable[..., float] = operation
    return result


total = _reduced("total")
lowest = _reduced("lowest", "<")
highest = _reduced("highest", ">")


def _teach(symbol: Callable[..., object], operation: Callable[..., object]) -> None:
    @overload(symbol, strict=False)  # type: ignore[untyped-decorator]
    def typed(a: object, b: object) -> Callable[..., object] | None:
        if isinstance(a, _Lanes) and a == b:
            return lambda a, b: operation(a, b)
        return None


_teach(operator.add, _between("fadd"))
_teach(operator.sub, _between("fsub"))
_teach(operator.mul, _between("fmul"))
_teach(operator.truediv, _between("fdiv"))
