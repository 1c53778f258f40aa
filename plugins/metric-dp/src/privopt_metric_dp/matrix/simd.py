"""Fixed-width SIMD vectors for compiled loops, with eight doubles or sixteen single-precision floats each.

Compilers do not vectorise the loops over a batch of outputs, because these loops are short and their arrays might
overlap. The types below make the vectors explicit. On a machine with narrower registers, each vector takes up several
registers. ``a - b * c`` becomes a single fused instruction if the machine has one.

The functions below are numba intrinsics. Each takes numba's typing context (which it ignores) and the types of its
arguments, and returns a signature and a function that generates LLVM code. Intrinsics can only be called in compiled
functions:

    from privopt_metric_dp.matrix.simd import load, spread, store

    @njit
    def add(x, y):  # flat arrays whose lengths are multiples of eight
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
"""The number of lanes in a vector of doubles."""
SINGLE_LANES = 16
"""The number of lanes in a vector of single-precision floats."""

_WORD = ir.IntType(32)  # LLVM's type for the index of a lane
_Values: TypeAlias = Sequence[ir.Value]
_Typed: TypeAlias = tuple[Signature, Callable[..., ir.Value]]
"""The return type of an intrinsic: a numba signature and a function that generates the LLVM code."""
_FUSED = ("contract",)
"""The flags that allow LLVM to fuse a product and a sum into one instruction with a single rounding."""


class _Lanes(types.Type):  # type: ignore[misc]
    """Numba's type for a SIMD vector of eight doubles or sixteen single-precision floats.

    Attributes:
        element: Numba's type for a lane.
        count: The number of lanes.
    """

    def __init__(self, element: types.Float) -> None:
        """Create the type of a vector whose lanes have a given floating-point type."""
        self.element = element
        self.count = DOUBLE_LANES if element == types.float64 else SINGLE_LANES
        super().__init__(name=f"Lanes({element} x {self.count})")


@register_model(_Lanes)
class _LanesModel(PrimitiveModel):  # type: ignore[misc]
    """Numba's data model for :class:`_Lanes`, which stores values of this type as LLVM vectors."""

    def __init__(self, manager: object, kind: _Lanes) -> None:
        """Create the data model for a vector type. This is called by numba's data model manager."""
        element = ir.DoubleType() if kind.element == types.float64 else ir.FloatType()
        super().__init__(manager, kind, ir.VectorType(element, kind.count))


def _address(
    context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values, vector: ir.VectorType
) -> ir.Value:
    """Return the address of a vector in a flat array, as a pointer to LLVM's vector type.

    Args:
        context, builder: Numba's target context, and the builder to add code to.
        signature: The signature of the intrinsic, whose first two arguments are the array and the vector's index.
        values: The LLVM values of the arguments.
        vector: LLVM's type for the vector.
    """
    array = context.make_array(signature.args[0])(context, builder, values[0])
    # The index may have any integer type, but an address needs numba's word-sized type.
    place = context.cast(builder, values[1], signature.args[1], types.intp)
    first = builder.gep(array.data, [builder.mul(place, ir.Constant(place.type, vector.count))])
    return builder.bitcast(first, vector.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load(typing: object, array: types.Array, place: types.Integer) -> _Typed:
    """Load the vector at index ``place`` of a flat array in which vectors are stored one after another."""
    kind = _Lanes(array.dtype)

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
        """Generate the code that loads a vector from an array at a given vector index."""
        vector = context.get_value_type(kind)
        # NumPy aligns arrays to their elements, not to vectors, so no stricter alignment can be assumed.
        return builder.load(_address(context, builder, signature, values, vector), align=kind.element.bitwidth // 8)

    return kind(array, place), generate


@intrinsic  # type: ignore[untyped-decorator]
def store(typing: object, array: types.Array, place: types.Integer, value: _Lanes) -> _Typed:
    """Store a vector at index ``place`` of a flat array in which vectors are stored one after another."""

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
        """Generate the code that stores a vector in an array at a given vector index."""
        address = _address(context, builder, signature, values, values[2].type)
        builder.store(values[2], address, align=value.element.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(array, place, value), generate


@intrinsic  # type: ignore[untyped-decorator]
def spread(typing: object, value: types.Float) -> _Typed:
    """Return a vector with the given number in every lane."""
    kind = _Lanes(value)

    def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
        """Generate the code that copies a number to all lanes."""
        nothing = ir.Constant(context.get_value_type(kind), ir.Undefined)
        # This is LLVM's idiom for a broadcast: put the number into lane 0, and copy lane 0 into every lane by a
        # shuffle.
        one = builder.insert_element(nothing, values[0], ir.Constant(_WORD, 0))
        return builder.shuffle_vector(one, nothing, ir.Constant(ir.VectorType(_WORD, kind.count), [0] * kind.count))

    return kind(value), generate


def _make_lane_operation(name: str, compare: str | None = None) -> Callable[..., object]:
    """Return an intrinsic that combines two vectors lane by lane.

    Args:
        name: LLVM's name for an arithmetic operation, which is ignored if ``compare`` is given.
        compare: LLVM's comparison operator, or None for an arithmetic operation. Each lane of the result is taken from
            the first vector if the comparison holds there, and from the second one otherwise.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def operation(typing: object, a: _Lanes, b: _Lanes) -> _Typed:
        """Return the operation's signature for two vectors of the same type, and a function that generates its code."""

        def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
            """Generate the code that combines two vectors lane by lane."""
            if compare is None:
                return getattr(builder, name)(*values, flags=_FUSED)
            # An ordered comparison with NaN is false, so the second operand is selected.
            return builder.select(builder.fcmp_ordered(compare, *values), *values)

        return a(a, b), generate

    result: Callable[..., object] = operation
    return result


least = _make_lane_operation("least", "<")
"""Return the lane-by-lane minimum of two vectors."""
greatest = _make_lane_operation("greatest", ">")
"""Return the lane-by-lane maximum of two vectors."""


def _make_reduction(compare: str | None = None) -> Callable[..., float]:
    """Return an intrinsic that reduces the lanes of a vector to one number.

    Args:
        compare: ``"<"`` for the smallest lane, ``">"`` for the largest lane, or None for the sum of all lanes.
    """

    @intrinsic  # type: ignore[untyped-decorator]
    def operation(typing: object, a: _Lanes) -> _Typed:
        """Return the signature of the reduction from a vector to a number, and a function that generates its code."""

        def generate(context: BaseContext, builder: ir.IRBuilder, signature: Signature, values: _Values) -> ir.Value:
            """Generate the code that reduces a vector to a number by combining its lanes pairwise in a binary tree."""
            lanes = [builder.extract_element(values[0], ir.Constant(_WORD, k)) for k in range(a.count)]
            while len(lanes) > 1:
                # Combining lanes in pairs fixes the order of the operations, and keeps chains of dependent operations
                # short.
                pairs = zip(lanes[::2], lanes[1::2], strict=True)
                if compare is None:
                    lanes = [builder.fadd(x, y) for x, y in pairs]
                else:
                    lanes = [builder.select(builder.fcmp_ordered(compare, x, y), x, y) for x, y in pairs]
            return lanes[0]

        return a.element(a), generate

    result: Callable[..., float] = operation
    return result


total = _make_reduction()
"""Return the sum of a vector's lanes."""
lowest = _make_reduction("<")
"""Return the smallest lane of a vector."""
highest = _make_reduction(">")
"""Return the largest lane of a vector."""


def _register_operator(symbol: Callable[..., object], operation: Callable[..., object]) -> None:
    """Register an intrinsic with numba as the implementation of a Python operator for two vectors of the same type."""

    @overload(symbol, strict=False)  # type: ignore[untyped-decorator]
    def type_operation(a: object, b: object) -> Callable[..., object] | None:
        """Return the operator's implementation if both arguments are vectors of the same type, or None otherwise."""
        if isinstance(a, _Lanes) and a == b:
            return lambda a, b: operation(a, b)
        return None


_register_operator(operator.add, _make_lane_operation("fadd"))
_register_operator(operator.sub, _make_lane_operation("fsub"))
_register_operator(operator.mul, _make_lane_operation("fmul"))
_register_operator(operator.truediv, _make_lane_operation("fdiv"))
